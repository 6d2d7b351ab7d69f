package importer

import (
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
