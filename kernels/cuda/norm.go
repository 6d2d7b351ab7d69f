//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

const (
	sumLanes   = 32  // at most; see NORM_THREADS in src/norm.cu
	sumBlocks  = 528 // that a sum over rows is shared out to, about: four for each multiprocessor of a large GPU
	groupRows  = 4   // of a thread, at least
	mergeLanes = 32  // MERGE_LANES in src/norm.cu
	mergeRows  = 32  // MERGE_ROWS
	// applyBlocks is how many blocks a kernel has that goes through all elements, about: four times as many as fit. Their threads read
	// coefficients first.
	applyBlocks = 1584
)

// chunked cuts rows into chunks of one size, so that the blocks of all chunks are about as many as wanted.
func chunked(rows, blocks, least int64) (chunks, chunkRows int64) {
	chunks = max(min(blocks, ceil(rows, least)), 1)
	chunkRows = ceil(rows, chunks)
	return ceil(rows, chunkRows), chunkRows
}

func mergeGrid(channels int64) dim { return dim{ceil(channels, mergeLanes), 1, 1} }

var mergeBlock = dim{mergeLanes, mergeRows, 1}

// norm is BatchNorm: sums, coefficients of each channel, and one pass that applies them.
func (b *builder) norm(op kernels.BatchNorm) {
	x := b.call.In[0]
	c := channels(x)
	rows := x.Elements() / c
	args := C.struct_norm_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), weight: b.at(kernels.ParamRole, 0),
		running_mean: b.at(kernels.ParamRole, 2), running_var: b.at(kernels.ParamRole, 3),
		mean: b.at(kernels.Save, 0), invstd: b.at(kernels.Save, 1),
		rows: C.i64(rows), channels: C.int(c), relu: flag(op.ReLU), train: flag(b.call.Train && !op.Frozen),
		epsilon: C.double(op.Epsilon), momentum: C.double(op.Momentum),
	}
	if b.call.Pass == kernels.Forward {
		b.normForward(args, x.DType)
	} else {
		b.normBackward(args, x.DType)
	}
}

// normSums appends a kernel that leaves two sums of each chunk in part.
func (b *builder) normSums(function string, args *C.struct_norm_args, d kernels.DType) {
	l := newLanes(d, int64(args.channels), 0, sumLanes)
	chunks, chunkRows := chunked(int64(args.rows), ceil(sumBlocks, l.grid), l.rows*groupRows*2)
	args.chunks, args.chunk_rows = C.int(chunks), C.i64(chunkRows)
	args.part = b.reserve(chunks * int64(args.channels) * 2 * 8)
	addStep(b, "norm", function+l.suffix(d), dim{l.grid, chunks, 1}, l.block(), 0, *args)
}

// normApply appends a kernel that goes through all elements.
func (b *builder) normApply(function string, args C.struct_norm_args, d kernels.DType) {
	l := newLanes(d, int64(args.channels), 0, streamThreads)
	chunks, chunkRows := chunked(int64(args.rows), ceil(applyBlocks, l.grid), l.rows*groupRows)
	args.chunk_rows = C.i64(chunkRows)
	addStep(b, "norm", function+l.suffix(d), dim{l.grid, chunks, 1}, l.block(), 0, args)
}

func (b *builder) normForward(args C.struct_norm_args, d kernels.DType) {
	args.residual, args.bias = b.at(kernels.X, 1), b.at(kernels.ParamRole, 1)
	args.update = flag(args.train != 0 && b.call.UpdateStats)
	args.coef = b.reserve(2 * int64(args.channels) * 4)
	if args.train != 0 {
		b.normSums("norm_moments", &args, d)
	}
	addStep(b, "norm", "norm_statistics", mergeGrid(int64(args.channels)), mergeBlock, 0, args)
	b.normApply("norm_apply", args, d)
}

func (b *builder) normBackward(args C.struct_norm_args, d kernels.DType) {
	args.dy, args.dx, args.dresidual = b.at(kernels.DY, 0), b.at(kernels.DX, 0), b.at(kernels.DX, 1)
	args.dweight, args.dbias = b.at(kernels.DParam, 0), b.at(kernels.DParam, 1)
	args.add_dx, args.add_dresidual = flag(b.call.Adds(0)), flag(b.call.Adds(1))
	args.add_params = flag(b.call.AddParams)
	args.coef = b.reserve(3 * int64(args.channels) * 4)
	b.normSums("norm_backward_sums", &args, d)
	addStep(b, "norm", "norm_backward_params", mergeGrid(int64(args.channels)), mergeBlock, 0, args)
	if !b.call.Skips(0) || len(b.call.In) > 1 && !b.call.Skips(1) {
		b.normApply("norm_backward_apply", args, d)
	}
}

// columns appends the sum over rows of a tensor of rows x width, into out.
func (b *builder) columns(in, out C.u64, d kernels.DType, rows, width int64, add bool) {
	l := newLanes(d, width, 0, sumLanes)
	chunks, chunkRows := chunked(rows, ceil(sumBlocks, l.grid), l.rows*groupRows*2)
	args := C.struct_columns_args{
		in: in, out: out, part: b.reserve(chunks * width * 8),
		rows: C.i64(rows), chunk_rows: C.i64(chunkRows), channels: C.int(width), chunks: C.int(chunks), add: flag(add),
	}
	addStep(b, "norm", "columns"+l.suffix(d), dim{l.grid, chunks, 1}, l.block(), 0, args)
	addStep(b, "norm", "columns_total", mergeGrid(width), mergeBlock, 0, args)
}
