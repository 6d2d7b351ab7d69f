package kernels

import "slices"

// Bias adds a parameter to X[0]: Y = X + weight, which has the last Axes axes of X and is the same for all others. Learned positions are such.
// Params: weight.
type Bias struct{ Axes int }

// Scale multiplies by a parameter: Y = X * weight, as Bias has it (of channels: LayerScale in Touvron et al.: Going deeper with Image
// Transformers, 2021). Params: weight.
type Scale struct{ Axes int }

// AddRows adds rows of a parameter to positions: Y[n,t] = X[n,t] + weight[First + Step*t], Step being 0 or 1: a learned position, or one row
// for all. Other rows get no gradient. X[0]: N,T,C. Params: weight Rows,C.
type AddRows struct{ Rows, First, Step int }

// Prepend puts a parameter of Rows rows ahead of each sample: N,T,C -> N,Rows+T,C (the class token in Dosovitskiy et al.: An Image is Worth 16x16
// Words, 2021). Params: weight Rows,C.
type Prepend struct{ Rows int }

// Gate is X[0] * X[1], N,...,C and N,C or N,1,1,C: each channel of a sample has a factor (Hu, Shen, Sun: Squeeze-and-Excitation Networks, 2018).
type Gate struct{}

func (Bias) Kind() string    { return "bias" }
func (Scale) Kind() string   { return "scale" }
func (AddRows) Kind() string { return "add_rows" }
func (Prepend) Kind() string { return "prepend" }
func (Gate) Kind() string    { return "gate" }

func (Bias) Needs() Needs    { return Needs{} }
func (Scale) Needs() Needs   { return Needs{Inputs: []bool{true}} }
func (AddRows) Needs() Needs { return Needs{} }
func (Prepend) Needs() Needs { return Needs{} }
func (Gate) Needs() Needs    { return Needs{Inputs: []bool{true, true}} }

func (Bias) Split() bool    { return false }
func (Scale) Split() bool   { return false }
func (AddRows) Split() bool { return false }
func (Prepend) Split() bool { return false }
func (Gate) Split() bool    { return false }

func (Bias) Alias(p Pass, out, in Operand) bool    { return elementwise(p, out, in) }
func (Scale) Alias(p Pass, out, in Operand) bool   { return inputwise(p, out, in) }
func (AddRows) Alias(p Pass, out, in Operand) bool { return elementwise(p, out, in) }
func (Prepend) Alias(p Pass, out, in Operand) bool { return never(p, out, in) }

// Alias of Gate: what has the shape of X[0] may lie on each other.
func (Gate) Alias(p Pass, out, in Operand) bool {
	return inputwise(p, out, in) && out.Index == 0 && (in.Role == DY || in.Index == 0)
}

// Params implements Op.
func (b Bias) Params(in []Desc) []Param { return trailing(in[0], b.Axes) }

// Params implements Op.
func (s Scale) Params(in []Desc) []Param { return trailing(in[0], s.Axes) }

// trailing is a parameter of the last axes of a tensor.
func trailing(x Desc, axes int) []Param {
	d := F32(x.Shape[len(x.Shape)-axes:]...)
	return []Param{{Name: "weight", Desc: d, Trained: true, FanIn: channels(d), FanOut: channels(d)}}
}

// Params implements Op.
func (a AddRows) Params(in []Desc) []Param {
	c := channels(in[0])
	return []Param{{Name: "weight", Desc: F32(a.Rows, c), Trained: true, FanIn: a.Rows, FanOut: c}}
}

// Params implements Op.
func (p Prepend) Params(in []Desc) []Param {
	c := channels(in[0])
	return []Param{{Name: "weight", Desc: F32(p.Rows, c), Trained: true, FanIn: c, FanOut: c}}
}

func (Gate) Params([]Desc) []Param { return nil }

func (Bias) Saved([]Desc) []Desc    { return nil }
func (Scale) Saved([]Desc) []Desc   { return nil }
func (AddRows) Saved([]Desc) []Desc { return nil }
func (Prepend) Saved([]Desc) []Desc { return nil }
func (Gate) Saved([]Desc) []Desc    { return nil }

// Infer implements Op.
func (b Bias) Infer(in []Desc) (Desc, error) { return withTrailing(b.Kind(), b.Axes, in) }

// Infer implements Op.
func (s Scale) Infer(in []Desc) (Desc, error) { return withTrailing(s.Kind(), s.Axes, in) }

// withTrailing refuses a parameter of all axes: the first one is that of samples.
func withTrailing(kind string, axes int, in []Desc) (Desc, error) {
	y, err := same(kind, in, 1)
	if err != nil {
		return Desc{}, err
	}
	if axes < 1 || axes >= len(y.Shape) {
		return Desc{}, bad(kind, "Axes", "%d is not from 1 to %d, all but the first of %v", axes, len(y.Shape)-1, y)
	}
	if n := F32(y.Shape[len(y.Shape)-axes:]...).Elements(); n > MaxExtent {
		return Desc{}, bad(kind, "Axes", "a parameter of %d elements has more than %d", n, MaxExtent)
	}
	return y, nil
}

// Infer implements Op.
func (a AddRows) Infer(in []Desc) (Desc, error) {
	if err := sequence(a.Kind(), in); err != nil {
		return Desc{}, err
	}
	x := in[0].Shape
	switch {
	case a.Step != 0 && a.Step != 1:
		return Desc{}, bad(a.Kind(), "Step", "%d is neither 0 nor 1", a.Step)
	case a.First < 0 || a.Rows > MaxExtent || a.First+a.Step*(x[1]-1) >= a.Rows:
		return Desc{}, bad(a.Kind(), "First", "rows from %d on, of %d, are not enough for %d positions: use shorter samples", a.First, a.Rows, x[1])
	case int64(x[1])*int64(x[2]) > MaxExtent || int64(a.Rows)*int64(x[2]) > MaxExtent:
		return Desc{}, bad(a.Kind(), "Rows", "%d rows, or a sample, have more than %d elements", a.Rows, MaxExtent)
	}
	return same(a.Kind(), in, 1)
}

// Infer implements Op.
func (p Prepend) Infer(in []Desc) (Desc, error) {
	if err := sequence(p.Kind(), in); err != nil {
		return Desc{}, err
	}
	y := slices.Clone(in[0].Shape)
	if p.Rows < 1 || p.Rows > maxAttribute || int64(y[1]+p.Rows)*int64(y[2]) > MaxExtent {
		return Desc{}, bad(p.Kind(), "Rows", "%d is not from 1 to %d, or a sample has more than %d elements with them", p.Rows, maxAttribute, MaxExtent)
	}
	y[1] += p.Rows
	return output(p.Kind(), in[0].DType, y...)
}

// Infer implements Op.
func (g Gate) Infer(in []Desc) (Desc, error) {
	if len(in) != 2 {
		return Desc{}, bad(g.Kind(), "X", "want 2 inputs, have %d", len(in))
	}
	for i, d := range in {
		if err := tensor(g.Kind(), i, d); err != nil {
			return Desc{}, err
		}
	}
	x, f := in[0], in[1]
	if len(x.Shape) < 2 || f.DType != x.DType || f.Shape[0] != x.Shape[0] || channels(f) != channels(x) || f.Elements() != int64(x.Shape[0])*int64(channels(x)) {
		return Desc{}, bad(g.Kind(), "X", "input 1 is %v, want a factor for each channel of a sample of input 0, %v", f, x)
	}
	return output(g.Kind(), x.DType, slices.Clone(x.Shape)...)
}
