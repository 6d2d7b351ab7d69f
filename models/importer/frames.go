package importer

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// framed adds elements around up to two axes of a sample, or moves them round.
func framed(c *call) (*value, error) {
	circular := c.int("circular", 0) != 0
	v, err := c.sequence()
	if err != nil {
		return nil, err
	}
	ahead, behind, k := c.listed("ahead", nil), c.listed("behind", nil), len(v.axes)
	var axes []int
	for i := range ahead {
		if len(ahead) == k && len(behind) == k && (ahead[i] != 0 || behind[i] != 0) {
			axes = append(axes, i)
		}
	}
	if len(ahead) != k || len(behind) != k || len(axes) > 2 || slices.Contains(axes, 0) {
		return nil, fmt.Errorf("%v ahead of and %v behind the axes of %v, and only one or two axes of a sample are supported", ahead, behind, v.shape())
	}
	if len(axes) == 0 {
		return c.seen(v), nil
	}
	h, w := axes[0], -1
	if len(axes) > 1 {
		w = axes[1]
	}
	x, back, err := asFrame(c, v, h, w)
	if err != nil {
		return nil, err
	}
	op := kernels.Pad{Top: ahead[h], Bottom: behind[h], Circular: circular}
	if w >= 0 {
		op.Left, op.Right = ahead[w], behind[w]
	}
	y, err := c.push(c.Node, op, asImage, nil, x)
	if err != nil {
		return nil, err
	}
	return back(y)
}

// asFrame returns a view as an image N,H,W,C whose rows and columns are the axes h and w; w is -1 where there is one alone. The function back
// makes the same view of an image that an op has computed.
func asFrame(c *call, v view, h, w int) (x *value, back func(y *value) (*value, error), err error) {
	shape := v.shape()
	var rest []int // the axes that are channels
	for i := 1; i < len(v.axes); i++ {
		if i != h && i != w {
			rest = append(rest, i)
		}
	}
	var channels, columns []loop
	for _, i := range rest {
		channels = append(channels, v.axes[i]...)
	}
	if w >= 0 {
		columns = v.axes[w]
	}
	image := v // N,C,H,W
	image.axes = [][]loop{v.axes[0], merged(channels), v.axes[h], columns}
	x = &value{step: v.step, shape: asImage(v.step.desc)}
	if len(v.step.desc.Shape) != 4 || !image.same(viewOfValue(x)) {
		if x, err = c.arranged(c.Node, image); err != nil {
			return nil, nil, err
		}
	}
	back = func(y *value) (*value, error) {
		made := viewOfValue(y)
		channels := made
		channels.axes = [][]loop{made.axes[1]}
		var extents []int
		for _, i := range rest {
			extents = append(extents, shape[i])
		}
		channels, err := channels.reshape(extents)
		if err != nil {
			return nil, err
		}
		out := view{step: made.step, axes: make([][]loop, len(shape))}
		out.axes[0], out.axes[h] = made.axes[0], made.axes[2]
		if w >= 0 {
			out.axes[w] = made.axes[3]
		}
		for k, i := range rest {
			out.axes[i] = channels.axes[k]
		}
		return c.seen(out), nil
	}
	return x, back, nil
}

// resized computes an image of another size.
func resized(c *call) (*value, error) {
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	out := c.ints("output_size", 2, 0)
	op := kernels.Resize{
		OutH: out[0], OutW: out[1], Nearest: c.int("nearest", 0) != 0, AlignCorners: c.int("align_corners", 0) != 0,
		RatioH: c.float("ratio_h", 0), RatioW: c.float("ratio_w", 0),
	}
	if len(x.shape) != 4 {
		return nil, fmt.Errorf("input 0 is %v, and only images are supported", x.shape)
	}
	if len(x.step.desc.Shape) == 2 { // the mean of an image, N,C,1,1
		if x, err = c.arranged(c.Node, viewOfValue(x)); err != nil {
			return nil, err
		}
	}
	h, w := x.shape[2], x.shape[3]
	op.RatioH, op.RatioW = ratioOf(op, op.RatioH, h, out[0]), ratioOf(op, op.RatioW, w, out[1])
	switch {
	case out[0] == h && out[1] == w:
		return x, nil
	case op.Nearest && op.RatioH == 0 && op.RatioW == 0 && out[0]%h == 0 && out[0]/h*w == out[1]:
		return c.push(c.Node, kernels.Upsample{Factor: out[0] / h}, asImage, nil, x)
	}
	return c.push(c.Node, op, asImage, nil, x)
}

// ratioOf returns the step between sampled positions of an axis, 0 where the extents say it. PyTorch takes that of the extents, too, where an
// extent stays, and where the nearest elements double it (UpSampleKernel.cpp, nearest_idx).
func ratioOf(op kernels.Resize, ratio float32, from, to int) float32 {
	if ratio == float32(from)/float32(to) || from == to || op.Nearest && to == 2*from {
		return 0
	}
	return ratio
}

// put puts a constant in the place of a part of another one, a range of an axis.
func put(c *call) (*value, error) {
	all, are := c.constantInputs(4)
	if !are || all[2].mask != nil || all[3].mask != nil || len(all[2].numbers) != 1 || len(all[3].numbers) != 1 {
		return nil, fmt.Errorf("a part of a tensor that is no constant is changed in place, which is not supported")
	}
	base, err := all[0].dense()
	if err != nil {
		return nil, err
	}
	part, err := all[1].dense()
	if err != nil {
		return nil, err
	}
	axis := c.listed("axis", []int{0})[0]
	if axis < 0 || axis >= len(base.dims) {
		return nil, fmt.Errorf("axis %d of a constant of %v", axis, base.dims)
	}
	bounds, err := whole([]float64{all[2].numbers[0], all[3].numbers[0]})
	if err != nil {
		return nil, err
	}
	n := base.dims[axis]
	from, to := min(max(positive(bounds[0], n), 0), n), min(max(positive(bounds[1], n), 0), n)
	want := slices.Clone(base.dims)
	if want[axis] = max(to-from, 0); !slices.Equal(want, part.dims) {
		return nil, fmt.Errorf("a constant of %v in the place of %v", part.dims, want)
	}
	at := make([]int, len(base.dims))
	return known(filled(base.dims, func(indices []int) float64 {
		if indices[axis] < from || indices[axis] >= to {
			return base.numbers[base.at(indices)]
		}
		copy(at, indices)
		at[axis] -= from
		return part.numbers[part.at(at)]
	}))
}
