package importer

import (
	"fmt"

	"plimsoll/kernels"
)

// groupNorm normalizes groups of an image's channels, or of those of N,C,T; with 0 groups each channel, and of other tensors each row.
func groupNorm(c *call) (*value, error) {
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	shape := v.shape()
	if len(shape) < 2 {
		return nil, fmt.Errorf("input 0 is %v, and only samples of channels are supported", shape)
	}
	image := v // N,C,P,1
	var pixels []loop
	for _, loops := range v.axes[2:] {
		pixels = append(pixels, loops...)
	}
	image.axes = [][]loop{v.axes[0], v.axes[1], merged(pixels), nil}
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	own := len(shape) == 4 && len(x.step.desc.Shape) == 4
	if !own {
		if x, err = c.arranged(c.Node, image); err != nil {
			return nil, err
		}
	}
	op := kernels.GroupNorm{Groups: c.int("groups", 0), Epsilon: c.epsilon(), Plain: c.at(1) == nil && c.at(2) == nil}
	if op.Groups == 0 {
		op.Groups = shape[1]
	}
	var sources []source
	for i := 1; !op.Plain && i < 3; i++ {
		if c.at(i) == nil {
			sources = completed(c, op, x, sources)[:i]
			continue
		}
		s, err := c.param(i, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	y, err := c.push(c.Node, op, asImage, sources, x)
	if err != nil || own {
		return y, err
	}
	w, err := viewOfValue(y).reshape(shape)
	if err != nil {
		return nil, err
	}
	return c.seen(w), nil
}

// convTranspose is the gradient of a convolution, whose weight it has.
func convTranspose(c *call) (*value, error) {
	x, weight, err := imageAndWeight(c)
	if err != nil {
		return nil, err
	}
	strides, dilations, extra, groups := c.counts("strides"), c.counts("dilations"), c.ints("extra", 2, 0), c.int("group", 1)
	if groups < 1 {
		return nil, fmt.Errorf("attribute group is %d, want a number from 1", groups)
	}
	op := kernels.ConvTranspose2D{
		Out: int(weight.tensor.Dims[1]) * groups, KernelH: int(weight.tensor.Dims[2]), KernelW: int(weight.tensor.Dims[3]), StrideH: strides[0], StrideW: strides[1],
		DilationH: dilations[0], DilationW: dilations[1], ExtraH: extra[0], ExtraW: extra[1], Groups: groups,
	}
	op.PadH, op.PadW = c.pads()
	y, err := c.push(c.Node, op, asImage, []source{weight}, x)
	if err != nil || c.at(2) == nil {
		return y, err
	}
	bias, err := c.param(2, asIs)
	if err != nil {
		return nil, err
	}
	return c.push(c.Node, kernels.Bias{Axes: 1}, asImage, []source{bias}, y)
}
