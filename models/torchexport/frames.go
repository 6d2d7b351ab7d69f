package torchexport

import (
	"strings"
)

// pad adds zeros at the ends of axes, from the last one on, or what is at their other ends.
func pad(c *call) string {
	mode, all, axes := c.text("mode", "constant"), c.ints("pad"), c.rank()
	if v := c.float("value", 0); v != 0 && mode == "constant" {
		c.fail("argument value is %v, and only zeros are supported", v)
	}
	if mode != "constant" && mode != "circular" || len(all)%2 != 0 || int64(len(all)) > 2*axes {
		c.fail("argument mode is %.40q and pad %v of %d axes, and only constant and circular pads are supported", mode, all, axes)
		return ""
	}
	ahead, behind := make([]int64, axes), make([]int64, axes)
	moves := false
	for i := range len(all) / 2 {
		ahead[axes-1-int64(i)], behind[axes-1-int64(i)] = all[2*i], all[2*i+1]
		moves = moves || all[2*i] != 0 || all[2*i+1] != 0
	}
	if !moves {
		return c.tensor("self")
	}
	return c.framed(mode == "circular", ahead, behind)
}

// framed emits a pad of each axis.
func (c *call) framed(circular bool, ahead, behind []int64) string {
	a := attributes{"circular": flag(circular), "ahead": numbers(ahead...), "behind": numbers(behind...)}
	return c.emit("pad", a, c.tensor("self"))
}

// roll moves elements along axes; those beyond the end come in at the other one.
func roll(c *call) string {
	shifts, dims, have := c.ints("shifts"), c.ints("dims"), c.sizes("self")
	if len(shifts) != len(dims) || c.err != nil {
		c.fail("argument shifts is %v and dims %v, and only one of each axis is supported", shifts, dims)
		return ""
	}
	ahead, behind := make([]int64, len(have)), make([]int64, len(have))
	for i, d := range dims {
		axis := c.axis(d)
		if c.err != nil || have[axis] < 1 {
			c.fail("argument dims has axis %d, whose extent is open", axis)
			return ""
		}
		ahead[axis] += shifts[i]
		ahead[axis] = (ahead[axis]%have[axis] + have[axis]) % have[axis]
		behind[axis] = -ahead[axis]
	}
	return c.framed(true, ahead, behind)
}

// upsampled emits a resize of an image.
func upsampled(nearest bool) func(c *call) string {
	return func(c *call) string {
		corners, kind := false, flag(nearest)
		if !nearest {
			corners = c.bool("align_corners", false)
		}
		a := attributes{"nearest": kind, "align_corners": flag(corners)}
		size := c.ints("output_size")
		if len(size) == 0 {
			size = c.ints("size")
		}
		out, err := c.extents(c.node.outputs()[0])
		switch {
		case err != nil:
			c.fail("%w", err)
			return ""
		case len(out) != 4 || out[2] < 1 || out[3] < 1:
			c.fail("its output is %v, no image of a constant size", out)
			return ""
		}
		a["output_size"] = numbers(out[2], out[3])
		if len(size) > 0 {
			c.ignore("scale_factors", "scales_h", "scales_w")
		} else {
			factors := c.floats("scale_factors")
			if len(factors) != 2 || !(factors[0] > 0 && factors[1] > 0) {
				c.fail("argument scale_factors is %v, want two positive numbers", factors)
				return ""
			}
			a["ratio_h"], a["ratio_w"] = decimal(1/factors[0]), decimal(1/factors[1])
		}
		return c.emit("resize", a, c.tensor(c.first("input", "self")))
	}
}

// first returns the first of some names that the node has an argument of.
func (c *call) first(names ...string) string {
	for _, name := range names {
		if _, given := c.args[name]; given {
			return name
		}
	}
	return names[0]
}

// floats returns a list of numbers.
func (c *call) floats(name string) []float64 {
	var all list[float64]
	c.decode(name, &all, "as_floats")
	return all
}

// einsum is a product of matrices, other axes of which are the same in all: bhid,bhjd->bhij.
func einsum(c *call) string {
	equation := strings.ReplaceAll(c.text("equation", ""), " ", "")
	c.ignore("path")
	a, given := c.argument("tensors")
	values := a.list()
	left, out, is := strings.Cut(equation, "->")
	x, y, two := strings.Cut(left, ",")
	k := len(out) - 2
	if !given || !is || !two || len(values) != 2 || k < 0 || len(x) != k+2 || len(y) != k+2 || x[:k] != out[:k] || y[:k] != out[:k] || strings.Contains(equation, ".") {
		c.fail("equation %.60q is no product of two matrices, which alone is supported", equation)
		return ""
	}
	i, j := out[k:k+1], out[k+1:]
	inner, isX := without(x[k:], i)
	other, isY := without(y[k:], j)
	if !isX || !isY || inner != other || inner == i || inner == j || i == j || strings.ContainsAny(out[:k], i+j+inner) {
		c.fail("equation %.60q is no product of two matrices, which alone is supported", equation)
		return ""
	}
	first, second := c.names[values[0]], c.names[values[1]]
	if x[k:] != i+inner {
		first = c.matrixFlipped(first, k)
	}
	if y[k:] != inner+j {
		second = c.matrixFlipped(second, k)
	}
	return c.emit("MatMul", nil, first, second)
}

// without returns the other one of two letters; false: the given one is not among them.
func without(letters, one string) (string, bool) {
	rest := strings.Replace(letters, one, "", 1)
	return rest, len(rest) == 1
}

// matrixFlipped exchanges the last two axes behind k others.
func (c *call) matrixFlipped(x string, k int) string {
	order := make([]int64, k+2)
	for i := range order {
		order[i] = int64(i)
	}
	order[k], order[k+1] = order[k+1], order[k]
	return c.emit("Transpose", attributes{"perm": numbers(order...)}, x)
}

// fill writes a number to all of a value. Where that is a part of another one, by slices, this one is made anew with the part in its place.
func fill(open bool) func(c *call) string {
	return func(c *call) string {
		c.ignore("self")
		value, err := c.args["self"].name()
		root := c.aliases.root[value]
		if err != nil || c.stored[root] != "" || c.isInput(root) {
			c.fail("it changes a tensor of the archive, or the model's input, which is not supported")
			return ""
		}
		number := c.constant(0)
		if open {
			number = c.operand("value")
		}
		have := c.sizes("self")
		part := c.emit("Expand", nil, number, c.list(have))
		filled := part
		for value != root {
			cut, is := c.cuts[value]
			if !is {
				c.fail("it changes a part of a tensor that is no slice, which is not supported")
				return ""
			}
			part = c.emit("put", attributes{"axis": numbers(cut.axis)}, c.names[cut.of], part, cut.from, cut.to)
			value = cut.of
		}
		c.names[root], c.remade = part, root
		return filled
	}
}

// isInput reports whether a value is one that the user gives.
func (l *lowering) isInput(value string) bool {
	for _, in := range l.to.Inputs {
		if l.names[value] == in.Name {
			return true
		}
	}
	return false
}

// noteCut keeps how a slice was taken, for a change of it.
func (c *call) noteCut(axis int64, from, to string) {
	value, err := c.args["self"].name()
	if outputs := c.node.outputs(); err == nil && len(outputs) == 1 && c.int("step", 1) == 1 {
		c.cuts[outputs[0]] = cutout{value, axis, from, to}
	}
}
