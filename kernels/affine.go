package kernels

import "math"

// Affine is Factor*X[0] + Plus: what embeddings and logits are scaled by.
type Affine struct{ Factor, Plus float32 }

func (Affine) Kind() string                       { return "affine" }
func (Affine) Params([]Desc) []Param              { return nil }
func (Affine) Saved([]Desc) []Desc                { return nil }
func (Affine) Needs() Needs                       { return Needs{} }
func (Affine) Split() bool                        { return false }
func (Affine) Alias(p Pass, out, in Operand) bool { return elementwise(p, out, in) }

// Infer implements Op.
func (a Affine) Infer(in []Desc) (Desc, error) {
	if finite := func(x float32) bool { return math.Abs(float64(x)) <= math.MaxFloat32 }; !finite(a.Factor) || !finite(a.Plus) {
		return Desc{}, bad(a.Kind(), "Factor", "%v and %v are not finite", a.Factor, a.Plus)
	}
	return same(a.Kind(), in, 1)
}
