package importer

import (
	"fmt"
	"math"
	"slices"
)

// constant is a value that nodes compute with when the file is opened: shapes, scales, masks. It has numbers, or is a mask, or there
// is none.
type constant struct {
	numbers []float64
	dims    []int // of numbers; nil: a scalar
	mask    *mask
}

// mostConstant bounds the elements of a constant.
const mostConstant = 1 << 22

// filled makes a constant of a shape, element by element. The indices are good until f returns.
func filled(dims []int, f func(indices []int) float64) (constant, error) {
	n := 1
	for _, d := range dims {
		if d < 0 || d > mostConstant || n*d > mostConstant || len(dims) > MostAxes {
			return constant{}, fmt.Errorf("a constant of shape %v has more than %d elements or %d axes", dims, mostConstant, MostAxes)
		}
		n *= d
	}
	out, indices := constant{numbers: make([]float64, n), dims: dims}, make([]int, len(dims))
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
func (v *constant) at(indices []int) (i int) {
	skip := len(indices) - len(v.dims)
	for k, n := range v.dims {
		if i *= n; n > 1 {
			i += indices[skip+k]
		}
	}
	return i
}

// dense returns a constant with all its elements.
func (v *constant) dense() (constant, error) {
	if v.mask == nil {
		return *v, nil
	}
	return filled(v.mask.dims, func(indices []int) float64 {
		k := len(indices)
		return v.half(indices[k-1] > indices[k-2])
	})
}

// asMask returns a constant as a square matrix that is one number up to the diagonal and one behind it, in all others of its axes; nil: it
// is none.
func (v *constant) asMask() *mask {
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

// half is the value of a mask above the diagonal, or below; of a number, everywhere.
func (v *constant) half(high bool) float64 {
	switch {
	case v.mask == nil:
		return v.numbers[0]
	case high:
		return v.mask.high
	}
	return v.mask.low
}

// computed is a function of constants, element by element; extents of 1 are repeated, as PyTorch does.
func computed(all []constant, f func(v []float64) float64) (constant, error) {
	args := make([]float64, len(all))
	if m := oneMask(all); m != nil {
		return halves(*m, all, func(high bool) float64 {
			for k, v := range all {
				args[k] = v.half(high)
			}
			return f(args)
		})
	}
	var dims []int
	for i, v := range all {
		var err error
		if all[i], err = v.dense(); err != nil {
			return constant{}, err
		}
		if dims, err = broadcast(dims, all[i].dims); err != nil {
			return constant{}, err
		}
	}
	return filled(dims, func(indices []int) float64 {
		for k, v := range all {
			args[k] = v.numbers[v.at(indices)]
		}
		return f(args)
	})
}

// productOf multiplies matrices of constants, broadcast along their other axes.
func productOf(a, b constant) (constant, error) {
	var err error
	for _, x := range []*constant{&a, &b} {
		if *x, err = x.dense(); err != nil {
			return constant{}, err
		}
	}
	k, l := len(a.dims), len(b.dims)
	if k < 2 || l < 2 || a.dims[k-1] != b.dims[l-2] {
		return constant{}, fmt.Errorf("constants of %v and %v have no product of matrices", a.dims, b.dims)
	}
	dims, err := broadcast(a.dims[:k-2], b.dims[:l-2])
	if err != nil {
		return constant{}, err
	}
	n, row, column := len(dims), make([]int, len(dims)+2), make([]int, len(dims)+2)
	return filled(append(slices.Clone(dims), a.dims[k-2], b.dims[l-1]), func(indices []int) (sum float64) {
		copy(row, indices)
		copy(column, indices)
		for i := range a.dims[k-1] {
			row[n+1], column[n] = i, i
			sum += a.numbers[a.at(row)] * b.numbers[b.at(column)]
		}
		return sum
	})
}

// oneMask returns a mask of constants that are masks of its size and numbers; nil: there is none, or there are others.
func oneMask(all []constant) (m *mask) {
	for _, v := range all {
		switch {
		case v.mask == nil && len(v.numbers) != 1, v.mask != nil && m != nil && (v.mask.n != m.n || !slices.Equal(v.mask.dims, m.dims)):
			return nil
		case v.mask != nil:
			m = v.mask
		}
	}
	return m
}

// halves computes a mask from masks like m and numbers.
func halves(m mask, all []constant, f func(high bool) float64) (constant, error) {
	for _, v := range all {
		if v.mask == nil && len(v.dims) > len(m.dims) {
			return constant{}, fmt.Errorf("a mask of %v and a constant of %v", m.dims, v.dims)
		}
	}
	m.low, m.high = f(false), f(true)
	return constant{mask: &m}, nil
}

// joined puts constants one behind the other along an axis.
func joined(all []constant, axis int) (constant, error) {
	dims := slices.Clone(all[0].dims)
	if axis = positive(axis, len(dims)); axis < 0 || axis >= len(dims) {
		return constant{}, fmt.Errorf("axis %d of constants of %v", axis, dims)
	}
	var starts []int
	dims[axis] = 0
	for _, v := range all {
		if len(v.dims) != len(dims) {
			return constant{}, fmt.Errorf("constants of %v and %v", all[0].dims, v.dims)
		}
		for i, n := range v.dims {
			if i != axis && n != dims[i] {
				return constant{}, fmt.Errorf("constants of %v and %v", all[0].dims, v.dims)
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

// listed makes lists of one of numbers without axes, as symbols are.
func listed(all []constant) []constant {
	for i, v := range all {
		if len(v.dims) == 0 && len(v.numbers) == 1 {
			all[i].dims = []int{1}
		}
	}
	return all
}

// permuted returns a constant with its axes in another order.
func permuted(x *constant, perm []int) (constant, error) {
	dims := make([]int, len(perm))
	for i, p := range perm {
		if len(perm) != len(x.dims) || p < 0 || p >= len(perm) || slices.Contains(perm[:i], p) {
			return constant{}, fmt.Errorf("%v is no order of %d axes", perm, len(x.dims))
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

// picked takes indices out of an axis of a constant.
func picked(x, at *constant, axis int) (constant, error) {
	if axis = positive(axis, len(x.dims)); axis < 0 || axis >= len(x.dims) {
		return constant{}, fmt.Errorf("axis %d of %v", axis, x.dims)
	}
	n, k := x.dims[axis], len(at.dims)
	places, err := indicesOf(at, n)
	if err != nil {
		return constant{}, err
	}
	from := make([]int, len(x.dims))
	return filled(slices.Concat(x.dims[:axis], at.dims, x.dims[axis+1:]), func(indices []int) float64 {
		copy(from, indices[:axis])
		from[axis] = places[at.at(indices[axis:axis+k])]
		copy(from[axis+1:], indices[axis+k:])
		return x.numbers[x.at(from)]
	})
}

// indicesOf returns a constant as indices of an axis of n, from the front.
func indicesOf(at *constant, n int) ([]int, error) {
	all := make([]int, len(at.numbers))
	for i, v := range at.numbers {
		if k := positive(int(max(min(v, math.MaxInt32), -math.MaxInt32)), n); k >= 0 && k < n {
			all[i] = k
			continue
		}
		return nil, fmt.Errorf("there is no element %v of an axis of %d", v, n)
	}
	return all, nil
}

// repeated is a number in all places of a shape.
func repeated(x float64, shape []int) (constant, error) {
	n := 1
	for _, d := range shape {
		if d < 1 || d > MostBytes || n*d > MostBytes {
			return constant{}, fmt.Errorf("a shape of %v is not supported", shape)
		}
		n *= d
	}
	if m := square(shape, x, x); m != nil {
		return constant{mask: m}, nil
	}
	return filled(shape, func([]int) float64 { return x })
}

// keep puts the extents of a constant in the place of -1 in a shape that it is to have.
func keep(shape []int, x *constant) {
	dims := x.dims
	if x.mask != nil {
		dims = x.mask.dims
	}
	skip := len(shape) - len(dims)
	for i := max(skip, 0); i < len(shape); i++ {
		if shape[i] == -1 {
			shape[i] = dims[i-skip]
		}
	}
}

// truthOf is 1 of what is true, 0 of what is not.
func truthOf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// part returns n elements of an axis from one on.
func (v *constant) part(axis, from, n int) (constant, error) {
	dims, at := slices.Clone(v.dims), make([]int, len(v.dims))
	dims[axis] = n
	return filled(dims, func(indices []int) float64 {
		copy(at, indices)
		at[axis] += from
		return v.numbers[v.at(at)]
	})
}
