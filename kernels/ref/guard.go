package ref

import (
	"fmt"
	"math"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareGuard implements kernels.Library.
func (l *Library) PrepareGuard(g kernels.Guard, o kernels.GuardOperands) (runtime.Launch, error) {
	if err := o.Check(g); err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	var grads [][]float32
	var norm, scalars []byte
	for _, u := range o.Uses() {
		u.Span.Bytes = u.Bytes
		b, err := l.memory.Bytes(u.Span)
		if err != nil {
			return nil, fmt.Errorf("ref: guard: %w", err)
		}
		switch u.Role {
		case kernels.DParam:
			grads = append(grads, floats(b))
		case kernels.Y:
			norm = b
		case kernels.ScalarsRole:
			scalars = b
		}
	}
	return launch{"guard", func() error { guard(g, grads, norm, scalars); return nil }}, nil
}

func guard(g kernels.Guard, grads [][]float32, out, scalars []byte) {
	var squares float64
	for _, t := range grads {
		for _, v := range t {
			squares += float64(v) * float64(v)
		}
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
