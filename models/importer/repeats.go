package importer

import (
	"fmt"
	"slices"
)

// tiled lays a constant, or a tensor, beside itself along its axes.
func tiled(c *call) (*value, error) {
	x, times := c.at(0), c.listed("times", nil)
	switch {
	case x != nil && x.shape != nil:
		return tiledView(c, times)
	case x == nil || x.numbers == nil:
		return nil, errNoConstant
	}
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

// tiledView lays a tensor beside itself along axes of a sample.
func tiledView(c *call, times []int) (*value, error) {
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	if len(times) != len(v.axes) || times[0] != 1 || slices.ContainsFunc(times, func(n int) bool { return n < 1 || n > MostBytes }) {
		return nil, fmt.Errorf("a tensor of %v is repeated %v times, and only along axes of a sample is supported", v.shape(), times)
	}
	for i, n := range times {
		if n > 1 {
			v.axes[i] = slices.Concat([]loop{{n, 0}}, v.axes[i])
		}
	}
	return c.seen(v), nil
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
