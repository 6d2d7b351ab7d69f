package torchexport

import (
	"encoding/json"

	"plimsoll/models/importer"
)

func init() {
	for op, rule := range map[string]func(c *call) string{
		"baddbmm": baddbmm, "stack": stack, "repeat": repeat, "repeat_interleave": repeatInterleave, "reshape_as": reshapeAs, "view_as": reshapeAs,
		"numpy_T": numpyT, "index": indexOfAxes,
	} {
		rules[op] = one(rule)
	}
}

// stack joins tensors along an axis of its own.
func stack(c *call) string {
	a, given := c.argument("tensors")
	if !given || a.kind != "as_tensors" || len(a.list()) == 0 {
		c.fail("argument tensors is no list of tensors")
		return ""
	}
	all, err := c.extents(a.list()[0])
	if err != nil {
		c.fail("argument tensors: %w", err)
		return ""
	}
	axis := c.int("dim", 0)
	if axis < 0 {
		axis += int64(len(all)) + 1
	}
	var in []string
	for _, value := range a.list() {
		in = append(in, c.emit("Unsqueeze", attributes{"axes": numbers(axis)}, c.names[value]))
	}
	return c.emit("Concat", attributes{"axis": number(axis)}, in...)
}

// repeat lays a tensor beside itself along its axes, of which there may be more ahead.
func repeat(c *call) string {
	return c.emit("tile", attributes{"times": numbers(c.ints("repeats")...)}, c.tensor("self"))
}

// repeatInterleave repeats each element along an axis.
func repeatInterleave(c *call) string {
	c.ignore("output_size")
	if _, given := c.argument("dim"); !given {
		c.fail("argument dim is left out, which is not supported")
	}
	return c.emit("repeat_each", attributes{"axis": number(c.axis(c.int("dim", 0))), "times": number(c.int("repeats", 1))}, c.tensor("self"))
}

// baddbmm is beta * self + alpha * batch1 batch2, the products of matrices.
func baddbmm(c *call) string {
	beta, alpha := c.float("beta", 1), c.float("alpha", 1)
	x := c.emit("MatMul", nil, c.tensor("batch1"), c.tensor("batch2"))
	if alpha != 1 {
		x = c.emit("Mul", nil, x, c.constant(alpha))
	}
	plus := c.tensor("self")
	switch beta {
	case 0:
		return x
	case 1:
	default:
		plus = c.emit("Mul", nil, plus, c.constant(beta))
	}
	return c.emit("Add", nil, plus, x)
}

// reshapeAs gives a tensor the shape of another one.
func reshapeAs(c *call) string {
	return c.emit("Reshape", nil, c.tensor("self"), c.emit("Shape", nil, c.tensor("other")))
}

// numpyT exchanges the axes of a matrix.
func numpyT(c *call) string {
	if c.rank() > 2 {
		c.fail("of %d axes is not supported: want a matrix", c.rank())
	}
	return matrixTransposed(c)
}

// indexOfAxes takes elements of the first axes, or of one.
func indexOfAxes(c *call) string {
	if a, given := c.argument("indices"); given && a.kind == "as_optional_tensors" {
		return c.indexOfAxis(a)
	}
	return index(c)
}

// indexOfAxis takes elements of one axis by a tensor of integers.
func (c *call) indexOfAxis(a argument) string {
	var several list[argument]
	if err := json.Unmarshal(a.raw, &several); err != nil {
		c.fail("argument indices: %w", err)
	}
	axis, at := -1, ""
	for i, one := range several {
		if one.kind == "as_none" {
			continue
		}
		name, err := one.name()
		if err != nil || axis >= 0 {
			c.fail("argument indices has several tensors and leaves out axes, which is not supported")
			return ""
		}
		axis, at = i, name
	}
	m, err := c.meta(at)
	if axis < 0 || err != nil || dtypes[m.DType] != importer.Int64 && dtypes[m.DType] != importer.Int32 || c.names[at] == "" {
		c.fail("argument indices has %.100q, which is no tensor of integers", at)
		return ""
	}
	return c.emit("Gather", attributes{"axis": number(int64(axis))}, c.tensor("self"), c.names[at])
}
