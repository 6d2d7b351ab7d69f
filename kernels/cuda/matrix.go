//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
)

// matrices are the operands of a convolution without a window, or of a linear layer. X and DX are pixels x channels, Y and DY
// pixels x outputs, the weights outputs x channels.
type matrices struct {
	weight, bias C.u64 // the weights in the type of factors
	out          C.u64 // Y, DX or the weights' gradient
}

// matrix computes a convolution without a window, or a linear layer, by cuBLAS: Y = X W', DX = DY W, DW = DY' X.
func (m *multiplication) matrix(o matrices) {
	p, left, right := m.whole(o)
	m.reserveProducts(p)
	biased := m.call.Pass == kernels.Forward && m.biased()
	switch {
	case m.algorithm == cublasRows && m.dtype == kernels.TF32:
		m.alignedBlocks(o)
		if biased {
			m.addBias(p, o)
		}
	case m.algorithm == cublasRows:
		m.alignedRows(o)
	case m.algorithm == cublasBias:
		m.widened(p, left, o)
	case m.algorithm == cublasParts, biased && m.dtype == kernels.BFloat16:
		m.parts(p, left, o)
	default:
		m.gemm(p, left, right, o.out, m.adds())
		if biased {
			m.addBias(p, o)
		}
	}
}

// addBias adds the bias to Y in float32.
func (m *multiplication) addBias(p nvidia.Product, o matrices) {
	m.sumParts(m.dtype, C.struct_sum_args{partial: o.out, bias: o.bias, out: o.out, n: C.i64(p.M * p.N), splits: 1, columns: C.int(p.N)})
}

// whole is the pass as one product, and its factors.
func (m *multiplication) whole(o matrices) (p nvidia.Product, left, right C.u64) {
	half, pixels := m.dtype == kernels.BFloat16, m.outputPixels()
	p = nvidia.Product{M: pixels, N: m.out, K: m.channels, TransposeB: true, BFloat16: half, TF32: m.dtype == kernels.TF32, BFloat16Out: half}
	left, right = m.at(kernels.X, 0), o.weight
	switch m.call.Pass {
	case kernels.BackwardInput:
		p.N, p.K, p.TransposeB = m.channels, m.out, false
		left = m.at(kernels.DY, 0)
	case kernels.BackwardParams:
		p.M, p.N, p.K, p.TransposeA, p.TransposeB, p.BFloat16Out = m.out, m.channels, pixels, true, false, false
		left, right = m.at(kernels.DY, 0), m.at(kernels.X, 0)
	}
	return p, left, right
}

// The workspace of cuBLAS, by shape alone, so that bits are the same everywhere. It has room for the result in float32 from each part
// that its inner dimension may be cut into, but no more than NVIDIA recommends. It chooses among the kernels that this is enough for.
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

func (m *multiplication) reserveProducts(p nvidia.Product) {
	bytes := productSpace(p, m.lib.vendors.workspace)
	m.products = space{at: m.reserveAligned(bytes), bytes: bytes}
}

// gemm appends a product by cuBLAS.
func (m *multiplication) gemm(p nvidia.Product, left, right, out C.u64, add bool) {
	m.issue(m.lib.vendors.multiplier.Launch(p, cu.DevicePtr(left), cu.DevicePtr(right), cu.DevicePtr(out), m.products.at, m.products.bytes, add))
}

// rowsOf returns how many rows of a result with so many columns are computed at a time.
func rowsOf(bytes, columns int64) int64 { return max(bytes/(4*columns)/rowsAtOnce, 1) * rowsAtOnce }

// parts computes a product in bfloat16 with a bias or the present result to add. It computes some rows at a time in float32, which
// are then added up and rounded once.
func (m *multiplication) parts(p nvidia.Product, left C.u64, o matrices) {
	total, rows := p.M, min(rowsOf(m.lib.vendors.part, p.N), p.M)
	partial := m.reserve(4 * rows * p.N)
	p.BFloat16Out = false
	for first := int64(0); first < total; first += rows {
		p.M = min(rows, total-first)
		m.gemm(p, left+C.u64(2*first*p.K), o.weight, partial, false)
		m.sumParts(kernels.BFloat16, C.struct_sum_args{
			partial: partial, bias: o.bias, out: o.out + C.u64(2*first*p.N), n: C.i64(p.M * p.N), splits: 1, columns: C.int(p.N), add: flag(m.adds()),
		})
	}
}

// widened computes Y with its bias as one product, rounded once. The bias is added by a few more inner indices, at which X holds ones and
// the weights the bias. Copies of X are made by slices.
func (m *multiplication) widened(p nvidia.Product, left C.u64, o matrices) {
	total, channels := p.M, p.K
	p.K = ceil(channels+C.BIAS_PARTS, C.EDGE_ALIGNMENT) * C.EDGE_ALIGNMENT
	weights := C.struct_widen_args{
		in: m.at(kernels.ParamRole, 0), bias: o.bias, out: m.reserve(2 * p.N * p.K), n: C.i64(p.N * p.K), c: C.int(channels), padded: C.int(p.K),
		narrow: m.narrow(),
	}
	addStream(m.builder, "pack", "widen_weights", p.N*p.K, 4, weights)
	rows := min(rowsOf(2*m.lib.vendors.slice, p.K), total)
	x := m.reserve(2 * rows * p.K)
	for first := int64(0); first < total; first += rows {
		p.M = min(rows, total-first)
		addStream(m.builder, "pack", "widen_rows", p.M*p.K, wide(kernels.BFloat16), C.struct_widen_args{
			in: after(left, first, channels, 0), out: x, n: C.i64(p.M * p.K), c: C.int(channels), padded: C.int(p.K),
		})
		m.gemm(p, x, weights.out, after(o.out, first, p.N, 0), false)
	}
}

// rowClass are the rows of Y or DY that are aligned alike: every classes-th from first on. Their columns from head on, main of them, are
// whole vectors at whole vectors' addresses; the others are their edges.
type rowClass struct{ first, rows, head, main int64 }

// rowClasses cuts rows of columns into classes; a whole vector has so many elements.
func rowClasses(rows, columns, vector int64) []rowClass {
	all := make([]rowClass, vector/gcd(vector, columns))
	for i := range all {
		first := int64(i)
		head := (vector - first*columns%vector) % vector
		all[i] = rowClass{first, ceil(rows-first, int64(len(all))), head, (columns - head) / vector * vector}
	}
	return all
}

// alignedBlocks computes a pass in TF32 where the rows of Y are not aligned. Each class of rows has a product of its aligned columns, whose
// strides are as many rows as there are classes. It has another one of the columns on each side, which are less than a vector. All results
// are float32, so that a product adds to another one's.
func (m *multiplication) alignedBlocks(o matrices) {
	classes := rowClasses(m.outputPixels(), m.out, wide(kernels.Float32))
	for i, k := range classes {
		behind := k.head + k.main
		for j, b := range []struct{ from, columns int64 }{{k.head, k.main}, {0, k.head}, {behind, m.out - behind}} {
			if b.columns > 0 {
				m.block(o, k, int64(len(classes)), b.from, b.columns, i, j)
			}
		}
	}
}

// block appends the product of some columns of a class of rows: number j of class i.
func (m *multiplication) block(o matrices, k rowClass, classes, from, columns int64, i, j int) {
	p := nvidia.Product{M: k.rows, N: columns, K: m.channels, TF32: true}
	image, row, weight := C.u64(4*k.first*m.channels), C.u64(4*(k.first*m.out+from)), C.u64(4*from*m.channels)
	images, rows := classes*m.channels, classes*m.out // elements between rows of a class
	switch m.call.Pass {
	case kernels.Forward:
		p.A, p.C, p.TransposeB = images, rows, true
		m.gemm(p, m.at(kernels.X, 0)+image, o.weight+weight, o.out+row, false)
	case kernels.BackwardInput:
		p.N, p.K, p.A, p.C = m.channels, columns, rows, images
		m.gemm(p, m.at(kernels.DY, 0)+row, o.weight+weight, o.out+image, j > 0 || m.adds())
	case kernels.BackwardParams:
		p.M, p.N, p.K, p.A, p.B, p.TransposeA = columns, m.channels, k.rows, rows, images, true
		m.gemm(p, m.at(kernels.DY, 0)+row, m.at(kernels.X, 0)+image, o.out+weight, i > 0 || m.adds())
	}
}

// alignedRows computes a pass in bfloat16 where the rows of Y are not aligned. Each class of rows has a product of its aligned columns, whose
// strides are as many rows as there are classes. It has another one of its edges; kernels of ours bring both together.
func (m *multiplication) alignedRows(o matrices) {
	pixels := m.outputPixels()
	classes := rowClasses(pixels, m.out, C.EDGE_ALIGNMENT)
	e := C.struct_edge_args{
		edges: m.reserve(2 * pixels * C.EDGES), weight: m.at(kernels.ParamRole, 0), count: C.i64(pixels),
		o: C.int(m.out), c: C.int(m.channels), classes: C.int(len(classes)), narrow: m.narrow(),
	}
	edgeWeights := int64(len(classes)) * C.EDGES * m.channels
	if m.call.Pass != kernels.BackwardParams {
		e.out = m.reserve(2 * edgeWeights)
		m.addEdges("edge_weights", edgeWeights, e)
	}
	switch m.call.Pass {
	case kernels.Forward:
		e.rows = o.out
		m.alignedForward(o, classes, e)
	case kernels.BackwardInput:
		e.rows = m.at(kernels.DY, 0)
		m.addEdges("edges_of", pixels*C.EDGES, e)
		m.alignedInput(o, classes, e)
	case kernels.BackwardParams:
		e.rows, e.out = m.at(kernels.DY, 0), o.out
		m.addEdges("edges_of", pixels*C.EDGES, e)
		m.alignedParams(classes, e, m.reserve(4*edgeWeights))
	}
}

// addEdges appends a kernel of pack.cu with a thread for each of n elements.
func (m *multiplication) addEdges(function string, n int64, e C.struct_edge_args) {
	addStream(m.builder, "pack", function, n, 1, e)
}

// after returns the address of an element of bfloat16 in row i of so many columns.
func after(base C.u64, i, columns, at int64) C.u64 { return base + C.u64(2*(i*columns+at)) }

func (m *multiplication) alignedForward(o matrices, classes []rowClass, e C.struct_edge_args) {
	n := int64(len(classes))
	for i, k := range classes {
		p := nvidia.Product{M: k.rows, N: k.main, K: m.channels, A: n * m.channels, C: n * m.out, TransposeB: true, BFloat16: true, BFloat16Out: true}
		x := after(m.at(kernels.X, 0), k.first, m.channels, 0)
		m.gemm(p, x, after(o.weight, k.head, m.channels, 0), after(o.out, k.first, m.out, k.head), false)
		p.N, p.C = C.EDGES, n*C.EDGES
		m.gemm(p, x, after(e.out, int64(i)*C.EDGES, m.channels, 0), after(e.edges, k.first, C.EDGES, 0), false)
	}
	m.addEdges("edges_to", int64(e.count)*C.EDGES, e)
}

// alignedInput adds up a row of DX in float32 before it is rounded.
func (m *multiplication) alignedInput(o matrices, classes []rowClass, e C.struct_edge_args) {
	n, pixels := int64(len(classes)), m.outputPixels()
	rows := min(rowsOf(m.lib.vendors.slice, m.channels), pixels)
	sums := m.reserve(4 * rows * m.channels)
	for first := int64(0); first < pixels; first += rows {
		slice := min(rows, pixels-first)
		for i, k := range classes {
			if k.first >= slice {
				break
			}
			p := nvidia.Product{M: ceil(slice-k.first, n), N: m.channels, K: C.EDGES, A: n * C.EDGES, C: n * m.channels, BFloat16: true}
			row, to := first+k.first, sums+C.u64(4*k.first*m.channels)
			m.gemm(p, after(e.edges, row, C.EDGES, 0), after(e.out, int64(i)*C.EDGES, m.channels, 0), to, false)
			p.K, p.A = k.main, n*m.out
			m.gemm(p, after(m.at(kernels.DY, 0), row, m.out, k.head), after(o.weight, k.head, m.channels, 0), to, true)
		}
		m.sumParts(kernels.BFloat16, C.struct_sum_args{
			partial: sums, out: after(o.out, first, m.channels, 0), n: C.i64(slice * m.channels), splits: 1, columns: 1, add: flag(m.adds()),
		})
	}
}

// alignedParams adds the classes' products to the gradient, which the first one writes unless it is added to: that has no head, and its
// tail is cleared.
func (m *multiplication) alignedParams(classes []rowClass, e C.struct_edge_args, sums C.u64) {
	n := int64(len(classes))
	if main := classes[0].main; !m.adds() {
		m.strip(kernels.Float32, C.struct_strip_args{
			out: e.out + C.u64(4*main*m.channels), rows: C.i64(m.out - main), width: C.int(m.channels), out_stride: C.i64(m.channels),
		}, m.channels)
	}
	for i, k := range classes {
		p := nvidia.Product{M: k.main, N: m.channels, K: k.rows, A: n * m.out, B: n * m.channels, TransposeA: true, BFloat16: true}
		x := after(m.at(kernels.X, 0), k.first, m.channels, 0)
		m.gemm(p, after(e.rows, k.first, m.out, k.head), x, e.out+C.u64(4*k.head*m.channels), i > 0 || m.adds())
		p.M, p.A = C.EDGES, n*C.EDGES
		m.gemm(p, after(e.edges, k.first, C.EDGES, 0), x, sums+C.u64(4*int64(i)*C.EDGES*m.channels), false)
	}
	e.edges = sums
	m.addEdges("edge_sums", 2*C.EDGE_ALIGNMENT*m.channels, e)
}
