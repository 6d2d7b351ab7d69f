package pipelinetest

import (
	"errors"
	"fmt"
	"math"
)

var (
	// ErrConfig is returned by New for a configuration that cannot be trained.
	ErrConfig = errors.New("bad configuration of a reference")
	// ErrProgram is returned for a program that asks for weights that do not exist, or for a part of a group.
	ErrProgram = errors.New("bad sequential program")
	// ErrNotFinite is returned when a loss or a gradient is not finite.
	ErrNotFinite = errors.New("not finite")
)

// finite refuses values that are not numbers.
func finite(what string, values []float32) error {
	for i, v := range values {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s is %w: element %d is %v", what, ErrNotFinite, i, v)
		}
	}
	return nil
}
