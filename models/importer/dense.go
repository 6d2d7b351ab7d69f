package importer

import (
	"fmt"
	"slices"
)

// Constants of any shape: what positions, masks and shapes are computed from.

// mostConstant bounds the elements of a constant.
const mostConstant = 1 << 18

// filled makes a constant of a shape, element by element. The indices are good until f returns.
func filled(dims []int, f func(indices []int) float64) (*value, error) {
	n := 1
	for _, d := range dims {
		if d < 0 || d > mostConstant || n*d > mostConstant || len(dims) > MostAxes {
			return nil, fmt.Errorf("a constant of shape %v has more than %d elements or %d axes", dims, mostConstant, MostAxes)
		}
		n *= d
	}
	out, indices := &value{numbers: make([]float64, n), dims: dims}, make([]int, len(dims))
	for i := range out.numbers {
		out.numbers[i] = f(indices)
		for k := len(dims) - 1; k >= 0; k-- {
			if indices[k]++; indices[k] < dims[k] {
				break
			}
			indices[k] = 0
		}
	}
	return out, nil
}

// at returns where a constant has the element of indices of a shape that it is broadcast to.
func (v *value) at(indices []int) (i int) {
	skip := len(indices) - len(v.dims)
	for k, n := range v.dims {
		if i *= n; n > 1 {
			i += indices[skip+k]
		}
	}
	return i
}

// broadcast returns the shape of what is computed from two, element by element.
func broadcast(a, b []int) ([]int, error) {
	if len(a) < len(b) {
		a, b = b, a
	}
	all, skip := slices.Clone(a), len(a)-len(b)
	for i, n := range b {
		switch have := a[skip+i]; {
		case have == 1:
			all[skip+i] = n
		case n != 1 && n != have:
			return nil, fmt.Errorf("constants of %v and %v", a, b)
		}
	}
	return all, nil
}

// dense returns a constant with all its elements.
func (v *value) dense() (*value, error) {
	if v.mask == nil {
		return v, nil
	}
	return filled(v.mask.dims, func(indices []int) float64 {
		k := len(indices)
		return v.half(indices[k-1] > indices[k-2])
	})
}

// asMask returns a constant as a square matrix that is one number up to the diagonal and one behind it, in all others of its axes; nil: it
// is none.
func (v *value) asMask() *mask {
	k := len(v.dims)
	if v.mask != nil || v.numbers == nil || k < 2 || v.dims[k-1] != v.dims[k-2] || v.dims[k-1] < 2 {
		return v.mask
	}
	n := v.dims[k-1]
	m := &mask{n, v.numbers[0], v.numbers[1], v.dims}
	for i, x := range v.numbers {
		want := m.low
		if i%n > i/n%n {
			want = m.high
		}
		if x != want {
			return nil
		}
	}
	return m
}

// joined puts constants one behind the other along an axis.
func joined(all []*value, axis int) (*value, error) {
	dims := slices.Clone(all[0].dims)
	if axis = positive(axis, len(dims)); axis < 0 || axis >= len(dims) {
		return nil, fmt.Errorf("axis %d of constants of %v", axis, dims)
	}
	var starts []int
	dims[axis] = 0
	for _, v := range all {
		if len(v.dims) != len(dims) {
			return nil, fmt.Errorf("constants of %v and %v", all[0].dims, v.dims)
		}
		for i, n := range v.dims {
			if i != axis && n != dims[i] {
				return nil, fmt.Errorf("constants of %v and %v", all[0].dims, v.dims)
			}
		}
		starts = append(starts, dims[axis])
		dims[axis] += v.dims[axis]
	}
	from := make([]int, len(dims))
	return filled(dims, func(indices []int) float64 {
		k := len(all) - 1
		for starts[k] > indices[axis] {
			k--
		}
		copy(from, indices)
		from[axis] -= starts[k]
		return all[k].numbers[all[k].at(from)]
	})
}

// permuted returns a constant with its axes in another order.
func permuted(x *value, perm []int) (*value, error) {
	dims := make([]int, len(perm))
	for i, p := range perm {
		if len(perm) != len(x.dims) || p < 0 || p >= len(perm) || slices.Contains(perm[:i], p) {
			return nil, fmt.Errorf("%v is no order of %d axes", perm, len(x.dims))
		}
		dims[i] = x.dims[p]
	}
	from := make([]int, len(perm))
	return filled(dims, func(indices []int) float64 {
		for i, p := range perm {
			from[p] = indices[i]
		}
		return x.numbers[x.at(from)]
	})
}

// cumSum adds up the elements along an axis.
func cumSum(c *call) (*value, error) {
	x := c.at(0)
	if x == nil || x.numbers == nil {
		return nil, errNoConstant
	}
	axis := positive(c.int("axis", 0), len(x.dims))
	if axis < 0 || axis >= len(x.dims) {
		return nil, fmt.Errorf("axis %d of %v", axis, x.dims)
	}
	stride := extents(x.dims[axis+1:])
	out := &value{numbers: slices.Clone(x.numbers), dims: x.dims}
	for i := range out.numbers {
		if i/stride%x.dims[axis] > 0 {
			out.numbers[i] += out.numbers[i-stride]
		}
	}
	return out, nil
}

// errNoConstant is the refusal of what is only computed when a file is opened.
var errNoConstant = fmt.Errorf("only of constants is supported")

// indexed takes elements out of a constant: the other inputs, broadcast to one shape, are the indices of its first axes.
func indexed(c *call) (*value, error) {
	all, constant := c.constantInputs(len(c.In))
	if !constant || len(all) < 2 || all[0].numbers == nil || len(all)-1 > len(all[0].dims) {
		return nil, errNoConstant
	}
	x, by := all[0], all[1:]
	var dims []int
	places := make([][]int, len(by))
	for i, at := range by {
		var err error
		if at.numbers == nil {
			return nil, errNoConstant
		}
		if dims, err = broadcast(dims, at.dims); err != nil {
			return nil, err
		}
		if places[i], err = indicesOf(at, x.dims[i]); err != nil {
			return nil, err
		}
	}
	k := len(dims)
	from := make([]int, len(x.dims))
	return filled(slices.Concat(dims, x.dims[len(by):]), func(indices []int) float64 {
		for i, at := range by {
			from[i] = places[i][at.at(indices[:k])]
		}
		copy(from[len(by):], indices[k:])
		return x.numbers[x.at(from)]
	})
}
