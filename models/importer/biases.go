package importer

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// joinedVectors returns inputs that are vectors, some of them parameters and the others zeros, as a bias of parts; nil: they are something
// else.
func joinedVectors(c *call) *value {
	var all pieces
	n, trains := 0, false
	for i := range c.In {
		x := c.at(i)
		switch {
		case x == nil:
			return nil
		case x.tensor != nil && x.tensor.Trains && len(x.tensor.Dims) == 1:
			from, err := c.param(i, asIs)
			if err != nil || from.layout != asIs {
				return nil
			}
			all, trains = append(all, piece{from, int(x.tensor.Dims[0])}), true
		case x.numbers != nil && len(x.dims) == 1 && !slices.ContainsFunc(x.numbers, func(v float64) bool { return v != 0 }):
			all = append(all, piece{n: len(x.numbers)})
		case x.tensor != nil && x.tensor.DType == Float32 && len(x.tensor.Dims) == 1 && x.tensor.zeros():
			all = append(all, piece{n: int(x.tensor.Dims[0])})
		default:
			return nil
		}
		n += all[i].n
	}
	if !trains {
		return nil
	}
	return &value{addends: addends{pieces: all}, from: c.Node}
}

// zeros reports whether all elements of a tensor of float32 that was checked are 0.
func (t *Tensor) zeros() bool {
	for i := range len(t.Raw) / 4 {
		if t.Float(i) != 0 {
			return false
		}
	}
	return true
}

// addPieces adds a bias of parts to the last axis of a tensor.
func addPieces(c *call, y *value, all pieces) (*value, error) {
	n := 0
	for _, p := range all {
		n += p.n
	}
	shape := y.step.desc.Shape
	if n != last(shape) {
		return nil, fmt.Errorf("a bias of %d elements, in %d parts, is added to rows of %d", n, len(all), last(shape))
	}
	var parts []*value
	from, axis := 0, len(shape)-1
	if len(shape) == 4 {
		axis = 1 // N,C,H,W in PyTorch
	}
	for _, p := range all {
		v := viewOfValue(y)
		part, err := v.slice(axis, from, p.n)
		if err != nil {
			return nil, err
		}
		from += p.n
		x, err := c.arranged(c.Node, part)
		if err != nil {
			return nil, err
		}
		if p.tensor != nil {
			if x, err = c.push(c.Node, kernels.Bias{Axes: 1}, asImage, []source{p.source}, x); err != nil {
				return nil, err
			}
		}
		parts = append(parts, x)
	}
	return c.push(c.Node, kernels.Concat{}, asImage, nil, parts...)
}
