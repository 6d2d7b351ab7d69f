package kernels

import (
	"cmp"
	"slices"
)

// Axis limits of Rearrange.
const (
	MostAxes  = 4
	MostLoops = 8
)

// Loop is N elements of a tensor that are Stride apart.
type Loop struct{ N, Stride int }

// Rearrange is elements of X[0] in another order, each at most once: what reshaping, permuting, slicing and cutting into windows make. The
// elements of Y come in the order in which an index counts through Loops, the last one fastest: index i of a loop is i*Stride elements behind
// From. Unused axes and loops are zero.
type Rearrange struct {
	Shape [MostAxes]int // of Y
	From  int
	Loops [MostLoops]Loop
}

// NewRearrange returns the op for a shape and loops, of which there are at most MostAxes and MostLoops.
func NewRearrange(shape []int, from int, loops []Loop) Rearrange {
	r := Rearrange{From: from}
	copy(r.Shape[:], shape)
	copy(r.Loops[:], loops)
	return r
}

// Used returns the loops that there are.
func (r Rearrange) Used() []Loop {
	n := slices.IndexFunc(r.Loops[:], func(l Loop) bool { return l.N == 0 })
	if n < 0 {
		n = MostLoops
	}
	return r.Loops[:n]
}

func (Rearrange) Kind() string                       { return "rearrange" }
func (Rearrange) Params([]Desc) []Param              { return nil }
func (Rearrange) Saved([]Desc) []Desc                { return nil }
func (Rearrange) Needs() Needs                       { return Needs{} }
func (Rearrange) Split() bool                        { return false }
func (Rearrange) Alias(p Pass, out, in Operand) bool { return never(p, out, in) }

// Infer implements Op.
func (r Rearrange) Infer(in []Desc) (Desc, error) {
	if len(in) != 1 {
		return Desc{}, bad(r.Kind(), "X", "want 1 input, have %d", len(in))
	}
	if err := tensor(r.Kind(), 0, in[0]); err != nil {
		return Desc{}, err
	}
	n := slices.Index(r.Shape[:], 0)
	if n < 0 {
		n = MostAxes
	}
	if n == 0 || slices.ContainsFunc(r.Shape[n:], func(e int) bool { return e != 0 }) {
		return Desc{}, bad(r.Kind(), "Shape", "%v: want 1 to %d extents, and zeros behind", r.Shape, MostAxes)
	}
	y, err := output(r.Kind(), in[0].DType, slices.Clone(r.Shape[:n])...)
	if err != nil {
		return Desc{}, err
	}
	return y, r.check(in[0].Elements(), y.Elements())
}

// check refuses loops that leave the input of so many elements, meet an element twice, or make another number of elements than the output has.
func (r Rearrange) check(input, output int64) error {
	loops := slices.Clone(r.Used())
	if slices.ContainsFunc(r.Loops[len(loops):], func(l Loop) bool { return l != Loop{} }) {
		return bad(r.Kind(), "Loops", "%v: want zeros behind the last one", r.Loops)
	}
	slices.SortFunc(loops, func(a, b Loop) int { return cmp.Compare(a.Stride, b.Stride) })
	made, end := int64(1), int64(1) // elements so far, and how far they reach
	for _, l := range loops {
		switch {
		case l.N < 1 || l.N > MaxExtent || l.Stride < 1 || l.N > 1 && int64(l.Stride) > input:
			return bad(r.Kind(), "Loops", "%d elements that are %d apart are none of a tensor of %d", l.N, l.Stride, input)
		case int64(l.Stride) < end && l.N > 1:
			return bad(r.Kind(), "Loops", "%v meet an element twice", r.Used())
		}
		made, end = made*int64(l.N), end+int64(l.N-1)*int64(l.Stride)
		if made > input || end > input {
			return bad(r.Kind(), "Loops", "%v reach beyond the %d elements of the input", r.Used(), input)
		}
	}
	switch {
	case r.From < 0 || int64(r.From) > input-end:
		return bad(r.Kind(), "From", "%d, with %v, is beyond the %d elements of the input", r.From, r.Used(), input)
	case made != output:
		return bad(r.Kind(), "Shape", "%v has %d elements, %v make %d", r.Shape, output, r.Used(), made)
	}
	return nil
}
