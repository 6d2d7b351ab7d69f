//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"plimsoll/kernels"
)

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
