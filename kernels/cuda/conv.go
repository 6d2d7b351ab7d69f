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

func (b *builder) conv(c convolution) {
	if err := c.check(); err != nil {
		b.fail("%v", err)
		return
	}
	if b.call.Pass == kernels.BackwardInput && b.call.Skips(0) {
		return
	}
	if b.algorithm == measured {
		var err error
		if b.algorithm, err = b.lib.choose(b.call, c); err != nil {
			b.fail("%v", err)
			return
		}
	}
	switch b.algorithm {
	case naive:
		b.naive()
		return
	case cublas, cublasParts, cublasBias, cublasRows, cudnn:
		b.vendorConv(c, b.algorithm)
		return
	}
	switch b.call.Pass {
	case kernels.Forward:
		b.window(c, b.at(kernels.X, 0), b.at(kernels.Y, 0), b.at(kernels.ParamRole, 1), false)
	case kernels.BackwardInput:
		b.window(c, b.at(kernels.DY, 0), b.at(kernels.DX, 0), 0, b.call.Adds(0))
	case kernels.BackwardParams:
		b.convParams(c)
	}
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

// product is a window product: what src/conv.cuh calls class, slab and columns, before a tile is chosen.
type product struct {
	image   int64 // channels of the image that windows look at
	inner   int64 // channels of a tap and group
	columns int64 // of a group
	classes int64
	taps    int64 // of the largest class
	rows    int64 // of the largest class
	joined  bool
}

func (c convolution) forward() product {
	p := product{image: c.channels, inner: c.depth(), columns: c.width(), classes: 1, taps: c.h.kernel * c.w.kernel, rows: c.outputPixels()}
	return p.join(c, c.w.kernel)
}

func (c convolution) backward() product {
	p := product{
		image: c.out, inner: c.width(), columns: c.depth(), classes: c.h.stride * c.w.stride,
		taps: ceil(c.h.kernel, c.h.apart()) * ceil(c.w.kernel, c.w.apart()),
		rows: c.n * ceil(c.h.in, c.h.stride) * ceil(c.w.in, c.w.stride),
	}
	if c.w.stride > 1 {
		return p
	}
	return p.join(c, c.w.kernel)
}

// join takes the taps along w as one where they follow one another in memory.
func (p product) join(c convolution, taps int64) product {
	if c.w.dilation == 1 && c.groups == 1 {
		p.joined, p.inner, p.taps = true, p.inner*taps, p.taps/taps
	}
	return p
}

// window is the product for Y or DX: pack the weights, multiply, add up the splits.
func (b *builder) window(c convolution, image, out, bias C.u64, add bool) {
	backward := b.call.Pass != kernels.Forward
	p := c.forward()
	if backward {
		p = c.backward()
	}
	e := b.lib.engine(c.dtype, p.image|p.inner)
	panels := p.classes * c.groups
	g := c.geometry()
	padded := ceil(p.inner, e.slab) * e.slab
	slabs := p.taps * (padded / e.slab)
	t, splits := e.cut(p.rows, p.columns, slabs*e.slab, panels, p.classes == 1)
	g.backward, g.joined, g.inner, g.padded = flag(backward), flag(p.joined), C.int(p.inner), C.int(padded)
	g.columns, g.rows, g.slabs = C.int(ceil(p.columns, t.n)*t.n), C.int(p.rows), C.int(slabs)
	g.splits = C.int(splits)
	size := p.rows * p.columns * c.groups
	packed := b.pack(e, g, panels)
	args := C.struct_conv_args{image: image, other: packed, bias: bias, out: out, add: flag(add), g: g}
	if g.splits > 1 {
		args.out, args.bias, args.add = b.reserve(int64(g.splits)*size*4), 0, 0
	}
	addStep(b, e.module, e.name("window", t), t.grid(p.rows, p.columns, panels*int64(g.splits)), dim{convThreads, 1, 1}, e.windowShared(t), args)
	if g.splits > 1 {
		b.sumParts(c.dtype, C.struct_sum_args{
			partial: args.out, bias: bias, out: out, n: C.i64(size), splits: g.splits, columns: C.int(p.columns * c.groups), add: flag(add),
		})
	}
}

// sumParts appends the kernel that adds up splits of a product of type d.
func (b *builder) sumParts(d kernels.DType, args C.struct_sum_args) {
	addStream(b, "pack", "sum_parts"+suffix(d.Stored()), int64(args.n), 4, args)
}

// rounding says how kernels round the weights of products of a type.
func rounding(d kernels.DType) C.int {
	return C.int(map[kernels.DType]uint32{kernels.BFloat16: C.TO_BF16, kernels.TF32: C.TO_TF32}[d])
}

// maxSlabsAtOnce bounds the grid of pack along y.
const maxSlabsAtOnce = 1 << 12

// pack appends the kernel that packs the weights, and returns where.
func (b *builder) pack(e engine, g C.struct_geometry, panels int64) C.u64 {
	slab := e.slab * int64(g.columns)
	packed := b.reserve(panels * int64(g.slabs) * slab * e.packed.Size())
	addStep(b, "pack", "pack"+suffix(e.packed), dim{ceil(slab, streamThreads), min(int64(g.slabs), maxSlabsAtOnce), panels}, dim{streamThreads, 1, 1}, 0,
		C.struct_pack_args{weight: b.at(kernels.ParamRole, 0), packed: packed, g: g, depth: C.int(e.slab), round: rounding(e.dtype)})
	return packed
}

// convParams is the product for the weight's gradient, and the bias's.
func (b *builder) convParams(c convolution) {
	rows, columns := c.width(), c.h.kernel*c.w.kernel*c.depth()
	e := b.lib.engine(c.dtype, c.width()|c.depth())
	pixels := c.outputPixels()
	t, splits := e.cut(rows, columns, pixels, c.groups, true)
	g := c.geometry()
	g.rows, g.slabs = C.int(pixels), C.int(ceil(pixels, e.slab))
	g.splits = C.int(splits)
	gradient, add := b.at(kernels.DParam, 0), flag(b.call.AddParams)
	args := C.struct_conv_args{image: b.at(kernels.X, 0), other: b.at(kernels.DY, 0), out: gradient, add: add, g: g}
	if g.splits > 1 {
		args.out, args.add = b.reserve(int64(g.splits)*c.weights()*4), 0
	}
	addStep(b, e.module, e.name("pixel", t), t.grid(rows, columns, c.groups*int64(g.splits)), dim{convThreads, 1, 1}, e.pixelShared(t), args)
	if g.splits > 1 {
		b.sumParts(kernels.Float32, C.struct_sum_args{
			partial: args.out, out: gradient, n: C.i64(c.weights()), splits: g.splits, columns: 1, add: add,
		})
	}
	b.convBias(c)
}

// convBias is the bias's gradient, where there is one.
func (b *builder) convBias(c convolution) {
	if b.biased() {
		b.columns(b.at(kernels.DY, 0), b.at(kernels.DParam, 1), c.dtype.Stored(), c.outputPixels(), c.out, b.call.AddParams)
	}
}
