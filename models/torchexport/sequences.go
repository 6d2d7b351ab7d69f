package torchexport

// Rules of ops on N,C,L, which are images one pixel high, and of what they share with images.
func init() {
	for op, rule := range map[string]func(c *call) string{
		"conv1d": conv1d, "max_pool1d": maxPool1d, "avg_pool1d": avgPool1d, "adaptive_avg_pool1d": adaptiveAvgPool1d, "glu": glu,
		"batch_norm": batchNorm,
	} {
		rules[op] = one(rule)
	}
	rules["torch.ops.aten.conv1d.padding"] = one(conv1dPadding)
}

// asImage makes a value N,C,L an image N,C,1,L.
func asImage(c *call, x string) string {
	return c.emit("Unsqueeze", attributes{"axes": numbers(2)}, x)
}

// asRow makes an image N,C,1,L a value N,C,L.
func asRow(c *call, x string) string {
	return c.emit("Squeeze", attributes{"axes": numbers(2)}, x)
}

// isRow refuses an argument that is no N,C,L, and reports whether it is one.
func isRow(c *call, name string) bool {
	if have := c.sizes(name); len(have) != 3 {
		c.fail("argument %s is %v, and only N,C,L is supported", name, have)
		return false
	}
	return true
}

func conv1d(c *call) string {
	return paddedConv1d(c, c.single("padding", 0))
}

// conv1dPadding is a convolution whose padding is a word.
func conv1dPadding(c *call) string {
	how, weight := c.text("padding", "valid"), c.sizes("weight")
	if how == "valid" {
		return paddedConv1d(c, 0)
	}
	if how != "same" || len(weight) != 3 {
		c.fail("padding %.40q of a weight of %v is not supported", how, weight)
		return ""
	}
	all := c.single("dilation", 1) * (weight[2] - 1)
	if all%2 != 0 {
		c.fail("padding 'same' of an even kernel is not the same at both ends, which is not supported")
	}
	return paddedConv1d(c, all/2)
}

func paddedConv1d(c *call, padding int64) string {
	weight := c.sizes("weight")
	if len(weight) != 3 || !isRow(c, "input") {
		c.fail("a weight of %v is not supported: want O,I,K", weight)
		return ""
	}
	a := attributes{
		"pads": numbers(0, padding, 0, padding), "strides": numbers(1, c.single("stride", 1)), "dilations": numbers(1, c.single("dilation", 1)),
		"group": number(c.int("groups", 1)),
	}
	w := c.emit("Reshape", attributes{"shape": numbers(weight[0], weight[1], 1, weight[2])}, c.tensor("weight"))
	return asRow(c, c.emit("Conv", a, asImage(c, c.tensor("input")), w, c.tensor("bias")))
}

// window1d returns the attributes of a pool along the last axis.
func window1d(c *call) attributes {
	kernel, padding := c.single("kernel_size", 0), c.single("padding", 0)
	return attributes{
		"kernel_shape": numbers(1, kernel), "strides": numbers(1, c.single("stride", kernel)), "pads": numbers(0, padding, 0, padding),
		"ceil_mode": flag(c.bool("ceil_mode", false)),
	}
}

func maxPool1d(c *call) string {
	a := window1d(c)
	a["dilations"] = numbers(1, c.single("dilation", 1))
	if !isRow(c, "self") {
		return ""
	}
	return asRow(c, c.emit("MaxPool", a, asImage(c, c.tensor("self"))))
}

func avgPool1d(c *call) string {
	a := window1d(c)
	a["count_include_pad"] = flag(c.bool("count_include_pad", true))
	if !isRow(c, "self") {
		return ""
	}
	return asRow(c, c.emit("AveragePool", a, asImage(c, c.tensor("self"))))
}

func adaptiveAvgPool1d(c *call) string {
	a := attributes{"output_size": numbers(1, c.single("output_size", 0))}
	if !isRow(c, "self") {
		return ""
	}
	return asRow(c, c.emit("adaptive_avg_pool", a, asImage(c, c.tensor("self"))))
}

// glu is the first half of an axis times the sigmoid of the second.
func glu(c *call) string {
	axis, have := c.axis(c.int("dim", -1)), c.sizes("self")
	if axis >= int64(len(have)) || have[axis] < 2 || have[axis]%2 != 0 {
		c.fail("axis %d of %v has no two halves of a constant size", axis, have)
		return ""
	}
	half := have[axis] / 2
	all := c.emitAll(2, "Split", attributes{"axis": number(axis), "split": numbers(half, half)}, c.tensor("self"))
	return c.emit("Mul", nil, all[0], c.emit("Sigmoid", nil, all[1]))
}

// single returns the number of a list of one; of an empty list, and where it is left out, what is open.
func (c *call) single(name string, open int64) int64 {
	all := c.ints(name)
	switch len(all) {
	case 0:
		return open
	case 1:
		return all[0]
	}
	c.fail("argument %s is %v, want one number", name, all)
	return open
}

// batchNorm is of images, of N,C, or of N,C,L.
func batchNorm(c *call) string {
	c.ignore("cudnn_enabled")
	x, row := c.tensor("input"), len(c.sizes("input")) == 3
	if row {
		x = asImage(c, x)
	}
	in := []string{x}
	for _, name := range []string{"weight", "bias", "running_mean", "running_var"} {
		if in = append(in, c.tensor(name)); in[len(in)-1] == "" {
			c.fail("it has no %s, which is not supported: want affine=True and track_running_stats=True", name)
		}
	}
	y := c.emit("batch_norm", attributes{"epsilon": decimal(c.float("eps", 1e-5)), "momentum": decimal(c.float("momentum", 0.1)), "frozen": flag(!c.bool("training", false))}, in...)
	if row {
		y = asRow(c, y)
	}
	return y
}
