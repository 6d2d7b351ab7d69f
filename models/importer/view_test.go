package importer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
)

// listed returns the elements that a view has, in its order.
func (v view) listed() []int {
	all := []int{v.from}
	for _, l := range slices.Concat(v.axes...) {
		var next []int
		for _, at := range all {
			for i := range l.n {
				next = append(next, at+i*l.stride)
			}
		}
		all = next
	}
	return all
}

// dense is a tensor of the numbers of its elements: what a view stands for.
type dense struct {
	shape []int
	at    []int
}

// index returns where the element of some indices is.
func (d dense) index(indices []int) (k int) {
	for i, n := range d.shape {
		k = k*n + indices[i]
	}
	return k
}

// each calls f for all indices of a shape, the last one fastest.
func each(shape []int, f func(indices []int)) {
	indices := make([]int, len(shape))
	for range extents(shape) {
		f(indices)
		for i := len(shape) - 1; i >= 0; i-- {
			if indices[i]++; indices[i] < shape[i] {
				break
			}
			indices[i] = 0
		}
	}
}

// transposed returns a tensor with its axes in another order.
func (d dense) transposed(perm []int) dense {
	out := dense{shape: make([]int, len(perm))}
	for i, p := range perm {
		out.shape[i] = d.shape[p]
	}
	each(out.shape, func(indices []int) {
		from := make([]int, len(perm))
		for i, p := range perm {
			from[p] = indices[i]
		}
		out.at = append(out.at, d.at[d.index(from)])
	})
	return out
}

// cut returns n of an axis from one on.
func (d dense) cut(axis, from, n int) dense {
	out := dense{shape: slices.Clone(d.shape)}
	out.shape[axis] = n
	each(out.shape, func(indices []int) {
		at := slices.Clone(indices)
		at[axis] += from
		out.at = append(out.at, d.at[d.index(at)])
	})
	return out
}

// A view has the elements that a copy would have, whatever was done to it; what it cannot have it refuses.
func TestViews(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 5))
	done, refused := 0, 0
	for range 2000 {
		s := &step{desc: kernels.F32(1+r.IntN(4), 1+r.IntN(4), 1+r.IntN(12))}
		v, d := viewOf(s), dense{shape: slices.Clone(s.desc.Shape)}
		for i := range extents(d.shape) {
			d.at = append(d.at, i)
		}
		for range 1 + r.IntN(6) {
			w, e, err := change(r, v, d)
			if err != nil {
				refused++
				continue
			}
			if v, d = w, e; !slices.Equal(v.shape(), d.shape) || !slices.Equal(v.listed(), d.at) {
				t.Fatalf("%v: %v of %v, want %v of %v", v.axes, v.listed(), v.shape(), d.at, d.shape)
			}
			done++
		}
		if v.same(viewOf(s)) != (slices.Equal(d.shape, s.desc.Shape) && slices.IsSorted(d.at) && len(d.at) == int(s.desc.Elements())) {
			t.Errorf("%v of %v is the same: %v", v.axes, s.desc, v.same(viewOf(s)))
		}
	}
	if done < 4000 || refused < 100 {
		t.Errorf("%d changes, %d refused", done, refused)
	}
}

// change does something to both.
func change(r *rand.Rand, v view, d dense) (view, dense, error) {
	axis := r.IntN(len(d.shape))
	switch r.IntN(3) {
	case 0:
		perm := r.Perm(len(d.shape))
		axes := make([][]loop, len(perm))
		for i, p := range perm {
			axes[i] = v.axes[p]
		}
		v.axes = axes
		return v, d.transposed(perm), nil
	case 1:
		from := r.IntN(d.shape[axis])
		n := 1 + r.IntN(d.shape[axis]-from)
		w, err := v.slice(axis, from, n)
		return w, d.cut(axis, from, n), err
	}
	var to []int
	for rest := len(d.at); len(to) < 4; {
		n := 1 + r.IntN(rest)
		for rest%n != 0 {
			n--
		}
		if rest /= n; len(to) == 3 {
			n *= rest
		}
		to = append(to, n)
	}
	w, err := v.reshape(to)
	return w, dense{to, d.at}, err
}

// The rows of a view are those of its step in the same order, so that an op on rows can work on the step.
func TestRowsOfViews(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 7))
	found := 0
	for range 2000 {
		s := &step{desc: kernels.F32(1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(4))}
		v, d := viewOf(s), dense{shape: slices.Clone(s.desc.Shape)}
		for i := range extents(d.shape) {
			d.at = append(d.at, i)
		}
		for range 1 + r.IntN(3) {
			if w, e, err := change(r, v, d); err == nil {
				v, d = w, e
			}
		}
		w, is := v.ordered(7)
		if !is {
			continue
		}
		found++
		got, channels := w.listed(), last(s.desc.Shape)
		if len(got) != len(d.at)/channels*7 {
			t.Fatalf("%v: %v", v.axes, got)
		}
		for i, at := range got {
			if want := d.at[i/7*channels]/channels*7 + i%7; at != want || d.at[i/7*channels]%channels != 0 {
				t.Fatalf("%v: element %d is %d, want %d", v.axes, i, at, want)
			}
		}
	}
	if found < 300 {
		t.Errorf("%d views of whole rows", found)
	}
}

// Activations are told apart by their values, and from what is none.
func TestCurves(t *testing.T) {
	t.Parallel()
	curveOf := func(f func(x float64) float64) *curve {
		c := &curve{at: make([]float64, len(samples))}
		for i, x := range samples {
			c.at[i] = f(x)
		}
		return c
	}
	root := float64(float32(math.Sqrt(2 / math.Pi)))
	for _, c := range []struct {
		want kernels.Op
		at   func(x float64) float64
	}{
		{kernels.GELU{}, func(x float64) float64 { return 0.5 * x * (1 + math.Erf(x*float64(float32(1/math.Sqrt2)))) }},
		{kernels.GELU{Tanh: true}, func(x float64) float64 {
			return x * 0.5 * (1 + math.Tanh(root*(x+float64(float32(0.044715))*x*x*x)))
		}},
		{kernels.SiLU{}, func(x float64) float64 { return x / (1 + math.Exp(-x)) }},
		{nil, func(x float64) float64 { return x / (1 + math.Exp(-1.702*x)) }},
		{nil, func(x float64) float64 { return x }},
		{kernels.Pointwise{Of: kernels.Tanh}, math.Tanh},
		{kernels.Pointwise{Of: kernels.HardSwish}, func(x float64) float64 { return x * min(max(x+3, 0), 6) * float64(float32(1.0/6)) }},
		{nil, math.Sinh},
		{nil, func(x float64) float64 { return max(x, 0) }},
		{nil, func(float64) float64 { return math.NaN() }},
		{nil, func(x float64) float64 { return 1.001 * x / (1 + math.Exp(-x)) }},
	} {
		if got := curveOf(c.at).activation(); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	if k, is := linear(curveOf(func(x float64) float64 { return x / 8 }).at); !is || k != 0.125 {
		t.Errorf("%v, %v", k, is)
	}
	if _, is := linear(curveOf(func(x float64) float64 { return x/8 + 1e-3 }).at); is {
		t.Error("x/8 + 1/1000 is x times a number")
	}
}

// A constant is a causal mask where it is one number up to the diagonal, and one behind it.
func TestMasks(t *testing.T) {
	t.Parallel()
	bools := func(dims []int64, of ...byte) *Tensor { return &Tensor{Dims: dims, DType: Bool, Raw: of} }
	for _, c := range []struct {
		*Tensor
		want *mask
	}{
		{bools([]int64{2, 2}, 1, 0, 1, 1), &mask{2, 1, 0, nil}},
		{bools([]int64{1, 1, 3, 3}, 0, 1, 1, 0, 0, 1, 0, 0, 0), &mask{3, 0, 1, nil}},
		{bools([]int64{3, 3}, 0, 1, 1, 0, 0, 1, 0, 1, 0), nil},
		{bools([]int64{2, 2, 2}, 1, 0, 1, 1, 1, 0, 1, 1), nil},
		{bools([]int64{2, 3}, 1, 0, 1, 1, 1, 0), nil},
		{bools([]int64{4}, 1, 0, 1, 1), nil},
	} {
		got := c.mask()
		if (got == nil) != (c.want == nil) || got != nil && (got.n != c.want.n || got.low != c.want.low || got.high != c.want.high) {
			t.Errorf("%v: %+v, want %+v", c.Raw, got, c.want)
		}
	}
}
