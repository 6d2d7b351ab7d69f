package importer

import (
	"fmt"

	"plimsoll/kernels"
)

// layerNorm is of the last axis.
func layerNorm(c *call) (*value, error) {
	if axis := c.int("axis", -1); axis != -1 && c.at(0) != nil && axis != len(c.at(0).shape)-1 {
		return nil, fmt.Errorf("attribute axis is %d of %v, and only the last, of a matrix or a sequence, is supported", axis, c.at(0).shape)
	}
	return c.rowNorm(kernels.LayerNorm{Epsilon: c.epsilon()}, 2)
}

// rmsNorm is of the last axis.
func rmsNorm(c *call) (*value, error) {
	return c.rowNorm(kernels.RMSNorm{Epsilon: c.epsilon()}, 1)
}

func (c *call) epsilon() float32 {
	epsilon := c.float("epsilon", 1e-5)
	if !(epsilon > 0) {
		c.fail("attribute epsilon is %v, and only positive numbers are supported", epsilon)
	}
	return epsilon
}

// rowNorm is a norm of each row of the last axis, of a matrix or a sequence, with so many parameters.
func (c *call) rowNorm(op kernels.Op, parameters int) (*value, error) {
	x, seen, err := c.rows(2, 3)
	if err != nil {
		return nil, err
	}
	var sources []source
	for i := range parameters {
		s, err := c.param(1+i, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	y, err := c.push(c.Node, op, as(x), sources, x)
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}
