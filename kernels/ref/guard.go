package ref

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareGuard implements kernels.Library.
func (l *Library) PrepareGuard(g kernels.Guard, o kernels.GuardOperands) (runtime.Launch, error) {
	if err := o.Check(g); err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	var grads []func() []float32
	var partials, norm, scalars []byte
	for _, u := range o.Uses() {
		u.Span.Bytes = u.Bytes
		b, err := l.memory.Bytes(u.Span)
		if err != nil {
			return nil, fmt.Errorf("ref: guard: %w", err)
		}
		switch u.Role {
		case kernels.DParam:
			grads = append(grads, gradients(o.Type(u.Index), b))
		case kernels.Workspace:
			partials = b
		case kernels.Y:
			norm = b
		case kernels.ScalarsRole:
			scalars = b
		}
	}
	return launch{"guard", func() error {
		measure(grads, doubles(partials))
		if o.Judges() {
			judge(g, doubles(partials), norm, scalars)
		}
		return nil
	}}, nil
}

// measure sums the squares of each gradient in chunks of GuardChunk.
func measure(grads []func() []float32, partials []float64) {
	for _, read := range grads {
		for chunk := range slices.Chunk(read(), kernels.GuardChunk) {
			partials[0] = 0
			for _, v := range chunk {
				partials[0] += float64(v) * float64(v)
			}
			partials = partials[1:]
		}
	}
}

func judge(g kernels.Guard, partials []float64, out, scalars []byte) {
	var squares float64
	for _, v := range partials {
		squares += v
	}
	s := kernels.GetScalars(scalars)
	norm := math.Sqrt(squares) * float64(s.GradScale)
	floats(out)[0] = float32(norm)
	if !finite(norm) {
		s.Skip = 1
	}
	if limit := float64(g.MaxNorm); limit > 0 && norm > limit {
		s.GradScale *= float32(limit / (norm + 1e-6))
	}
	s.Put(scalars)
}
