package kernels

import (
	"cmp"
	"math"
	"slices"
)

// The ops of transformers. Sequences are N,T,C: T positions of C channels each.

// Embedding looks up a row for each token, and adds that of its position when there are any:
// Y[n,t] = weight[X[n,t]] + position[t]. X[0]: N,T int32 -> N,T,Width. Params: weight Vocabulary,Width
// [, position Positions,Width], of which a shorter sequence uses the first T. A token outside 0..Vocabulary-1 makes its row
// NaN and gets no gradient.
type Embedding struct {
	Vocabulary, Width int
	Positions         int   // 0: none are added
	To                DType // of Y
	Fixed             int   // 1 + the token whose row gets no gradient; 0: none (PyTorch's padding_idx)
	// Uncounted is 1 + the token that positions pass over, as in RoBERTa; 0: none. Token p = Uncounted-1 itself has position p, and any other
	// token has p + the number of tokens other than p up to it. Row p of the positions gets no gradient.
	Uncounted int
}

// LayerNorm normalizes each row of the last axis, then scales and shifts: Y = (X - mean)/std * weight + bias. The variance is
// the biased one (Ba, Kiros, Hinton: Layer Normalization, 2016). Params: weight C, bias C. Saved: mean and 1/std of each row.
type LayerNorm struct {
	Epsilon float32 // 0 means 1e-5
	FromOne bool    // rows are scaled by 1 + weight, as in Nemotron
}

// RMSNorm divides each row of the last axis by its root mean square and scales: Y = X/sqrt(mean(X^2) + Epsilon) * weight
// (Zhang, Sennrich: Root Mean Square Layer Normalization, 2019). Params: weight C. Saved: 1/rms of each row.
type RMSNorm struct {
	Epsilon float32 // 0 means 1e-5
	FromOne bool    // rows are scaled by 1 + weight, as in Gemma
}

// GELU is x*Phi(x), Phi being the normal distribution (Hendrycks, Gimpel: Gaussian Error Linear Units, 2016); with Tanh its
// approximation x/2*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3))), which GPT-2 has.
type GELU struct{ Tanh bool }

// SiLU is x*sigmoid(x).
type SiLU struct{}

// Multiply is X[0] * X[1], same shapes.
type Multiply struct{}

// Rotary turns pairs of channels by angles that grow with the position (Su et al.: RoFormer, 2021). X[0] is N,T,C. The first Heads heads of
// Dim channels of each position are turned, the rest is copied. If queries, keys and values lie side by side, as Attention reads them,
// Heads counts the heads of queries and keys. Channels i and i + Dim/2 of a head are a pair, as in Llama's weights: by the angle t *
// Base^(-2i/Dim) at position t. With Turned, the first Turned channels of a head are turned as if they were all of it, and the rest is
// copied (GPT-NeoX).
type Rotary struct {
	Heads, Dim int
	Base       float64 // 0 means 10000
	Turned     int     // 0 means Dim
	Scaling    RotaryScaling
}

// RotaryScaling slows pairs of channels down, for sequences longer than a model began with (Grattafiori et al.: The Llama 3 Herd of Models,
// 2024). A pair turns n times in Positions. Its angles are multiplied by (1-s)/Factor + s, where s is (n - Low)/(High - Low), cut to 0..1.
// Without Positions that is 1/Factor for all pairs. The zero value scales nothing.
type RotaryScaling struct {
	Factor    float64 // 0: no scaling
	Low, High float64 // turns
	Positions float64
}

// Turns returns how often a pair turns in Positions whose angle grows by 1 a position.
func (s RotaryScaling) Turns() float64 { return s.Positions / (2 * math.Pi) }

// check refuses a scaling that is none.
func (s RotaryScaling) check() error {
	const kind = "rotary"
	switch {
	case s == RotaryScaling{}:
		return nil
	case !(s.Factor >= 1 && s.Factor <= math.MaxFloat32):
		return bad(kind, "Scaling", "factor %v is not from 1 and finite", s.Factor)
	case !(s.Low >= 0 && s.Low < s.High && s.High <= math.MaxFloat32):
		return bad(kind, "Scaling", "turns from %v to %v are no range from 0", s.Low, s.High)
	case !(s.Positions >= 0 && s.Positions <= math.MaxFloat32):
		return bad(kind, "Scaling", "%v positions are not from 0 and finite", s.Positions)
	}
	return nil
}

// Attention is self-attention, softmax(Q K^T / sqrt(D)) V, in which position t sees positions 0 to t or, where it is Bidirectional, all. X[0]: N,T,C
// holds, side by side, queries of Heads heads, keys and values of KVHeads heads, all of D channels, so that
// C = (Heads + 2*KVHeads)*D; Y is N,T,Heads*D. Heads h*Heads/KVHeads and following share keys and values h. The T,T matrix
// is never in memory: Saved is N,Heads,T, log(sum(exp)) of its rows, from which backward computes it again block by block
// (Dao: FlashAttention-2, 2023).
//
// Two terms can be added to the scaled scores of position t at position s:
//   - With Table, a learned one by head (Swin, BEiT, T5): bias[index[t,s], h]. Params: bias Table,Heads and the constant index T,T, which has
//     whole numbers as float32. An index outside the table is the nearest row.
//   - With Masks, a constant (shifted windows; ALiBi with MaskHeads): mask[n mod Masks, t, s] of sample n, or mask[n mod Masks, h, t, s].
//     Params: the constant mask Masks,T,T or Masks,Heads,T,T. Its numbers are finite; Hidden hides a position.
type Attention struct {
	Heads         int
	KVHeads       int     // 0 means Heads
	Bidirectional bool    // as in encoders
	Scale         float32 // of scores; 0 means 1/sqrt(D)
	Table         int     // rows of the learned term; 0: there is none
	Masks         int     // of the constant term; 0: there is none
	MaskHeads     bool    // each head has masks of its own
	TF32          bool    // see InTF32
}

// Hidden is added to a score so that the position gets no weight: finite, so that no row of scores has differences of infinities.
const Hidden = -1e30

func (Embedding) Kind() string { return "embedding" }
func (LayerNorm) Kind() string { return "layernorm" }
func (RMSNorm) Kind() string   { return "rmsnorm" }
func (GELU) Kind() string      { return "gelu" }
func (SiLU) Kind() string      { return "silu" }
func (Multiply) Kind() string  { return "multiply" }
func (Rotary) Kind() string    { return "rotary" }
func (Attention) Kind() string { return "attention" }

func (Embedding) Needs() Needs { return Needs{Inputs: []bool{true}} }
func (LayerNorm) Needs() Needs { return Needs{Inputs: []bool{true}} }
func (RMSNorm) Needs() Needs   { return Needs{Inputs: []bool{true}} }
func (GELU) Needs() Needs      { return Needs{Inputs: []bool{true}} }
func (SiLU) Needs() Needs      { return Needs{Inputs: []bool{true}} }
func (Multiply) Needs() Needs  { return Needs{Inputs: []bool{true, true}} }
func (Rotary) Needs() Needs    { return Needs{} }
func (Attention) Needs() Needs { return Needs{Inputs: []bool{true}, Output: true} }

func (Embedding) Split() bool { return false }
func (LayerNorm) Split() bool { return false }
func (RMSNorm) Split() bool   { return false }
func (GELU) Split() bool      { return false }
func (SiLU) Split() bool      { return false }
func (Multiply) Split() bool  { return false }
func (Rotary) Split() bool    { return false }
func (Attention) Split() bool { return false }

// inputwise reports aliases of ops with a backward that reads their inputs, all elements (or the whole row) that it needs
// before it writes any. Aliases are as of elementwise ops, and gradients may lie on inputs.
func inputwise(pass Pass, out, in Operand) bool {
	return elementwise(pass, out, in) || pass != Forward && out.Role == DX && in.Role == X
}

func (Embedding) Alias(p Pass, out, in Operand) bool { return never(p, out, in) }
func (LayerNorm) Alias(p Pass, out, in Operand) bool { return inputwise(p, out, in) }
func (RMSNorm) Alias(p Pass, out, in Operand) bool   { return inputwise(p, out, in) }
func (GELU) Alias(p Pass, out, in Operand) bool      { return inputwise(p, out, in) }
func (SiLU) Alias(p Pass, out, in Operand) bool      { return inputwise(p, out, in) }
func (Multiply) Alias(p Pass, out, in Operand) bool  { return inputwise(p, out, in) }
func (Rotary) Alias(p Pass, out, in Operand) bool    { return elementwise(p, out, in) }
func (Attention) Alias(p Pass, out, in Operand) bool { return never(p, out, in) }

// Params implements Op.
func (e Embedding) Params([]Desc) []Param {
	ps := []Param{{Name: "weight", Desc: F32(e.Vocabulary, e.Width), Trained: true, FanIn: e.Vocabulary, FanOut: e.Width}}
	if e.Positions > 0 {
		ps = append(ps, Param{Name: "position", Desc: F32(e.Positions, e.Width), Trained: true, FanIn: e.Positions, FanOut: e.Width})
	}
	return ps
}

// Params implements Op.
func (LayerNorm) Params(in []Desc) []Param {
	c := F32(channels(in[0]))
	return []Param{{Name: "weight", Desc: c, Trained: true}, {Name: "bias", Desc: c, Trained: true}}
}

// Params implements Op.
func (RMSNorm) Params(in []Desc) []Param {
	return []Param{{Name: "weight", Desc: F32(channels(in[0])), Trained: true}}
}

// Params implements Op: the terms that are added to scores.
func (a Attention) Params(in []Desc) (all []Param) {
	t := in[0].Shape[1]
	if a.Table > 0 {
		bias := Param{Name: "bias", Desc: F32(a.Table, a.Heads), Trained: true, FanIn: a.Heads, FanOut: a.Heads}
		all = append(all, bias, Param{Name: "index", Desc: F32(t, t), Constant: true})
	}
	switch {
	case a.Masks > 0 && a.MaskHeads:
		all = append(all, Param{Name: "mask", Desc: F32(a.Masks, a.Heads, t, t), Constant: true})
	case a.Masks > 0:
		all = append(all, Param{Name: "mask", Desc: F32(a.Masks, t, t), Constant: true})
	}
	return all
}

func (GELU) Params([]Desc) []Param     { return nil }
func (SiLU) Params([]Desc) []Param     { return nil }
func (Multiply) Params([]Desc) []Param { return nil }
func (Rotary) Params([]Desc) []Param   { return nil }

// Saved implements Op: mean and 1/std of each row.
func (LayerNorm) Saved(in []Desc) []Desc {
	rows := F32(head(in[0])...)
	return []Desc{rows, rows}
}

// Saved implements Op: 1/rms of each row.
func (RMSNorm) Saved(in []Desc) []Desc { return []Desc{F32(head(in[0])...)} }

// Saved implements Op: log(sum(exp)) of each row of scores.
func (a Attention) Saved(in []Desc) []Desc {
	return []Desc{F32(in[0].Shape[0], a.Heads, in[0].Shape[1])}
}

func (Embedding) Saved([]Desc) []Desc { return nil }
func (GELU) Saved([]Desc) []Desc      { return nil }
func (SiLU) Saved([]Desc) []Desc      { return nil }
func (Multiply) Saved([]Desc) []Desc  { return nil }
func (Rotary) Saved([]Desc) []Desc    { return nil }

// Defaults returns the op with a zero Epsilon replaced by 1e-5.
func (l LayerNorm) Defaults() LayerNorm {
	if l.Epsilon == 0 {
		l.Epsilon = 1e-5
	}
	return l
}

// Defaults returns the op with a zero Epsilon replaced by 1e-5.
func (r RMSNorm) Defaults() RMSNorm {
	r.Epsilon = LayerNorm{Epsilon: r.Epsilon}.Defaults().Epsilon
	return r
}

// Offset returns the number that is added to the weight.
func (l LayerNorm) Offset() float32 { return RMSNorm{FromOne: l.FromOne}.Offset() }

// Offset returns the number that is added to the weight.
func (r RMSNorm) Offset() float32 {
	if r.FromOne {
		return 1
	}
	return 0
}

// Defaults returns the op with a zero Base replaced by 10000, and zero Turned by Dim.
func (r Rotary) Defaults() Rotary {
	if r.Base == 0 {
		r.Base = 10000
	}
	if r.Turned == 0 {
		r.Turned = r.Dim
	}
	return r
}

// Ratio returns the quotient of the angles of two pairs that follow one another: pair i turns by t * Ratio^i.
func (r Rotary) Ratio() float64 {
	d := r.Defaults()
	return math.Pow(d.Base, -2/float64(d.Turned))
}

// Defaults returns the op with zero KVHeads replaced by Heads.
func (a Attention) Defaults() Attention {
	if a.KVHeads == 0 {
		a.KVHeads = a.Heads
	}
	return a
}

// ScoreScale returns the factor of products of queries and keys.
func (a Attention) ScoreScale(x Desc) float64 {
	if a.Scale != 0 {
		return float64(a.Scale)
	}
	return 1 / math.Sqrt(float64(a.Dim(x)))
}

// Plain reports whether nothing is added to scores.
func (a Attention) Plain() bool { return a.Table == 0 && a.Masks == 0 }

// Dim returns the channels of a head.
func (a Attention) Dim(x Desc) int { return channels(x) / (a.Heads + 2*a.Defaults().KVHeads) }

// Infer implements Op.
func (e Embedding) Infer(in []Desc) (Desc, error) {
	if len(in) != 1 || len(in[0].Shape) != 2 || in[0].DType != Int32 || in[0].check() != nil {
		return Desc{}, bad(e.Kind(), "X", "want tokens N,T, int32, have %v", in)
	}
	for _, p := range []struct {
		field   string
		extents int
		least   int
	}{{"Vocabulary", e.Vocabulary, 1}, {"Width", e.Width, 1}, {"Positions", e.Positions, 0}} {
		if p.extents < p.least || p.extents > MaxExtent {
			return Desc{}, bad(e.Kind(), p.field, "%d is not from %d to %d", p.extents, p.least, MaxExtent)
		}
	}
	switch t := in[0].Shape[1]; {
	case e.Fixed < 0 || e.Fixed > e.Vocabulary:
		return Desc{}, bad(e.Kind(), "Fixed", "%d is not from 0, none, to %d", e.Fixed, e.Vocabulary)
	case !e.To.Float():
		return Desc{}, bad(e.Kind(), "To", "%v is neither float32 nor bfloat16", e.To)
	case int64(max(e.Vocabulary, e.Positions))*int64(e.Width) > MaxElements:
		return Desc{}, bad(e.Kind(), "Vocabulary", "%d rows of %d have more than %d elements", max(e.Vocabulary, e.Positions), e.Width, int64(MaxElements))
	case e.Positions > 0 && t > e.Positions:
		return Desc{}, bad(e.Kind(), "Positions", "a sequence of %d has more than %d positions: use shorter ones", t, e.Positions)
	case e.Uncounted < 0 || e.Uncounted > e.Vocabulary || e.Uncounted > 0 && e.Positions == 0:
		return Desc{}, bad(e.Kind(), "Uncounted", "%d is not from 0, none, to %d, or there are no positions", e.Uncounted, e.Vocabulary)
	case e.Uncounted > 0 && t > e.Positions-e.Uncounted:
		return Desc{}, bad(e.Kind(), "Positions", "a sequence of %d, whose positions begin at %d, has more than %d: use shorter ones", t, e.Uncounted, e.Positions)
	}
	return output(e.Kind(), e.To, in[0].Shape[0], in[0].Shape[1], e.Width)
}

// Infer implements Op.
func (l LayerNorm) Infer(in []Desc) (Desc, error) { return rowNorm(l.Kind(), l.Epsilon, in) }

// Infer implements Op.
func (r RMSNorm) Infer(in []Desc) (Desc, error) { return rowNorm(r.Kind(), r.Epsilon, in) }

func rowNorm(kind string, epsilon float32, in []Desc) (Desc, error) {
	if !(epsilon >= 0) {
		return Desc{}, bad(kind, "Epsilon", "%v is negative", epsilon)
	}
	return same(kind, in, 1)
}

// Infer implements Op.
func (g GELU) Infer(in []Desc) (Desc, error) { return same(g.Kind(), in, 1) }

// Infer implements Op.
func (s SiLU) Infer(in []Desc) (Desc, error) { return same(s.Kind(), in, 1) }

// Infer implements Op.
func (m Multiply) Infer(in []Desc) (Desc, error) { return same(m.Kind(), in, 2) }

// Infer implements Op.
func (r Rotary) Infer(in []Desc) (Desc, error) {
	if err := cmp.Or(sequence(r.Kind(), in), r.Scaling.check()); err != nil {
		return Desc{}, err
	}
	switch c := channels(in[0]); {
	case r.Dim < 2 || r.Dim%2 != 0 || r.Dim > c:
		return Desc{}, bad(r.Kind(), "Dim", "%d is not an even number of at most %d channels", r.Dim, c)
	case r.Heads < 1 || r.Heads > c/r.Dim:
		return Desc{}, bad(r.Kind(), "Heads", "%d channels have no %d heads of %d", c, r.Heads, r.Dim)
	case r.Turned < 0 || r.Turned%2 != 0 || r.Turned > r.Dim:
		return Desc{}, bad(r.Kind(), "Turned", "%d is not from 0, all, to %d, and even", r.Turned, r.Dim)
	case r.Base != 0 && !(r.Base > 1 && r.Base <= math.MaxFloat32):
		return Desc{}, bad(r.Kind(), "Base", "%v is not more than 1 and finite", r.Base)
	}
	return same(r.Kind(), in, 1)
}

// Infer implements Op.
func (a Attention) Infer(in []Desc) (Desc, error) {
	if err := sequence(a.Kind(), in); err != nil {
		return Desc{}, err
	}
	d, c := a.Defaults(), channels(in[0])
	switch {
	case a.Heads < 1 || a.Heads > c:
		return Desc{}, bad(a.Kind(), "Heads", "%d is not a number of heads of %d channels", a.Heads, c)
	case d.KVHeads < 1 || d.Heads%d.KVHeads != 0:
		return Desc{}, bad(a.Kind(), "KVHeads", "%d heads of keys and values do not divide %d heads", d.KVHeads, d.Heads)
	case c%(d.Heads+2*d.KVHeads) != 0:
		return Desc{}, bad(a.Kind(), "Heads", "%d channels are no multiple of %d + 2*%d heads", c, d.Heads, d.KVHeads)
	case d.Dim(in[0]) > maxHead:
		return Desc{}, bad(a.Kind(), "Heads", "a head of %d channels is larger than %d", d.Dim(in[0]), maxHead)
	}
	if err := products(a, in[0]); err != nil {
		return Desc{}, err
	}
	if err := d.checkTerms(int64(in[0].Shape[1])); err != nil {
		return Desc{}, err
	}
	y := slices.Clone(in[0].Shape)
	y[2] = d.Heads * d.Dim(in[0])
	return output(a.Kind(), in[0].DType, y...)
}

func (a Attention) usesTF32() bool { return a.TF32 }

func (a Attention) inTF32() Op {
	a.TF32 = true
	return a
}

// checkTerms refuses a scale, or terms that are added to scores of t positions, that no library can use.
func (a Attention) checkTerms(t int64) error {
	scale, maps := float64(a.Scale), int64(max(a.Masks, 0))
	if a.MaskHeads {
		maps *= int64(a.Heads)
	}
	switch {
	case math.IsNaN(scale) || math.IsInf(scale, 0):
		return bad(a.Kind(), "Scale", "%v is not finite", a.Scale)
	case a.Table < 0 || a.Table > 1<<24 || int64(a.Table)*int64(a.Heads) > MaxExtent:
		return bad(a.Kind(), "Table", "%d is not from 0, none, to %d rows of %d heads", a.Table, min(1<<24, MaxExtent/a.Heads), a.Heads)
	case a.Masks < 0 || a.Masks > MaxExtent || a.MaskHeads && a.Masks == 0:
		return bad(a.Kind(), "Masks", "%d is not from 0, none, to %d, or 0 with masks for each head", a.Masks, MaxExtent)
	case !a.Plain() && max(maps, 1) > MaxExtent/t/t:
		return bad(a.Kind(), "Masks", "terms of scores of %d positions have more than %d elements: use shorter samples", t, MaxExtent)
	}
	return nil
}

// maxHead bounds the channels of a head of Attention, so that blocks of it fit where kernels keep them.
const maxHead = 512

// sequence refuses anything but one input N,T,C.
func sequence(kind string, in []Desc) error {
	if len(in) != 1 {
		return bad(kind, "X", "want 1 input, have %d", len(in))
	}
	if err := tensor(kind, 0, in[0]); err != nil {
		return err
	}
	if len(in[0].Shape) != 3 {
		return bad(kind, "X", "input 0 is %v, want 3 axes", in[0])
	}
	return nil
}
