package ref

import (
	"errors"
	"fmt"
	"math"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareUpdate implements kernels.Library.
func (l *Library) PrepareUpdate(u kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	if err := kernels.CheckUpdates(u, all); err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	var each []*update
	for _, o := range all {
		s, err := l.bindUpdate(u, o)
		if err != nil {
			return nil, fmt.Errorf("ref: %s: %w", u.Kind(), err)
		}
		each = append(each, s)
	}
	return launch{u.Kind(), func() (err error) {
		for _, s := range each {
			s.g = s.read()
			err = errors.Join(err, s.make(s.rule))
			s.round()
		}
		return err
	}}, nil
}

// make makes the update by a rule.
func (s *update) make(u kernels.Update) error {
	switch u := u.(type) {
	case kernels.SGD:
		return s.sgd(u)
	case kernels.Adam:
		return s.adam(u, u.WeightDecay, 0)
	case kernels.AdamW:
		return s.adam(kernels.Adam(u), 0, u.WeightDecay)
	case kernels.Muon:
		if s.matrix.Is() {
			return s.muon(u)
		}
		return s.adam(kernels.Adam(u.AdamW()), 0, u.WeightDecay)
	}
	return fmt.Errorf("ref: %s: %w", u.Kind(), kernels.NoKernel("kernels/ref"))
}

// round writes the copy in bfloat16, where there is one.
func (s *update) round() {
	for i := range s.rounded {
		s.rounded[i] = kernels.ToBFloat16(s.w[i])
	}
}

type update struct {
	rule    kernels.Update
	w, g    []float32 // g from the launch on
	read    func() []float32
	rounded []uint16
	matrix  kernels.Matrix
	states  [][]float32
	scalars []byte
	earlier uint64
}

// gradients returns the function that reads memory as a gradient of a type.
func gradients(t kernels.DType, b []byte) func() []float32 {
	if t == kernels.Float32 {
		return func() []float32 { return floats(b) }
	}
	return func() []float32 {
		out := make([]float32, len(b)/2)
		for i, bits := range halves(b) {
			out[i] = kernels.FromBFloat16(bits)
		}
		return out
	}
}

// bindUpdate views the operands of a checked update.
func (l *Library) bindUpdate(u kernels.Update, o kernels.UpdateOperands) (*update, error) {
	s := &update{rule: o.Rule(u), matrix: o.Matrix, states: make([][]float32, len(o.States)), earlier: o.Earlier}
	for _, u := range o.Uses() {
		u.Span.Bytes = u.Bytes
		b, err := l.memory.Bytes(u.Span)
		if err != nil {
			return nil, err
		}
		switch u.Role {
		case kernels.ParamRole:
			s.w = floats(b)
		case kernels.DParam:
			s.read = gradients(o.GradType, b)
		case kernels.Save:
			s.states[u.Index] = floats(b)
		case kernels.Y:
			s.rounded = halves(b)
		case kernels.ScalarsRole:
			s.scalars = b
		}
	}
	return s, nil
}

func (s *update) sgd(u kernels.SGD) error {
	k := kernels.GetScalars(s.scalars)
	if k.Skip != 0 {
		return nil
	}
	for i, w := range s.w {
		g := float64(s.g[i])*float64(k.GradScale) + float64(u.WeightDecay)*float64(w)
		if u.Momentum != 0 {
			v := g
			if k.Update+s.earlier > 0 {
				v = float64(u.Momentum)*float64(s.states[0][i]) + (1-float64(u.Dampening))*g
			}
			s.states[0][i] = float32(v)
			if u.Nesterov {
				g += float64(u.Momentum) * v
			} else {
				g = v
			}
		}
		s.w[i] = float32(float64(w) - float64(k.LR)*g)
	}
	return nil
}

// adam is algorithm 1 of Kingma and Ba 2015, with the decay added to the gradient, or taken from the weight apart
// from it (Loshchilov and Hutter 2019, algorithm 2).
func (s *update) adam(u kernels.Adam, coupled, decoupled float32) error {
	k := kernels.GetScalars(s.scalars)
	if k.Skip != 0 {
		return nil
	}
	t := float64(k.Update+s.earlier) + 1
	lr, b1, b2 := float64(k.LR), float64(u.Beta1), float64(u.Beta2)
	for i := range s.w {
		w := float64(s.w[i])
		g := float64(s.g[i])*float64(k.GradScale) + float64(coupled)*w
		m := b1*float64(s.states[0][i]) + (1-b1)*g
		v := b2*float64(s.states[1][i]) + (1-b2)*g*g
		s.states[0][i], s.states[1][i] = float32(m), float32(v)
		m, v = m/(1-math.Pow(b1, t)), v/(1-math.Pow(b2, t))
		s.w[i] = float32(w - lr*float64(decoupled)*w - lr*m/(math.Sqrt(v)+float64(u.Epsilon)))
	}
	return nil
}
