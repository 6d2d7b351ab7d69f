package torchexport

import "slices"

// Rules of ops that models of texts make masks, positions and norms with.
func init() {
	for op, rule := range map[string]func(c *call) string{
		"type_as": typeAs, "rsub": reverseDifference, "square": square, "abs": plain("Abs", "self"), "log": plain("Log", "self"),
		"reciprocal": plain("Reciprocal", "self"), "lift_fresh_copy": plain("constant", "self"), "detach_": plain("constant", "self"),
		"full_like": fullLike, "minimum": withOther("Min"),
	} {
		rules[op] = one(rule)
	}
	rules["torch.ops.aten.min.other"] = one(withOther("Min"))
	rules["where"] = one(where)
	rules["softmax"] = one(softmaxOf)
}

// typeAs is a conversion to the type of another tensor.
func typeAs(c *call) string {
	value, err := c.args["other"].name()
	c.ignore("other")
	if err != nil {
		c.fail("argument other: %w", err)
		return ""
	}
	m, err := c.meta(value)
	if err != nil {
		c.fail("argument other: %w", err)
		return ""
	}
	return c.emit("Cast", attributes{"to": number(int64(dtypes[m.DType]))}, c.tensor("self"))
}

// where chooses between tensors or numbers.
func where(c *call) string {
	return c.emit("Where", nil, c.tensor("condition"), c.operand("self"), c.operand("other"))
}

// reverseDifference is other - self.
func reverseDifference(c *call) string {
	c.scaledBy()
	return c.emit("Sub", nil, c.operand("other"), c.operand("self"))
}

func square(c *call) string { return c.emit("Pow", nil, c.tensor("self"), c.constant(2)) }

// softmaxOf is a softmax of float32.
func softmaxOf(c *call) string {
	c.refuseDType()
	return softmax(c)
}

// fullLike is a number in the shape of a constant.
func fullLike(c *call) string {
	c.constants()
	c.ignore("self")
	all := c.sizes("self")
	if slices.Contains(all, -1) {
		c.fail("argument self has an open extent, which is not supported")
	}
	return c.emit("Expand", nil, c.operand("fill_value"), c.list(all))
}
