package models

import (
	"fmt"

	"plimsoll/kernels"
)

// carry is the activation between two layers of a model with skips. It has the tensor that the next layer works on and,
// after it, the skips past that layer, in the order in which they are wanted. Several tensors are packed as one
// (kernels.Pack); one alone is the activation itself. Every layer copies what it carries, as in torchgpipe's models
// without portals (Kim et al. 2020, section 3.3): a chain knows no other way past a layer.
type carry struct {
	parts []kernels.Shape // of a sample: H, W, C
}

// take returns the first n parts of a layer's input, and the others as one value, if there are any.
func (c *carry) take(g *Graph, x Value, n int) (parts, rest []Value) {
	if len(c.parts) < 2 {
		c.parts = nil
		return []Value{x}, nil
	}
	from := 0
	for i, s := range c.parts[:n] {
		parts = append(parts, g.Op(fmt.Sprintf("part%d", i), kernels.Slice{From: from, H: s[0], W: s[1], C: s[2]}, x))
		from += s[0] * s[1] * s[2]
	}
	if c.parts = c.parts[n:]; len(c.parts) > 0 {
		rest = []Value{g.Op("rest", kernels.Slice{From: from, H: 1, W: 1, C: g.Channels(x) - from}, x)}
	}
	return parts, rest
}

// put returns a layer's output: parts, and behind them the rest that take returned.
func (c *carry) put(g *Graph, parts, rest []Value) Value {
	var shapes []kernels.Shape
	for _, v := range parts {
		shapes = append(shapes, g.layer.Desc(v).Shape[1:])
	}
	c.parts = append(shapes, c.parts...)
	if all := append(parts, rest...); len(all) > 1 {
		return g.Op("pack", kernels.Pack{}, all...)
	}
	return parts[0]
}
