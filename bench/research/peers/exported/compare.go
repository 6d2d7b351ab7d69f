//go:build cgo

package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
)

// The largest difference between PyTorch's losses and ours, as a share of them.
const mostLoss = 1e-4

// steps is the number of steps of gradient descent with compared losses.
const steps = 3

// reference holds PyTorch's results: reference.json.
type reference struct {
	Model, Torch string
	Image, Batch int // of text, Image is the tokens of a sample
	Classes      int
	Rate         float32
	Parameters   int64
	Tokens       []uint32 // of a batch; none: it is of images
	Labels       []int32
	Losses       []float64
}

// result is a comparison.
type result struct {
	*reference
	layers int
	ours   []float64 // losses
	loss   float64   // the largest difference of two losses, as a share of PyTorch's
}

// check returns an error if a difference is too large. A result that is no number is too large.
func (r *result) check() error {
	if len(r.ours) != steps || !(r.loss <= mostLoss) {
		return fmt.Errorf("%d losses, want %d, differ by up to %.2g, want at most %.0e: ours %v, PyTorch's %v", len(r.ours), steps, r.loss, mostLoss, r.ours, r.Losses)
	}
	return nil
}

func (r *result) String() string {
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %.6f | %.6f | %.1e |", r.Model, humanize.Comma(r.Parameters), r.layers, r.Image, r.Batch,
		r.Losses[0], r.Losses[len(r.Losses)-1], r.loss)
}

// compare trains the file of a folder as PyTorch has trained the model that it was exported from.
func compare(folder string) (r *result, err error) {
	s, err := openSubject(folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if len(s.Losses) == 0 {
		return nil, fmt.Errorf("%s: reference.json: 0 losses", folder)
	}
	if n := s.parameters; n != s.Parameters {
		return nil, fmt.Errorf("%s: our model has %d parameters, PyTorch's %d", folder, n, s.Parameters)
	}
	r = &result{reference: s.reference, layers: s.layers}
	for _, want := range s.Losses {
		loss, err := s.step(s.Rate)
		if err != nil {
			return nil, err
		}
		r.ours, r.loss = append(r.ours, loss), worse(r.loss, math.Abs(loss-want)/want)
	}
	return r, nil
}

// worse returns the larger of two differences, what is no number before all.
func worse(a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return max(a, b)
}
