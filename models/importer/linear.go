package importer

import (
	"fmt"

	"plimsoll/kernels"
)

func gemm(c *call) (*value, error) {
	x, seen, err := c.rows(2)
	if err != nil {
		return nil, err
	}
	c.only("transA", 0)
	if alpha, beta := c.float("alpha", 1), c.float("beta", 1); alpha != 1 || beta != 1 {
		c.fail("attributes alpha and beta are %v and %v, and only 1 is supported", alpha, beta)
	}
	l := transposed
	if c.int("transB", 0) != 0 {
		l = asIs
	}
	y, err := c.linear(x, l, c.at(2) != nil)
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}

// matMul is of a tensor and an initializer, or a part of attention.
func matMul(c *call) (*value, error) {
	if all, are := c.constantInputs(2); are {
		return known(productOf(all[0], all[1]))
	}
	if y := c.at(1); y != nil && y.shape != nil {
		return headProduct(c)
	}
	x, seen, err := c.rows(2, 3)
	if err != nil {
		return nil, err
	}
	y, err := c.linear(x, transposed, false)
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}

// linearOf is of rows, with a weight as a Linear has it.
func linearOf(c *call) (*value, error) {
	x, seen, err := c.rows(2, 3)
	if err != nil {
		return nil, err
	}
	var parts pieces
	if bias := c.at(2); bias != nil {
		parts = bias.pieces
	}
	y, err := c.linear(x, asIs, c.at(2) != nil && parts == nil)
	if err == nil && parts != nil {
		y, err = addPieces(c, y, parts)
	}
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}

// linear is x W^T + b with the node's inputs 1 and 2.
func (c *call) linear(x *value, l layout, biased bool) (*value, error) {
	weight, err := c.param(1, l)
	if err != nil {
		return nil, err
	}
	if len(weight.tensor.Dims) != 2 {
		return nil, fmt.Errorf("weight %q is of shape %v, want 2 axes", weight.name, weight.tensor.Dims)
	}
	out := weight.tensor.Dims[0]
	if weight.layout == transposed {
		out = weight.tensor.Dims[1]
	}
	sources := []source{weight}
	if biased {
		bias, err := c.param(2, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, bias)
	}
	return c.push(c.Node, kernels.Linear{Out: int(out), Bias: biased, LastAxis: len(x.step.desc.Shape) > 2}, asImage, sources, x)
}

// bias adds an initializer, input i, to the Linear that input j is; false: they are something else.
func (c *call) bias(i, j int) (v *value, is bool, err error) {
	b, x := c.at(i), c.at(j)
	s := x.base()
	if b == nil || s == nil || b.tensor == nil || len(b.tensor.Dims) != 1 {
		return nil, false, nil
	}
	op, is := s.op.(kernels.Linear)
	switch alone := is && s.reads == 1 && x.hasRows(); {
	case !is || op.Bias || !alone && isNumber(b):
		return nil, false, nil
	case !alone:
		return nil, true, fmt.Errorf("%q is added to %v of a linear layer: only along the layer's last axis, where nothing else reads its output, is supported",
			c.In[i], x.shape)
	}
	from, err := c.param(i, asIs)
	if err != nil {
		return nil, true, err
	}
	op.Bias = true
	return x, true, c.widen(s, op, from)
}
