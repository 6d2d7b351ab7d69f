//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"

	"plimsoll/runtime/cuda/driver"
)

var (
	// ErrLost is returned after a failure that takes the GPU's context with it: its memory cannot be read any more.
	ErrLost = errors.New("the device is lost, restart the program to use it again")
	// ErrIndex is returned for a number that no GPU has.
	ErrIndex = errors.New("bad device number")
	// ErrTooOld is returned for a GPU that the kernels are not compiled for.
	ErrTooOld = errors.New("the GPU is too old")
	// ErrCapturing is returned by calls that cannot be part of a graph.
	ErrCapturing = errors.New("not possible while the device is captured into a graph")
)

// callError names the call of the driver in front of its result.
func callError(call string, err error) error {
	if err == nil {
		return nil
	}
	err = driver.Of(err)
	var r driver.Result
	if errors.As(err, &r) && r.Fatal() {
		return fmt.Errorf("%s: %w (%w)", call, err, ErrLost)
	}
	return fmt.Errorf("%s: %w", call, err)
}

// isResult reports whether err is the result r of a call.
func isResult(err error, r driver.Result) bool {
	var got driver.Result
	return errors.As(driver.Of(err), &got) && got == r
}
