package torchexport

import "strings"

// Rules of norms of groups, transposed convolutions, functions of single numbers, and what is written by other ops.
func init() {
	for op, rule := range map[string]func(c *call) string{
		"group_norm": groupNorm, "instance_norm": instanceNorm, "conv_transpose2d": convTranspose,
		"leaky_relu": parametric("leaky_relu", "negative_slope", 0.01), "elu": elu, "selu": selu,
		"softplus": softplus, "mish": plain("mish", "self"), "log_sigmoid": logSigmoid,
		"clamp": clamp, "clamp_min": clampMin, "clamp_max": clampMax,
		"sum": total, "var": variance, "std": deviation, "linalg_vector_norm": vectorNorm, "norm": vectorNorm,
		"expand_as": expandAs,
	} {
		rules[op] = one(rule)
	}
	for _, op := range strings.Fields("leaky_relu elu selu mish sigmoid tanh clamp clamp_min clamp_max") {
		rules[op+"_"] = rules[op]
	}
}

// epsilon is the epsilon of a norm.
func (c *call) epsilon() attributes { return attributes{"epsilon": decimal(c.float("eps", 1e-5))} }

func groupNorm(c *call) string {
	c.ignore("cudnn_enabled")
	a := c.epsilon()
	groups := c.int("num_groups", 0)
	if groups < 1 {
		c.fail("argument num_groups is %d: want 1 or more", groups)
	}
	a["groups"] = number(groups)
	return c.emit("group_norm", a, c.tensor("input"), c.tensor("weight"), c.tensor("bias"))
}

// instanceNorm is of each channel of a sample.
func instanceNorm(c *call) string {
	c.ignore("cudnn_enabled", "momentum")
	if c.tensor("running_mean") != "" || c.tensor("running_var") != "" || !c.bool("use_input_stats", true) {
		c.fail("it has running statistics, which is not supported: want track_running_stats=False")
	}
	a := c.epsilon()
	a["groups"] = number(0)
	return c.emit("group_norm", a, c.tensor("input"), c.tensor("weight"), c.tensor("bias"))
}

func convTranspose(c *call) string {
	p, stride, extra := c.pair("padding", 0, 0), c.pair("stride", 1, 1), c.pair("output_padding", 0, 0)
	if extra[0] >= stride[0] || extra[1] >= stride[1] {
		c.fail("argument output_padding is %v with a stride of %v, and only less than the stride is supported", extra, stride)
	}
	a := attributes{
		"pads": numbers(p[0], p[1], p[0], p[1]), "strides": numbers(stride...), "dilations": numbers(c.pair("dilation", 1, 1)...),
		"extra": numbers(extra...), "group": number(c.int("groups", 1)),
	}
	return c.emit("conv_transpose", a, c.tensor("input"), c.tensor("weight"), c.tensor("bias"))
}

// parametric is a function that one number belongs to.
func parametric(op, name string, open float64) func(c *call) string {
	return func(c *call) string {
		return c.emit(op, attributes{"by": decimal(c.float(name, open))}, c.tensor("self"))
	}
}

func elu(c *call) string {
	if scale, in := c.float("scale", 1), c.float("input_scale", 1); scale != 1 || in != 1 {
		c.fail("arguments scale and input_scale are %v and %v, and only 1 is supported", scale, in)
	}
	return parametric("elu", "alpha", 1)(c)
}

// selu is a multiple of an elu, with PyTorch's constants.
func selu(c *call) string {
	const alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
	return c.emit("Mul", nil, c.emit("elu", attributes{"by": decimal(alpha)}, c.tensor("self")), c.constant(scale))
}

func softplus(c *call) string {
	if beta, threshold := c.float("beta", 1), c.float("threshold", 20); beta != 1 || threshold < 15 {
		c.fail("arguments beta and threshold are %v and %v, and only 1 and from 15 on are supported", beta, threshold)
	}
	return c.emit("softplus", nil, c.tensor("self"))
}

// logSigmoid is -softplus(-x).
func logSigmoid(c *call) string {
	return c.emit("Neg", nil, c.emit("softplus", nil, c.emit("Neg", nil, c.tensor("self"))))
}

// bound returns the name of a number that bounds a tensor; "": there is none.
func (c *call) bound(name string) string {
	if _, given := c.argument(name); !given {
		return ""
	}
	return c.operand(name)
}

func clamp(c *call) string {
	return c.emit("Clip", nil, c.tensor("self"), c.bound("min"), c.bound("max"))
}

func clampMin(c *call) string { return c.emit("Clip", nil, c.tensor("self"), c.bound("min")) }

func clampMax(c *call) string { return c.emit("Clip", nil, c.tensor("self"), "", c.bound("max")) }

// reduced returns the attributes of a reduction of axes; of all, where none is named.
func (c *call) reduced() attributes {
	axes := c.ints("dim")
	for i := int64(0); len(axes) == 0 && i < c.rank(); i++ {
		axes = append(axes, i)
	}
	return attributes{"axes": numbers(axes...), "keepdims": flag(c.bool("keepdim", false))}
}

func total(c *call) string {
	c.refuseDType()
	c.refuseWhole("sum")
	return c.emit("ReduceSum", c.reduced(), c.tensor("self"))
}

// variance is the mean square of what is left of a tensor less its mean, corrected.
func variance(c *call) string {
	correction := 1.0
	if _, given := c.argument("correction"); given {
		correction = c.float("correction", 1)
	} else if !c.bool("unbiased", true) {
		correction = 0
	}
	a, sizes, n := c.reduced(), c.sizes("self"), 1.0
	for _, axis := range a["axes"].Ints {
		if axis = c.axis(axis); int(axis) < len(sizes) {
			n *= float64(sizes[axis])
		}
	}
	if !(n > correction) {
		c.fail("of %v elements with a correction of %v, which is not supported", n, correction)
	}
	x := c.tensor("self")
	mean := c.emit("ReduceMean", attributes{"axes": a["axes"], "keepdims": flag(true)}, x)
	off := c.emit("Sub", nil, x, mean)
	return c.emit("Mul", nil, c.emit("ReduceMean", a, c.emit("Pow", nil, off, c.constant(2))), c.constant(n/(n-correction)))
}

// deviation is the root of the variance.
func deviation(c *call) string { return c.root(variance(c)) }

// root is the square root of sums of squares, of the least normal number at least. PyTorch's gradient of a norm of zero is 0, and so is that of
// the bound; the slope of a root would be infinite.
func (c *call) root(squares string) string {
	return c.emit("Sqrt", nil, c.emit("Clip", nil, squares, c.constant(0x1p-126)))
}

// vectorNorm is the root of a sum of squares.
func vectorNorm(c *call) string {
	c.refuseDType()
	for _, name := range []string{"ord", "p"} { // as the old norm and the new one call it
		if order := c.float(name, 2); order != 2 {
			c.fail("argument %s is %v, and only 2 is supported", name, order)
		}
	}
	return c.root(c.emit("ReduceSum", c.reduced(), c.emit("Pow", nil, c.tensor("self"), c.constant(2))))
}

// expandAs repeats axes of 1 as those of another tensor.
func expandAs(c *call) string {
	x := c.tensor("self")
	return c.emit("Expand", nil, x, c.emit("Shape", nil, c.tensor("other")))
}
