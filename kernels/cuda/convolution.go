//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"fmt"
	"math"

	"plimsoll/kernels"
)

// axis is a convolution along H or W.
type axis struct{ in, out, kernel, stride, pad, dilation int64 }

// convolution is a Conv2D, or a Linear, which is one over a row of pixels.
type convolution struct {
	n, channels, out, groups int64
	h, w                     axis
	dtype                    kernels.DType // of factors
}

func newConvolution(c kernels.Conv2D, x kernels.Desc) convolution { return windowed(c, x).simplified() }

func newLinear(l kernels.Linear, x kernels.Desc) convolution { return dense(l, x).simplified() }

// windowed and dense say what ops mean, as they are given.
func windowed(c kernels.Conv2D, x kernels.Desc) convolution {
	y, _ := c.Infer([]kernels.Desc{x})
	e := func(i int) int64 { return int64(i) }
	return convolution{
		n: e(x.Shape[0]), channels: e(x.Shape[3]), out: e(c.Out), groups: e(c.Groups), dtype: factors(c, x),
		h: axis{e(x.Shape[1]), e(y.Shape[1]), e(c.KernelH), e(c.StrideH), e(c.PadH), e(c.DilationH)},
		w: axis{e(x.Shape[2]), e(y.Shape[2]), e(c.KernelW), e(c.StrideW), e(c.PadW), e(c.DilationW)},
	}
}

func dense(l kernels.Linear, x kernels.Desc) convolution {
	features := l.Features(x)
	one := axis{in: 1, out: 1, kernel: 1, stride: 1, dilation: 1}
	return convolution{n: x.Elements() / features, channels: features, out: int64(l.Out), groups: 1, h: one, w: one, dtype: factors(l, x)}
}

// factors is the type that an op multiplies in.
func factors(op kernels.Op, x kernels.Desc) kernels.DType {
	if kernels.UsesTF32(op) {
		return kernels.TF32
	}
	return x.DType
}

// simplified drops strides that never step, and takes the pixels of a matrix product as one row, so that walking over them
// never turns a corner.
func (c convolution) simplified() convolution {
	for _, a := range []*axis{&c.h, &c.w} {
		if a.out == 1 {
			a.stride = 1
		}
		if a.kernel == 1 {
			a.dilation = 1
		}
	}
	pixels := c.n * c.h.in * c.w.in
	if c.h.pointwise() && c.w.pointwise() && pixels*max(c.channels, c.out) <= math.MaxInt32 {
		c.n, c.h.in, c.h.out, c.w.in, c.w.out = 1, 1, 1, pixels, pixels
	}
	return c
}

func (a axis) pointwise() bool { return a.kernel == 1 && a.stride == 1 && a.pad == 0 }

// depth and width are the input and output channels of a group.
func (c convolution) depth() int64 { return c.channels / c.groups }

func (c convolution) width() int64 { return c.out / c.groups }

func (c convolution) weights() int64 { return c.out * c.h.kernel * c.w.kernel * c.depth() }

func (c convolution) outputPixels() int64 { return c.n * c.h.out * c.w.out }

// apart is the distance of taps that reach input positions of one class; see backward_axis in src/conv.cuh.
func (a axis) apart() int64 { return a.stride / gcd(a.stride, a.dilation) }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// check refuses sizes that overflow the kernels' int.
func (c convolution) check() error {
	for what, n := range map[string]int64{
		"input pixels":                       c.n * c.h.in * c.w.in,
		"output pixels":                      c.outputPixels(),
		"elements of a row of input pixels":  (c.w.in + 2*c.w.pad) * c.channels,
		"elements of a row of output pixels": (c.w.out + c.w.kernel) * c.out,
		"weights of an output channel":       c.h.kernel * c.w.kernel * c.depth(),
	} {
		if n > math.MaxInt32-maxTile {
			return fmt.Errorf("%d %s are more than %d: use smaller batches", n, what, math.MaxInt32-maxTile)
		}
	}
	return nil
}

// geometry of the convolution, without what depends on the product.
func (c convolution) geometry() C.struct_geometry {
	return C.struct_geometry{
		n: C.int(c.n), h: C.int(c.h.in), w: C.int(c.w.in), c: C.int(c.channels), oh: C.int(c.h.out), ow: C.int(c.w.out), o: C.int(c.out),
		kh: C.int(c.h.kernel), kw: C.int(c.w.kernel), sh: C.int(c.h.stride), sw: C.int(c.w.stride), ph: C.int(c.h.pad), pw: C.int(c.w.pad),
		dh: C.int(c.h.dilation), dw: C.int(c.w.dilation), groups: C.int(c.groups), splits: 1,
	}
}
