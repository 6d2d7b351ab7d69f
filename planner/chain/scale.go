package chain

import (
	"fmt"
	"math"
)

// Scale returns the chain with all times multiplied by seconds and all sizes but the weights by bytes: what
// another batch size or a faster device is expected to cost. Sizes are rounded up, so that nothing is
// underestimated. Fields of the file that the package does not know stay as they are. Errors: ErrFactor, and
// those of Validate when a size leaves its range.
func Scale(c *Chain, seconds, bytes float64) (*Chain, error) {
	for _, f := range []float64{seconds, bytes} {
		if !(f > 0) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%w: %g is not a positive finite number", ErrFactor, f)
		}
	}
	time := func(x float64) float64 { return x * seconds }
	size := func(n int64) int64 { return scaleUp(n, bytes) }
	out := *c
	out.InputBytes = size(c.InputBytes)
	out.Layers = make([]Layer, c.Len())
	for i := range c.Layers {
		out.Layers[i] = c.Layers[i].scaled(time, size)
	}
	return &out, out.Validate()
}

func (l *Layer) scaled(time func(float64) float64, size func(int64) int64) Layer {
	s := *l
	s.ForwardS, s.BackwardS = time(l.ForwardS), time(l.BackwardS)
	s.OutputBytes, s.SavedBytes, s.GradientBytes = size(l.OutputBytes), size(l.SavedBytes), size(l.GradientBytes)
	s.ForwardOverheadBytes, s.BackwardOverheadBytes = size(l.ForwardOverheadBytes), size(l.BackwardOverheadBytes)
	s.DiscardForwardS = apply(time, l.DiscardForwardS)
	s.DiscardOverheadBytes = apply(size, l.DiscardOverheadBytes)
	s.BackwardInputS = apply(time, l.BackwardInputS)
	s.BackwardWeightS = apply(time, l.BackwardWeightS)
	return s
}

func apply[T any](f func(T) T, x *T) *T {
	if x == nil {
		return nil
	}
	y := f(*x)
	return &y
}

// scaleUp multiplies and rounds up; a product out of range becomes one that Validate refuses.
func scaleUp(n int64, factor float64) int64 {
	return int64(min(math.Ceil(float64(n)*factor), 2*MaxBytes))
}
