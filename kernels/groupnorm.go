package kernels

// GroupNorm normalizes each group of a sample's channels over its pixels, then scales and shifts each channel (Wu, He: Group Normalization,
// 2018): X[0] is N,...,C. With as many groups as channels it is InstanceNorm, with one group a LayerNorm of all of a sample.
// Params, unless Plain: weight C, bias C. Saved: mean N,C and 1/std N,C of each channel's group.
type GroupNorm struct {
	Groups  int
	Epsilon float32 // 0 means 1e-5
	Plain   bool    // there is neither weight nor bias
}

func (GroupNorm) Kind() string                       { return "groupnorm" }
func (GroupNorm) Needs() Needs                       { return Needs{Inputs: []bool{true}} }
func (GroupNorm) Split() bool                        { return false }
func (GroupNorm) Alias(p Pass, out, in Operand) bool { return inputwise(p, out, in) }

// Params implements Op.
func (g GroupNorm) Params(in []Desc) []Param {
	if g.Plain {
		return nil
	}
	c := F32(channels(in[0]))
	return []Param{{Name: "weight", Desc: c, Trained: true}, {Name: "bias", Desc: c, Trained: true}}
}

// Saved implements Op.
func (GroupNorm) Saved(in []Desc) []Desc {
	d := F32(in[0].Shape[0], channels(in[0]))
	return []Desc{d, d}
}

// Defaults returns the op with a zero Epsilon replaced by PyTorch's 1e-5.
func (g GroupNorm) Defaults() GroupNorm {
	if g.Epsilon == 0 {
		g.Epsilon = 1e-5
	}
	return g
}

// Infer implements Op.
func (g GroupNorm) Infer(in []Desc) (Desc, error) {
	y, err := same(g.Kind(), in, 1)
	if err != nil {
		return Desc{}, err
	}
	switch {
	case len(y.Shape) < 2:
		return Desc{}, bad(g.Kind(), "X", "input 0 is %v, want samples and channels", in[0])
	case g.Groups < 1 || channels(y)%g.Groups != 0:
		return Desc{}, bad(g.Kind(), "Groups", "%d channels are not in %d groups of one size", channels(y), g.Groups)
	case !(g.Epsilon >= 0 && g.Epsilon <= 1):
		return Desc{}, bad(g.Kind(), "Epsilon", "%v is not from 0 to 1", g.Epsilon)
	}
	return y, nil
}
