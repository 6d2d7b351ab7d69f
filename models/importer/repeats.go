package importer

import (
	"errors"
	"fmt"
	"slices"
)

// tiled lays a constant beside itself along its axes.
func tiled(c *call) (*value, error) {
	x := c.at(0)
	if x == nil || x.numbers == nil {
		return nil, errNoConstant
	}
	times := c.listed("times", nil)
	own := x.dims
	for len(own) < len(times) {
		own = slices.Insert(slices.Clone(own), 0, 1)
	}
	if len(own) != len(times) || slices.ContainsFunc(times, func(n int) bool { return n < 1 || n > mostConstant }) {
		return nil, fmt.Errorf("a constant of %v is repeated %v times, want a number from 1 for each axis", x.dims, times)
	}
	dims := make([]int, len(own))
	for i, n := range own {
		dims[i] = n * times[i]
	}
	flat, at := constant{numbers: x.numbers, dims: own}, make([]int, len(own))
	return known(filled(dims, func(indices []int) float64 {
		for i, n := range own {
			at[i] = indices[i] % n
		}
		return flat.numbers[flat.at(at)]
	}))
}

// repeatedEach repeats each element of a constant along an axis.
func repeatedEach(c *call) (*value, error) {
	x, axis, times := c.at(0), c.int("axis", 0), c.int("times", 1)
	switch {
	case x == nil || x.numbers == nil:
		return nil, errNoConstant
	case axis < 0 || axis >= len(x.dims) || times < 1 || times > mostConstant:
		return nil, fmt.Errorf("each element of a constant of %v is repeated %d times along axis %d", x.dims, times, axis)
	}
	dims, at := slices.Clone(x.dims), make([]int, len(x.dims))
	dims[axis] *= times
	return known(filled(dims, func(indices []int) float64 {
		copy(at, indices)
		at[axis] /= times
		return x.numbers[x.at(at)]
	}))
}

// splitConstant cuts an axis of a constant; the outputs are its parts.
func splitConstant(c *call, x *constant) (*value, error) {
	sizes, err := c.constants(1, "split")
	axis := positive(c.int("axis", 0), len(x.dims))
	if err != nil || axis < 0 || axis >= len(x.dims) || len(sizes) != len(c.Out) {
		return nil, fmt.Errorf("axis %d of a constant of %v into %v: want %d parts: %w", axis, x.dims, sizes, len(c.Out), errors.Join(err))
	}
	var all []*value
	from := 0
	for _, size := range sizes {
		if size < 0 || from+size > x.dims[axis] {
			return nil, fmt.Errorf("axis %d of a constant of %v into %v", axis, x.dims, sizes)
		}
		part, err := x.part(axis, from, size)
		if err != nil {
			return nil, err
		}
		from += size
		all = append(all, &value{constant: part})
	}
	all[0].rest = all[1:]
	return all[0], nil
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

// gatherRange takes elements of an axis of a tensor that are equally far apart, by a list of their numbers.
func gatherRange(c *call, axis int, numbers []float64) (*value, error) {
	at, err := whole(numbers)
	if err != nil {
		return nil, err
	}
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	if axis = positive(axis, len(v.axes)); axis < 0 || axis >= len(v.axes) {
		return nil, fmt.Errorf("attribute axis is %d of %d axes", axis, len(v.axes))
	}
	n, step := v.shape()[axis], 1
	for i := range at {
		at[i] = positive(at[i], n)
	}
	if len(at) > 1 {
		step = at[1] - at[0]
	}
	for i, k := range at {
		if k != at[0]+i*step || step < 1 || k < 0 || k >= n {
			return nil, fmt.Errorf("elements %v of an axis of %d, and only those that are equally far apart, in their order, are supported", at[:min(len(at), 8)], n)
		}
	}
	if v, err = cut(c, v, axis, at[0], at[len(at)-1]-at[0]+1); err == nil && step > 1 {
		v, err = stepped(c, v, axis, step)
	}
	if err != nil {
		return nil, err
	}
	return c.seen(v), nil
}
