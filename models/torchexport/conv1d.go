package torchexport

// conv1d is a convolution of images one pixel high.
func conv1d(c *call) string {
	weight := c.sizes("weight")
	stride, padding, dilation := c.single("stride", 1), c.single("padding", 0), c.single("dilation", 1)
	if len(weight) != 3 || len(c.sizes("input")) != 3 {
		c.fail("a weight of %v and an input of %v are not supported: want O,I,K and N,I,L", weight, c.sizes("input"))
		return ""
	}
	a := attributes{
		"pads": numbers(0, padding, 0, padding), "strides": numbers(1, stride), "dilations": numbers(1, dilation), "group": number(c.int("groups", 1)),
	}
	x := c.emit("Unsqueeze", attributes{"axes": numbers(2)}, c.tensor("input"))
	w := c.emit("Reshape", attributes{"shape": numbers(weight[0], weight[1], 1, weight[2])}, c.tensor("weight"))
	return c.emit("Squeeze", attributes{"axes": numbers(2)}, c.emit("Conv", a, x, w, c.tensor("bias")))
}

// single returns the number of a list of one.
func (c *call) single(name string, open int64) int64 {
	if _, given := c.argument(name); !given {
		return open
	}
	all := c.ints(name)
	if len(all) != 1 {
		c.fail("argument %s is %v, want one number", name, all)
		return open
	}
	return all[0]
}
