package importer

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// imageAndWeight returns the first two inputs of a convolution.
func imageAndWeight(c *call) (x *value, weight source, err error) {
	if x, err = c.tensor(0, 4); err != nil {
		return nil, weight, err
	}
	if weight, err = c.param(1, channels1); err != nil {
		return nil, weight, err
	}
	if len(weight.tensor.Dims) != 4 {
		err = fmt.Errorf("weight %q is of shape %v, want 4 axes", weight.name, weight.tensor.Dims)
	}
	return x, weight, err
}

func conv(c *call) (*value, error) {
	x, weight, err := imageAndWeight(c)
	if err != nil {
		return nil, err
	}
	sources := []source{weight}
	if c.at(2) != nil {
		bias, err := c.param(2, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, bias)
	}
	kernel := []int{int(weight.tensor.Dims[2]), int(weight.tensor.Dims[3])}
	if k := c.ints("kernel_shape", 2, 0); k[0] != 0 && !slices.Equal(k, kernel) {
		c.fail("attribute kernel_shape is %v, and the weight's %v", k, kernel)
	}
	strides, dilations, groups := c.counts("strides"), c.counts("dilations"), c.int("group", 1)
	if groups < 1 {
		c.fail("attribute group is %d, want a number from 1", groups)
	}
	op := kernels.Conv2D{
		Out: int(weight.tensor.Dims[0]), KernelH: kernel[0], KernelW: kernel[1], StrideH: strides[0], StrideW: strides[1],
		DilationH: dilations[0], DilationW: dilations[1], Groups: groups, Bias: len(sources) > 1,
	}
	op.PadH, op.PadW = c.pads()
	return c.push(c.Node, op, asImage, sources, x)
}

// window returns the attributes of a pooling op.
func (c *call) window(x *value) kernels.AvgPool {
	kernel, strides := c.ints("kernel_shape", 2, 0), c.counts("strides")
	for _, d := range c.ints("dilations", 2, 1) {
		if d != 1 {
			c.fail("attribute dilations has %d, and only 1 is supported", d)
		}
	}
	op := kernels.AvgPool{KernelH: kernel[0], KernelW: kernel[1], StrideH: max(strides[0], 1), StrideW: max(strides[1], 1)}
	op.PadH, op.PadW = c.pads()
	over := (x.shape[2]+2*op.PadH-op.KernelH)%op.StrideH != 0 || (x.shape[3]+2*op.PadW-op.KernelW)%op.StrideW != 0
	op.Ceil = c.int("ceil_mode", 0) != 0 && over
	return op
}

func maxPool(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	return c.push(c.Node, kernels.MaxPool(c.window(x)), asImage, nil, x)
}

func avgPool(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	op := c.window(x)
	op.Inside = c.int("count_include_pad", 0) == 0 && op.PadH+op.PadW > 0
	if op == (kernels.AvgPool{KernelH: 1, KernelW: 1, StrideH: 1, StrideW: 1}) { // of an adaptive one
		return x, nil
	}
	return c.push(c.Node, op, asImage, nil, x)
}

func globalAvgPool(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	return c.push(c.Node, kernels.GlobalAvgPool{}, func(d kernels.Desc) []int { return append(slices.Clone(d.Shape), 1, 1) }, nil, x)
}

// adaptiveAvgPool takes the mean of as many windows as it is told.
func adaptiveAvgPool(c *call) (*value, error) {
	x, err := c.tensor(0, 4)
	if err != nil {
		return nil, err
	}
	out := c.ints("output_size", 2, 0)
	h, w := out[0], out[1]
	switch {
	case h == 1 && w == 1:
		return globalAvgPool(c)
	case h < 1 || w < 1:
		return nil, fmt.Errorf("attribute output_size is %v, and only positive numbers are supported", out)
	case h == x.shape[2] && w == x.shape[3]:
		return x, nil
	case x.shape[2]%h == 0 && x.shape[3]%w == 0:
		return c.push(c.Node, kernels.AvgPool{KernelH: x.shape[2] / h, KernelW: x.shape[3] / w}, asImage, nil, x)
	}
	y, err := c.push(c.Node, kernels.AdaptiveAvgPool{OutH: h, OutW: w}, asImage, nil, x)
	if err != nil {
		return nil, err
	}
	return c.shaped(y, append(slices.Clone(x.shape[:2]), h, w))
}

// reduced returns the input of a reduction, and the axes that it reduces.
func reduced(c *call) (x *value, axes []int, err error) {
	if x = c.at(0); x == nil || x.shape == nil {
		return nil, nil, fmt.Errorf("input 0 is no tensor that follows from the model's input")
	}
	axes, err = c.axes(len(x.shape))
	return x, axes, err
}

// reduceMean is of axes of a sample: what is left of them is one pixel of an image.
func reduceMean(c *call) (*value, error) {
	_, axes, err := reduced(c)
	if err != nil {
		return nil, err
	}
	if v := meanSquare(c); v != nil {
		v.whole = func() (*value, error) { return meanOf(c, axes) }
		return v, nil
	}
	return meanOf(c, axes)
}

// meanOf is the mean of input 0 over axes of a sample.
func meanOf(c *call, axes []int) (*value, error) {
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	if len(axes) == 0 || axes[0] == 0 {
		return nil, fmt.Errorf("it takes the mean over axes %v, and only over axes of a sample is supported", axes)
	}
	shape, means, rest := v.shape(), []loop{}, []loop{}
	var kept []int
	for i, loops := range v.axes {
		switch {
		case slices.Contains(axes, i):
			means = append(means, loops...)
		case i > 0:
			rest = append(rest, loops...)
		}
		if !slices.Contains(axes, i) {
			kept = append(kept, shape[i])
		} else if c.int("keepdims", 1) != 0 {
			kept = append(kept, 1)
		}
	}
	image := v // N,C,H,1
	image.axes = [][]loop{v.axes[0], rest, means, nil}
	x := &value{step: v.step, shape: asImage(v.step.desc)}
	if whole := viewOf(v.step); len(whole.axes) != 4 || !v.same(viewOfValue(x)) || !slices.Equal(axes, []int{2, 3}) {
		if x, err = c.arranged(c.Node, image); err != nil {
			return nil, err
		}
	}
	y, err := c.push(c.Node, kernels.GlobalAvgPool{}, asImage, nil, x)
	if err != nil {
		return nil, err
	}
	made, err := c.shaped(y, kept)
	if err == nil {
		meansOfRows(c, made)
	}
	return made, err
}

// shaped returns a step N,K in a shape: N,K,1,1 as it is, another shape through a view.
func (c *call) shaped(y *value, shape []int) (*value, error) {
	if k := y.step.desc.Shape[1]; len(shape) > 1 && shape[1] == k && extents(shape[2:]) == 1 {
		return &value{step: y.step, shape: shape}, nil
	}
	v, err := viewOfValue(y).reshape(shape)
	if err != nil {
		return nil, err
	}
	return c.seen(v), nil
}

// reduceSum is the mean over axes, as often as it has elements.
func reduceSum(c *call) (*value, error) {
	x, axes, err := reduced(c)
	if err != nil {
		return nil, err
	}
	n := 1
	for _, axis := range axes {
		n *= x.shape[axis]
	}
	y, err := meanOf(c, axes)
	if err == nil {
		y, err = c.plain(y, 0)
	}
	if err != nil {
		return nil, err
	}
	return c.push(c.Node, kernels.Affine{Factor: float32(n)}, as(y), nil, y)
}
