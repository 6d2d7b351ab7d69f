package ref

import (
	"fmt"
	"math"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareMoments implements kernels.Library.
func (l *Library) PrepareMoments(m kernels.Moments, o kernels.MomentsOperands) (runtime.Launch, error) {
	if err := o.Check(m); err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	var all [3][]float32 // rows, running means, running variances
	for i, u := range o.Uses(m) {
		u.Span.Bytes = u.Bytes
		b, err := l.memory.Bytes(u.Span)
		if err != nil {
			return nil, fmt.Errorf("ref: moments: %w", err)
		}
		all[i] = floats(b)
	}
	return launch{"moments", func() error { moments(m.Defaults(), all[0], all[1], all[2]); return nil }}, nil
}

// moments adds up the sums of squared deviations within the batches and of the batches' means.
func moments(m kernels.Moments, rows, mean, variance []float32) {
	width := int(m.Row() / kernels.Float32.Size())
	at := func(k, of, c int) *float32 { return &rows[(2*k+of)*width+c] }
	rest := float64(m.Rows - 1)
	for c := range m.Channels {
		var center, squares float64
		whole := true
		for k := range m.Batches {
			center += float64(*at(k, 0, c)) / float64(m.Batches)
			whole = whole && !math.Signbit(float64(*at(k, 1, c)))
		}
		for k := range m.Batches {
			d := float64(*at(k, 0, c)) - center
			squares += float64(*at(k, 1, c))*rest + float64(m.Rows)*d*d
			*at(k, 0, c), *at(k, 1, c) = kernels.NoMoment, kernels.NoMoment
		}
		if whole {
			move(&mean[c], center, float64(m.Momentum))
			move(&variance[c], squares/(float64(m.Rows)*float64(m.Batches)-1), float64(m.Momentum))
		}
	}
}
