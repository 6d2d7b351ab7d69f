//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"math"

	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
)

// products lists how cuBLAS can compute a call: not at all, if it has a window.
//
// cublasRows is for outputs whose rows are no whole vectors of 16 bytes: cuBLAS has fast products only of matrices whose rows are.
func (l *Library) products(call kernels.Call, c convolution) (all []algorithm) {
	if l.vendors.multiplier == nil || c.groups != 1 || !c.h.pointwise() || !c.w.pointwise() {
		return nil
	}
	all = append(all, cublas)
	half, forward := c.dtype == kernels.BFloat16, call.Pass == kernels.Forward
	if half && call.Pass == kernels.BackwardInput && call.Adds(0) {
		all = append(all, cublasParts)
	}
	biased := forward && len(call.Op.Params(call.In)) > 1
	whole := func(columns int64) bool { return columns%C.EDGE_ALIGNMENT == 0 }
	if half && biased && whole(c.channels) && whole(c.out) && c.channels <= maxWidened {
		all = append(all, cublasBias)
	}
	enough := c.out >= 3*C.EDGE_ALIGNMENT && c.outputPixels() >= C.EDGE_ALIGNMENT && max(c.out, c.channels) <= math.MaxInt32/C.EDGE_ALIGNMENT
	if half && !biased && whole(c.channels) && !whole(c.out) && enough {
		all = append(all, cublasRows)
	}
	return all
}

// matrices are the operands of a convolution without a window, or of a linear layer. X and DX are pixels x channels, Y and DY
// pixels x outputs, the weights outputs x channels.
type matrices struct {
	weight, bias C.u64 // the weights in the type of factors
	out          C.u64 // Y, DX or the weights' gradient
}

// matrix computes a convolution without a window, or a linear layer, by cuBLAS: Y = X W', DX = DY W, DW = DY' X.
func (b *builder) matrix(c convolution, m matrices, a algorithm) {
	p, left, right := b.whole(c, m)
	b.reserveProducts(p)
	biased := b.call.Pass == kernels.Forward && b.biased()
	switch {
	case a == cublasRows:
		b.alignedRows(c, m)
	case a == cublasBias:
		b.widened(p, left, m)
	case a == cublasParts, biased && c.dtype == kernels.BFloat16:
		b.parts(p, left, m)
	default:
		b.gemm(p, left, right, m.out, b.adds())
		if biased {
			b.sumParts(c.dtype, C.struct_sum_args{partial: m.out, bias: m.bias, out: m.out, n: C.i64(p.M * p.N), splits: 1, columns: C.int(p.N)})
		}
	}
}

// whole is the pass as one product, and its factors.
func (b *builder) whole(c convolution, m matrices) (p nvidia.Product, left, right C.u64) {
	half, pixels := c.dtype == kernels.BFloat16, c.outputPixels()
	p = nvidia.Product{M: pixels, N: c.out, K: c.channels, TransposeB: true, BFloat16: half, TF32: c.dtype == kernels.TF32, BFloat16Out: half}
	left, right = b.at(kernels.X, 0), m.weight
	switch b.call.Pass {
	case kernels.BackwardInput:
		p.N, p.K, p.TransposeB = c.channels, c.out, false
		left = b.at(kernels.DY, 0)
	case kernels.BackwardParams:
		p.M, p.N, p.K, p.TransposeA, p.TransposeB, p.BFloat16Out = c.out, c.channels, pixels, true, false, false
		left, right = b.at(kernels.DY, 0), b.at(kernels.X, 0)
	}
	return p, left, right
}

// What cuBLAS gets as workspace, by shape alone, and so the same bits everywhere: room for the result in float32 from each part that its
// inner dimension may be cut into, but no more than NVIDIA recommends. It chooses among the kernels that this is enough for.
const (
	leastProductSpace = 64 << 10
	productPart       = 256 // inner indices that are worth a part
	maxProductParts   = 16
)

// productSpace returns the bytes that a product gets, most of them at most.
func productSpace(p nvidia.Product, most int64) int64 {
	parts := max(min(p.K/productPart, maxProductParts), 1)
	return min(max(ceil(4*p.M*p.N*parts, vendorAlignment)*vendorAlignment, leastProductSpace), most)
}

func (b *builder) reserveProducts(p nvidia.Product) {
	bytes := productSpace(p, b.lib.vendors.workspace)
	b.products = space{at: b.reserveAligned(bytes), bytes: bytes}
}

// gemm appends a product by cuBLAS.
func (b *builder) gemm(p nvidia.Product, left, right, out C.u64, add bool) {
	b.issue(b.lib.vendors.multiplier.Launch(p, cu.DevicePtr(left), cu.DevicePtr(right), cu.DevicePtr(out), b.products.at, b.products.bytes, add))
}

// Bytes in float32 of the rows of a result that are computed at a time, in whole tiles of rows. Parts stay in an L2 cache of 50 MB, where
// a wave of tiles keeps an H100 busy. Slices do not, and need no waves of their own.
const (
	partBytes  = 32 << 20
	sliceBytes = 64 << 20
	rowsAtOnce = maxTile
)

// rowsOf returns how many rows of a result with so many columns are computed at a time.
func rowsOf(bytes, columns int64) int64 { return max(bytes/(4*columns)/rowsAtOnce, 1) * rowsAtOnce }

// parts computes a product in bfloat16 whose result has more to come, a bias or what is there: some rows at a time in float32, which
// are then added up and rounded once.
func (b *builder) parts(p nvidia.Product, left C.u64, m matrices) {
	total, rows := p.M, min(rowsOf(b.lib.vendors.part, p.N), p.M)
	partial := b.reserve(4 * rows * p.N)
	p.BFloat16Out = false
	for first := int64(0); first < total; first += rows {
		p.M = min(rows, total-first)
		b.gemm(p, left+C.u64(2*first*p.K), m.weight, partial, false)
		b.sumParts(kernels.BFloat16, C.struct_sum_args{
			partial: partial, bias: m.bias, out: m.out + C.u64(2*first*p.N), n: C.i64(p.M * p.N), splits: 1, columns: C.int(p.N), add: flag(b.adds()),
		})
	}
}

// maxWidened bounds the channels of what widened computes: kernels count a slice in 32 bits.
const maxWidened = 1 << 23

// widened computes Y with its bias as one product, rounded once: the bias is added by a few more inner indices, at which X holds ones and
// the weights the bias. Copies of X are made by slices.
func (b *builder) widened(p nvidia.Product, left C.u64, m matrices) {
	total, channels := p.M, p.K
	p.K = ceil(channels+C.BIAS_PARTS, C.EDGE_ALIGNMENT) * C.EDGE_ALIGNMENT
	weights := C.struct_widen_args{
		in: b.at(kernels.ParamRole, 0), bias: m.bias, out: b.reserve(2 * p.N * p.K), n: C.i64(p.N * p.K), c: C.int(channels), padded: C.int(p.K),
	}
	addStream(b, "pack", "widen_weights", p.N*p.K, 4, weights)
	rows := min(rowsOf(2*b.lib.vendors.slice, p.K), total)
	x := b.reserve(2 * rows * p.K)
	for first := int64(0); first < total; first += rows {
		p.M = min(rows, total-first)
		addStream(b, "pack", "widen_rows", p.M*p.K, wide(kernels.BFloat16), C.struct_widen_args{
			in: after(left, first, channels, 0), out: x, n: C.i64(p.M * p.K), c: C.int(channels), padded: C.int(p.K),
		})
		b.gemm(p, x, weights.out, after(m.out, first, p.N, 0), false)
	}
}

// rowClass are the rows of Y or DY that are aligned alike: every classes-th from first on. Their columns from head on, main of them, are
// whole vectors at whole vectors' addresses; the others are their edges.
type rowClass struct{ first, rows, head, main int64 }

// rowClasses cuts rows of columns in bfloat16 into classes.
func rowClasses(rows, columns int64) []rowClass {
	all := make([]rowClass, C.EDGE_ALIGNMENT/gcd(C.EDGE_ALIGNMENT, columns))
	for i := range all {
		first := int64(i)
		head := (C.EDGE_ALIGNMENT - first*columns%C.EDGE_ALIGNMENT) % C.EDGE_ALIGNMENT
		all[i] = rowClass{first, ceil(rows-first, int64(len(all))), head, (columns - head) / C.EDGE_ALIGNMENT * C.EDGE_ALIGNMENT}
	}
	return all
}

// alignedRows computes a pass in bfloat16 where the rows of Y are not aligned. Each class of rows has a product of its aligned columns, whose
// strides are as many rows as there are classes. It has another one of its edges; kernels of ours bring both together.
func (b *builder) alignedRows(c convolution, m matrices) {
	pixels := c.outputPixels()
	classes := rowClasses(pixels, c.out)
	e := C.struct_edge_args{
		edges: b.reserve(2 * pixels * C.EDGES), weight: b.at(kernels.ParamRole, 0), count: C.i64(pixels),
		o: C.int(c.out), c: C.int(c.channels), classes: C.int(len(classes)),
	}
	edgeWeights := int64(len(classes)) * C.EDGES * c.channels
	if b.call.Pass != kernels.BackwardParams {
		e.out = b.reserve(2 * edgeWeights)
		b.edges("edge_weights", edgeWeights, e)
	}
	switch b.call.Pass {
	case kernels.Forward:
		e.rows = m.out
		b.alignedForward(c, m, classes, e)
	case kernels.BackwardInput:
		e.rows = b.at(kernels.DY, 0)
		b.edges("edges_of", pixels*C.EDGES, e)
		b.alignedInput(c, m, classes, e)
	case kernels.BackwardParams:
		e.rows, e.out = b.at(kernels.DY, 0), m.out
		b.edges("edges_of", pixels*C.EDGES, e)
		b.alignedParams(c, classes, e, b.reserve(4*edgeWeights))
	}
}

// edges appends a kernel of pack.cu with a thread for each of n elements.
func (b *builder) edges(function string, n int64, e C.struct_edge_args) {
	addStream(b, "pack", function, n, 1, e)
}

// after returns the address of an element of bfloat16 in row i of so many columns.
func after(base C.u64, i, columns, at int64) C.u64 { return base + C.u64(2*(i*columns+at)) }

func (b *builder) alignedForward(c convolution, m matrices, classes []rowClass, e C.struct_edge_args) {
	n := int64(len(classes))
	for i, k := range classes {
		p := nvidia.Product{M: k.rows, N: k.main, K: c.channels, A: n * c.channels, C: n * c.out, TransposeB: true, BFloat16: true, BFloat16Out: true}
		x := after(b.at(kernels.X, 0), k.first, c.channels, 0)
		b.gemm(p, x, after(m.weight, k.head, c.channels, 0), after(m.out, k.first, c.out, k.head), false)
		p.N, p.C = C.EDGES, n*C.EDGES
		b.gemm(p, x, after(e.out, int64(i)*C.EDGES, c.channels, 0), after(e.edges, k.first, C.EDGES, 0), false)
	}
	b.edges("edges_to", int64(e.count)*C.EDGES, e)
}

// alignedInput adds up a row of DX in float32 before it is rounded.
func (b *builder) alignedInput(c convolution, m matrices, classes []rowClass, e C.struct_edge_args) {
	n, pixels := int64(len(classes)), c.outputPixels()
	rows := min(rowsOf(b.lib.vendors.slice, c.channels), pixels)
	sums := b.reserve(4 * rows * c.channels)
	for first := int64(0); first < pixels; first += rows {
		slice := min(rows, pixels-first)
		for i, k := range classes {
			if k.first >= slice {
				break
			}
			p := nvidia.Product{M: ceil(slice-k.first, n), N: c.channels, K: C.EDGES, A: n * C.EDGES, C: n * c.channels, BFloat16: true}
			row, to := first+k.first, sums+C.u64(4*k.first*c.channels)
			b.gemm(p, after(e.edges, row, C.EDGES, 0), after(e.out, int64(i)*C.EDGES, c.channels, 0), to, false)
			p.K, p.A = k.main, n*c.out
			b.gemm(p, after(b.at(kernels.DY, 0), row, c.out, k.head), after(m.weight, k.head, c.channels, 0), to, true)
		}
		b.sumParts(kernels.BFloat16, C.struct_sum_args{
			partial: sums, out: after(m.out, first, c.channels, 0), n: C.i64(slice * c.channels), splits: 1, columns: 1, add: flag(b.adds()),
		})
	}
}

// alignedParams adds the classes' products to the gradient, which the first one writes unless it is added to: that has no head, and its
// tail is cleared.
func (b *builder) alignedParams(c convolution, classes []rowClass, e C.struct_edge_args, sums C.u64) {
	n := int64(len(classes))
	if main := classes[0].main; !b.adds() {
		b.strip(kernels.Float32, C.struct_strip_args{
			out: e.out + C.u64(4*main*c.channels), rows: C.i64(c.out - main), width: C.int(c.channels), out_stride: C.i64(c.channels),
		}, c.channels)
	}
	for i, k := range classes {
		p := nvidia.Product{M: k.main, N: c.channels, K: k.rows, A: n * c.out, B: n * c.channels, TransposeA: true, BFloat16: true}
		x := after(b.at(kernels.X, 0), k.first, c.channels, 0)
		b.gemm(p, after(e.rows, k.first, c.out, k.head), x, e.out+C.u64(4*k.head*c.channels), i > 0 || b.adds())
		p.M, p.A = C.EDGES, n*C.EDGES
		b.gemm(p, after(e.edges, k.first, C.EDGES, 0), x, sums+C.u64(4*int64(i)*C.EDGES*c.channels), false)
	}
	e.edges = sums
	b.edges("edge_sums", 2*C.EDGE_ALIGNMENT*c.channels, e)
}
