package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// axis is a convolution along H or W.
type axis struct{ in, out, kernel, stride, pad, dilation int64 }

// convolution is a Conv2D, or a Linear, which is one of 1x1 images.
type convolution struct {
	n, channels, out, groups int64
	h, w                     axis
	tf32                     bool // factors are rounded to TF32
}

func newConvolution(c kernels.Conv2D, x kernels.Desc) convolution {
	y, _ := c.Infer([]kernels.Desc{x})
	e := func(i int) int64 { return int64(i) }
	return convolution{
		n: e(x.Shape[0]), channels: e(x.Shape[3]), out: e(c.Out), groups: e(c.Groups), tf32: c.TF32,
		h: axis{e(x.Shape[1]), e(y.Shape[1]), e(c.KernelH), e(c.StrideH), e(c.PadH), e(c.DilationH)},
		w: axis{e(x.Shape[2]), e(y.Shape[2]), e(c.KernelW), e(c.StrideW), e(c.PadW), e(c.DilationW)},
	}
}

func newLinear(l kernels.Linear, x kernels.Desc) convolution {
	channels := l.Features(x)
	one := axis{in: 1, out: 1, kernel: 1, stride: 1, dilation: 1}
	return convolution{n: x.Elements() / channels, channels: channels, out: int64(l.Out), groups: 1, h: one, w: one, tf32: l.TF32}
}

// depth and width are the input and output channels of a group.
func (c convolution) depth() int64 { return c.channels / c.groups }
func (c convolution) width() int64 { return c.out / c.groups }

// forwardTaps: output position g looks at input g*stride - pad + t*dilation for tap t.
func (a axis) forwardTaps() C.struct_taps {
	return C.struct_taps{
		count: C.int64_t(a.kernel), mul: C.int64_t(a.stride), off: C.int64_t(-a.pad), step: C.int64_t(a.dilation),
		stride: 1,
	}
}

// backwardTaps: input position i = g*stride + rest receives from output position o through tap t where i + pad =
// o*stride + t*dilation. These are the taps with rest + pad = t*dilation modulo the stride, a step of
// stride/gcd(stride, dilation) apart. The last comes first, so that positions in the image ascend. ok is false when
// there is none.
func (a axis) backwardTaps(rest int64) (t C.struct_taps, ok bool) {
	step := a.stride / gcd(a.stride, a.dilation)
	for first := range min(step, a.kernel) {
		if (rest+a.pad-first*a.dilation)%a.stride == 0 {
			count := ceil(a.kernel-first, step)
			last := first + (count-1)*step
			return C.struct_taps{
				count: C.int64_t(count), mul: 1,
				off:    C.int64_t((rest + a.pad - last*a.dilation) / a.stride),
				step:   C.int64_t(step * a.dilation / a.stride),
				first:  C.int64_t(last),
				stride: C.int64_t(-step),
			}, true
		}
	}
	return C.struct_taps{mul: 1}, false
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// multiplication builds the products of a convolution.
type multiplication struct {
	*builder
	convolution
	adds bool // a forward adds to what its output holds, as a gradient that it computes may
}

func (b *builder) conv(c convolution) {
	m := multiplication{builder: b, convolution: c}
	m.multiplyAll()
}

// multiplyAll builds the products of the call's pass.
func (m *multiplication) multiplyAll() {
	switch m.call.Pass {
	case kernels.Forward:
		m.forward()
	case kernels.BackwardInput:
		if !m.call.Skips(0) {
			m.backward()
		}
	case kernels.BackwardParams:
		m.params()
	}
}

// forwardGrid enumerates output pixels and looks at the input.
func (m *multiplication) forwardGrid() C.struct_grid {
	g := C.struct_grid{
		n: C.int64_t(m.n), h: C.int64_t(m.h.out), w: C.int64_t(m.w.out),
		image: m.at(kernels.X, 0), height: C.int64_t(m.h.in), width: C.int64_t(m.w.in), pixel: C.int64_t(m.channels),
		depth: C.int64_t(m.depth()), th: m.h.forwardTaps(), tw: m.w.forwardTaps(),
	}
	g.joined = joined(g)
	return g
}

// joined: the taps of w follow one another in the image, so that they are copied as one.
func joined(g C.struct_grid) C.int64_t { return flag(g.tw.step == 1 && g.depth == g.pixel) }

func (m *multiplication) forward() {
	p := product{
		grid: m.forwardGrid(), windowStep: m.depth(),
		groups: m.groups, columns: m.width(), inner: m.depth(),
		bias:   m.at(kernels.ParamRole, 1),
		result: m.at(kernels.Y, 0), rows: m.h.out, cols: m.w.out, pixel: m.out,
		mulH: 1, mulW: 1, accumulate: m.adds,
	}
	m.products([]product{p})
}

// backward: each class of input positions modulo the strides is a product of its own, with the taps that reach it. Where
// positions have few channels, those of w are columns of one product.
func (m *multiplication) backward() {
	var all []product
	for h := range min(m.h.stride, m.h.in) {
		th, okH := m.h.backwardTaps(h)
		if tw, ok := m.mergedTaps(); ok && (okH || !m.call.Adds(0)) {
			all = append(all, m.inputProduct(h, 0, m.w.stride, th, tw))
			continue
		}
		for w := range min(m.w.stride, m.w.in) {
			tw, okW := m.w.backwardTaps(w)
			if m.call.Adds(0) && !(okH && okW) {
				continue
			}
			all = append(all, m.inputProduct(h, w, 1, th, tw))
		}
	}
	m.products(all)
}

// inputProduct gives the input positions (h, w) modulo the strides, and in the same row of the result the merged-1 behind them.
func (m *multiplication) inputProduct(h, w, merged int64, th, tw C.struct_taps) product {
	return product{
		grid:       m.backwardGrid(h, w, th, tw),
		windowStep: m.width(), groups: m.groups, columns: merged * m.depth(), inner: m.width(), transposed: true,
		result: m.at(kernels.DX, 0), rows: m.h.in, cols: m.w.in / merged, pixel: merged * m.channels,
		mulH: m.h.stride, mulW: m.w.stride / merged, offH: h, offW: w,
		accumulate: m.call.Adds(0),
	}
}

// mergedFloats bounds the values of one product's positions: most of a register would be zeros.
const mergedFloats = 8

// mergedTaps returns the taps of w that reach any of the stride input positions from g*stride on. Output position g+o reaches
// position r of these through tap r + pad - o*stride. So weights of tap pad - o*stride and later ones are the columns, and zeros
// where there is no such tap. A gradient that is not finite makes NaNs of the positions beside those that it reaches, too. The
// result ok is false where that does not pay or cannot be. Paths agree on it, for it decides the order of sums.
func (c convolution) mergedTaps() (t C.struct_taps, ok bool) {
	w := c.w
	fits := c.groups == 1 && w.stride > 1 && w.stride*c.channels <= mergedFloats && w.in%w.stride == 0
	if !fits || w.dilation != 1 || w.pad >= w.kernel || w.stride > w.kernel {
		return t, false
	}
	first, last := -((w.kernel - 1 - w.pad) / w.stride), (w.stride-1+w.pad)/w.stride
	return C.struct_taps{
		count: C.int64_t(last - first + 1), mul: 1, off: C.int64_t(first), step: 1,
		first: C.int64_t(w.pad - first*w.stride), stride: C.int64_t(-w.stride),
	}, true
}

// backwardGrid enumerates the input pixels (h, w) modulo the strides and looks at the output's gradient.
func (m *multiplication) backwardGrid(h, w int64, th, tw C.struct_taps) C.struct_grid {
	g := C.struct_grid{
		n: C.int64_t(m.n), h: C.int64_t(ceil(m.h.in-h, m.h.stride)), w: C.int64_t(ceil(m.w.in-w, m.w.stride)),
		image: m.at(kernels.DY, 0), height: C.int64_t(m.h.out), width: C.int64_t(m.w.out),
		pixel: C.int64_t(m.out), depth: C.int64_t(m.width()), th: th, tw: tw,
	}
	g.joined = joined(g)
	return g
}

// product is one implicit matrix product: windows of an image times weights.
type product struct {
	grid                   C.struct_grid
	windowStep             int64
	groups, columns, inner int64 // columns of a group; inner is the channels of a tap
	transposed             bool
	bias, result           C.uint64_t
	rows, cols, pixel      int64
	mulH, mulW, offH, offW int64
	accumulate             bool
}

func (p product) depth() int64  { return int64(p.grid.th.count*p.grid.tw.count) * p.inner }
func (p product) pixels() int64 { return int64(p.grid.n * p.grid.h * p.grid.w) }

// packedFloats bounds the panels that are packed at a time (2 MiB), so that workspace stays small and panels near.
const packedFloats = 1 << 19

// packedColumns bounds the width of a part. A part of c columns and d values each makes the result pass through memory twice
// for every d values, and the windows once for every c columns. The sum 2/d + 1/c is least for about these.
const packedColumns = 512

// products runs several products of one convolution in shared workspace: packs a block of columns, multiplies, and so on.
func (m *multiplication) products(all []product) {
	panel := int64(C.plimsoll_panel(C.int32_t(m.lib.path)))
	var size int64
	var wide int64 // columns of a task whose sums are scratch
	for _, p := range all {
		columns, depth := m.block(p, panel)
		size = max(size, p.groups*m.groupSize(panel, columns, depth))
		if m.half {
			wide = max(wide, min(ceil(columns, panel)*panel, C.HALF_COLUMNS))
		}
	}
	packed := m.reserve(size * 4)
	s := m.reserveScratch(C.ROWS * (C.LEAD + wide) * 4)
	for _, p := range all {
		columns, depth := m.block(p, panel)
		for first := int64(0); first < p.columns; first += columns {
			for k0 := int64(0); k0 == 0 || k0 < p.depth(); k0 += depth {
				part := part{first, min(columns, p.columns-first), k0, min(depth, p.depth()-k0)}
				m.pack(p, packed, panel, part)
				m.multiply(p, packed, panel, s, part)
			}
		}
	}
}

// part is a piece that is packed at a time: columns from first on, depth values of each from k0 on.
type part struct{ first, columns, k0, depth int64 }

// block returns how many columns, and how much of their depth, are packed at a time. Wide parts come first: the windows
// are read again for every block of columns. The depth is whole blocks, so that no sum is cut anew; in bfloat16 it is all of it, so
// that each result is rounded once.
func (m *multiplication) block(p product, panel int64) (columns, depth int64) {
	if p.groups > 1 {
		return p.columns, max(p.depth(), 1)
	}
	columns = min(p.columns, packedColumns)
	if m.half {
		most := max(packedFloats/max(ceil(p.depth(), 2), 1)/panel, 1) * panel
		return min(columns, most), max(p.depth(), 1)
	}
	blocks := max(packedFloats/(ceil(columns, panel)*panel)/C.DEPTH, 1)
	return columns, max(min(p.depth(), blocks*C.DEPTH), 1)
}

// groupSize returns the floats of a group's packed columns, or the pairs of bfloat16.
func (m *multiplication) groupSize(panel, columns, depth int64) int64 {
	if m.half {
		depth = ceil(depth, 2)
	}
	whole := columns / panel * panel
	if rest := columns - whole; rest > panel/2 {
		whole += panel
	} else if rest > 0 {
		whole += panel / 2
	}
	return whole * depth
}

func (m *multiplication) pack(p product, packed C.uint64_t, panel int64, t part) {
	panels := ceil(t.columns, panel)
	addJob(m.builder, C.PACK_WEIGHTS, p.groups*panels, scratch{}, C.struct_pack_args{
		weight: m.at(kernels.ParamRole, 0), packed: packed,
		groups: C.int64_t(p.groups), out: C.int64_t(m.width()), kh: C.int64_t(m.h.kernel), kw: C.int64_t(m.w.kernel),
		depth: C.int64_t(m.depth()), th: p.grid.th, tw: p.grid.tw, transposed: flag(p.transposed),
		first: C.int64_t(t.first), columns: C.int64_t(t.columns), k0: C.int64_t(t.k0), k: C.int64_t(t.depth),
		panels: C.int64_t(panels), group_size: C.int64_t(m.groupSize(panel, t.columns, t.depth)), tf32: flag(m.tf32),
		narrow: flag(m.call.Weight == kernels.BFloat16),
	})
}

// A task has a block of rows and as many columns as leave work for all threads: its rows are gathered for it alone.
const (
	mostColumns  = 1024
	leastColumns = 128
	enoughTasks  = 8
)

func (m *multiplication) multiply(p product, packed C.uint64_t, panel int64, s scratch, t part) {
	rows := ceil(p.pixels(), C.ROWS)
	most := int64(mostColumns)
	if m.half {
		most = C.HALF_COLUMNS
	}
	cols := max(ceil(t.columns, most), min(ceil(enoughTasks, rows*p.groups), ceil(t.columns, leastColumns)))
	addJob(m.builder, C.GEMM, p.groups*rows*cols, s, C.struct_gemm_args{
		grid: p.grid, window_step: C.int64_t(p.windowStep), k0: C.int64_t(t.k0), k: C.int64_t(t.depth),
		packed: packed, bias: p.bias, group_size: C.int64_t(m.groupSize(panel, t.columns, t.depth)),
		groups: C.int64_t(p.groups), group_columns: C.int64_t(p.columns),
		first: C.int64_t(t.first), columns: C.int64_t(t.columns),
		result: p.result, rows: C.int64_t(p.rows), cols: C.int64_t(p.cols), pixel: C.int64_t(p.pixel),
		mul_h: C.int64_t(p.mulH), off_h: C.int64_t(p.offH), mul_w: C.int64_t(p.mulW), off_w: C.int64_t(p.offW),
		accumulate: flag(p.accumulate || t.k0 > 0), row_blocks: C.int64_t(rows), column_blocks: C.int64_t(cols), tf32: flag(m.tf32),
	})
}

const (
	gradientChunks = 16      // parts of the pixels that are summed apart, at most
	partFloats     = 1 << 18 // bound of all parts (1 MiB) when there is more than one
	chunkPixels    = 512     // pixels that make a part worth it
	fewTasks       = 16      // for a thread: with more, one too many does not count
)

// columnBlocks cuts the columns of a weight gradient into blocks of about the same width; each block is a number of tasks. There are
// enough blocks that each thread has about as many tasks. No sum depends on it.
func (m *multiplication) columnBlocks(columns, tasks int64) int64 {
	blocks, threads := ceil(columns, C.GRAD_COLS), int64(m.lib.pool.threads)
	for blocks > 1 && blocks*tasks < fewTasks*threads && blocks*tasks%threads != 0 {
		blocks++
	}
	return blocks
}

func (m *multiplication) params() {
	columns := m.h.kernel * m.w.kernel * m.depth()
	elements := m.out * columns
	pixels := m.n * m.h.out * m.w.out
	chunks := max(min(gradientChunks, partFloats/elements, pixels/chunkPixels), 1)
	rows := ceil(m.width(), C.GRAD_ROWS)
	args := C.struct_gradient_args{
		grid: m.forwardGrid(), window_step: C.int64_t(m.depth()), dy: m.at(kernels.DY, 0),
		groups: C.int64_t(m.groups), out: C.int64_t(m.width()), columns: C.int64_t(columns),
		part: m.at(kernels.DParam, 0), accumulate: flag(m.call.AddParams), tf32: flag(m.tf32),
		chunks: C.int64_t(chunks), row_blocks: C.int64_t(rows), column_blocks: C.int64_t(m.columnBlocks(columns, chunks*m.groups*rows)),
	}
	if chunks > 1 {
		args.part, args.accumulate = m.reserve(chunks*elements*4), 0
	}
	panel := int64(C.plimsoll_panel(C.int32_t(m.lib.path)))
	s := m.reserveScratch(4 * max(C.GRAD_COPIED*(C.GRAD_LEAD_A+C.GRAD_LEAD_B), C.GRAD_DEPTH*(C.GRAD_LEAD_A+panel)))
	addJob(m.builder, C.WEIGHT_GRADIENT, chunks*m.groups*int64(args.row_blocks*args.column_blocks), s, args)
	if chunks > 1 {
		addJob(m.builder, C.SUM_PARTS, ceil(elements, grain), scratch{}, C.struct_sum_args{
			part: args.part, out: m.at(kernels.DParam, 0), parts: C.int64_t(chunks), n: C.int64_t(elements),
			accumulate: flag(m.call.AddParams), chunk: grain,
		})
	}
	if db := m.at(kernels.DParam, 1); db != 0 {
		addJob(m.builder, C.BIAS_GRADIENT, ceil(m.out, 64), scratch{}, C.struct_bias_args{
			dy: m.at(kernels.DY, 0), out: db, rows: C.int64_t(pixels), channels: C.int64_t(m.out),
			accumulate: flag(m.call.AddParams),
		})
	}
}
