//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

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
func (m *multiplication) window(image, out, bias C.u64, add bool) {
	backward := m.call.Pass != kernels.Forward
	var p product
	if backward {
		p = m.backward()
	} else {
		image = m.foldImage(image)
		p = m.forward()
	}
	e := m.engine(p.image | p.inner)
	panels := p.classes * m.groups
	g := m.geometry()
	padded := ceil(p.inner, e.slab) * e.slab
	slabs := p.taps * (padded / e.slab)
	t, splits := e.cut(p.rows, p.columns, slabs*e.slab, panels, p.classes == 1)
	g.backward, g.joined, g.inner, g.padded = flag(backward), flag(p.joined), C.int(p.inner), C.int(padded)
	g.columns, g.rows, g.slabs = C.int(ceil(p.columns, t.n)*t.n), C.int(p.rows), C.int(slabs)
	g.splits = C.int(splits)
	size := p.rows * p.columns * m.groups
	packed := m.pack(e, g, panels)
	args := C.struct_conv_args{image: image, other: packed, bias: bias, out: out, add: flag(add), g: g}
	if g.splits > 1 {
		args.out, args.bias, args.add = m.reserve(int64(g.splits)*size*4), 0, 0
	}
	addStep(m.builder, e.module, e.name("window", t), t.grid(p.rows, p.columns, panels*int64(g.splits)), dim{e.block, 1, 1}, e.windowShared(t), args)
	if g.splits > 1 {
		m.sumParts(m.dtype, C.struct_sum_args{
			partial: args.out, bias: bias, out: out, n: C.i64(size), splits: g.splits, columns: C.int(p.columns * m.groups), add: flag(add),
		})
	}
}

// maxSlabsAtOnce bounds the grid of pack along y.
const maxSlabsAtOnce = 1 << 12

// pack appends the kernel that packs the weights, and returns where.
func (m *multiplication) pack(e engine, g C.struct_geometry, panels int64) C.u64 {
	slab := e.slab * int64(g.columns)
	packed := m.reserve(panels * int64(g.slabs) * slab * e.packed.Size())
	addStep(m.builder, "pack", "pack"+suffix(e.packed), dim{ceil(slab, streamThreads), min(int64(g.slabs), maxSlabsAtOnce), panels}, dim{streamThreads, 1, 1}, 0,
		C.struct_pack_args{weight: m.at(kernels.ParamRole, 0), packed: packed, g: g, fold: m.fold, depth: C.int(e.slab), round: rounding(e.dtype), narrow: m.narrow()})
	return packed
}

// convParams is the product for the weight's gradient, and the bias's.
func (m *multiplication) convParams() {
	image, weights := m.at(kernels.X, 0), m.weights()
	if m.width()%wide(m.dtype.Stored()) == 0 {
		image = m.foldImage(image)
	}
	rows, columns := m.width(), m.h.kernel*m.w.kernel*m.depth()
	e := m.engine(m.width() | m.depth())
	pixels := m.outputPixels()
	t, splits := e.cut(rows, columns, pixels, m.groups, true)
	g := m.geometry()
	g.rows, g.slabs = C.int(pixels), C.int(ceil(pixels, e.slab))
	g.splits = C.int(splits)
	gradient, add := m.at(kernels.DParam, 0), flag(m.call.AddParams)
	args := C.struct_conv_args{image: image, other: m.at(kernels.DY, 0), out: gradient, add: add, g: g}
	if g.splits > 1 || m.padded() {
		args.out, args.add = m.reserve(int64(g.splits)*m.weights()*4), 0
	}
	addStep(m.builder, e.module, e.name("pixel", t), t.grid(rows, columns, m.groups*int64(g.splits)), dim{e.block, 1, 1}, e.pixelShared(t), args)
	switch {
	case m.padded():
		addStep(m.builder, "pack", "unfold_weights", dim{ceil(weights, sumThreads), 1, 1}, dim{sumThreads, 1, 1}, 0, C.struct_unfold_args{
			partial: args.out, out: gradient, n: C.i64(weights), partial_size: C.i64(m.weights()),
			width: C.int(m.w.kernel * m.channels), splits: g.splits, add: add, fold: m.fold,
		})
	case g.splits > 1:
		m.sumParts(kernels.Float32, C.struct_sum_args{
			partial: args.out, out: gradient, n: C.i64(m.weights()), splits: g.splits, columns: 1, add: add,
		})
	}
	m.convBias()
}

// ours computes the convolution with the kernels of this package.
func (m *multiplication) ours() {
	switch m.call.Pass {
	case kernels.Forward:
		m.window(m.at(kernels.X, 0), m.at(kernels.Y, 0), m.at(kernels.ParamRole, 1), false)
	case kernels.BackwardInput:
		m.window(m.at(kernels.DY, 0), m.at(kernels.DX, 0), 0, m.call.Adds(0))
	case kernels.BackwardParams:
		m.convParams()
	}
}

// engine returns the family of the algorithm; counts: see Library.engine.
func (m *multiplication) engine(counts int64) engine {
	if m.algorithm == wgmma {
		return warpgroups.limited(m.lib.tile)
	}
	return m.lib.engine(m.dtype, counts)
}

// engine chooses the family for activations of a type. Wide loads need all that counts to be whole vectors: counts is the
// bitwise or of those numbers.
func (l *Library) engine(d kernels.DType, counts int64) engine {
	e := registers
	switch {
	case d == kernels.BFloat16 && l.tensor:
		e = tensors
	case d == kernels.TF32 && l.tensor:
		e = tensors32
	case d != kernels.Float32: // for GPUs before tensor cores: one size will do
		e.tiles, e.room = e.tiles[2:], e.room[2:]
	}
	e = e.limited(l.tile)
	e.dtype = d
	if counts%e.vector != 0 {
		e.vector = 1
	}
	return e
}
