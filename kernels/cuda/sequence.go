//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"fmt"
	"math"

	"plimsoll/kernels"
)

var rowBlock = dim{256, 1, 1} // ROW_THREADS in src/sequence.cu, ATT_THREADS in src/attention.cu

// perRow is a grid whose blocks take one row after the other.
func perRow(rows int64) dim { return dim{min(rows, maxRowBlocks), 1, 1} }

// activation is an elementwise function whose backward reads its input.
// Kernels take vector elements at a time.
func (b *builder) activation(name string, vector int64, by float32) {
	x := b.call.In[0]
	args := C.struct_map_args{a: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), n: C.i64(x.Elements()), factor: C.float(by)}
	function := name + "_forward"
	if b.call.Pass != kernels.Forward {
		if b.call.Skips(0) {
			return
		}
		args.a, args.b, args.out, args.add = b.at(kernels.DY, 0), b.at(kernels.X, 0), b.at(kernels.DX, 0), flag(b.call.Adds(0))
		function = name + "_backward"
	}
	addStream(b, "activation", function+suffix(x.DType), x.Elements(), vector, args)
}

func (b *builder) elementProduct() {
	x := b.call.In[0]
	n := C.i64(x.Elements())
	if b.call.Pass == kernels.Forward {
		args := C.struct_map_args{a: b.at(kernels.X, 0), b: b.at(kernels.X, 1), out: b.at(kernels.Y, 0), n: n}
		addStream(b, "activation", "multiply_forward"+suffix(x.DType), x.Elements(), wide(x.DType), args)
		return
	}
	addStream(b, "activation", "multiply_backward"+suffix(x.DType), x.Elements(), wide(x.DType), C.struct_multiply_args{
		dy: b.at(kernels.DY, 0), a: b.at(kernels.X, 0), b: b.at(kernels.X, 1), da: b.at(kernels.DX, 0), db: b.at(kernels.DX, 1),
		n: n, add_a: flag(b.call.Adds(0)), add_b: flag(b.call.Adds(1)),
	})
}

const (
	sortBits   = 8                            // SORT_BITS in src/sequence.cu
	sortWarps  = 8                            // SORT_WARPS
	tokenPiece = 64                           // PIECE
	sortChunk  = 512                          // rows of a block that sorts, at least
	mostTokens = math.MaxInt32 - 32*sortWarps // so that loops over rows end within 32 bits
	sortBlocks = 128                          // at most: each of them adds up the counts of all
)

// embedding looks up tokens forward. Backward sorts the rows by token and adds up each token's.
func (b *builder) embedding(op kernels.Embedding) {
	tokens := b.call.In[0].Elements()
	if tokens > mostTokens {
		b.fail("%d tokens are more than %d: use smaller batches", tokens, mostTokens)
		return
	}
	args := C.struct_embed_args{
		x: b.at(kernels.X, 0), weight: b.at(kernels.ParamRole, 0), position: b.at(kernels.ParamRole, 1), y: b.at(kernels.Y, 0),
		tokens: C.int(tokens), length: C.int(b.call.In[0].Shape[1]), width: C.int(op.Width),
		vocabulary: C.int(op.Vocabulary), positions: C.int(op.Positions), add: flag(b.call.AddParams), fixed: C.int(op.Fixed - 1), uncounted: C.int(op.Uncounted - 1),
	}
	if op.Uncounted > 0 {
		args.numbers = b.reserve(tokens * kernels.Int32.Size())
		addStep(b, "sequence", "embed_numbers", perRow(int64(b.call.In[0].Shape[0])), rowBlock, 0, args)
	}
	if b.call.Pass == kernels.Forward {
		addStep(b, "sequence", "embed_forward"+suffix(op.To), perRow(tokens), rowBlock, 0, args)
		return
	}
	args.weight, args.position, args.y = b.at(kernels.DParam, 0), b.at(kernels.DParam, 1), b.at(kernels.DY, 0)
	tableGradient(b, args, op)
	switch {
	case op.Uncounted > 0: // a table of positions, as one of tokens
		args.x, args.weight, args.vocabulary, args.fixed = args.numbers, args.position, args.positions, args.uncounted
		tableGradient(b, args, op)
	case op.Positions > 0:
		embedRows(b, "position_backward", int64(op.Positions), args, op)
	}
}

// tableGradient adds up, for each row of a table, the gradients of the tokens that have it.
func tableGradient(b *builder, args C.struct_embed_args, op kernels.Embedding) {
	b.sortTokens(&args)
	if pieces := int64(args.tokens) / tokenPiece; pieces > 0 {
		args.parts = b.reserve(pieces * int64(op.Width) * 4)
		embedRows(b, "embed_pieces", pieces, args, op)
	}
	embedRows(b, "embed_backward", int64(args.vocabulary), args, op)
}

// embedRows adds a step of so many rows of channels.
func embedRows(b *builder, function string, rows int64, args C.struct_embed_args, op kernels.Embedding) {
	l := newLanes(op.To, int64(op.Width), 0, sumLanes)
	addStep(b, "sequence", function+l.suffix(op.To), dim{l.grid, min(ceil(rows, l.rows), maxRowBlocks), 1}, l.block(), 0, args)
}

// sortTokens appends the sort of the rows by their tokens, and where each token's rows start.
func (b *builder) sortTokens(args *C.struct_embed_args) {
	tokens, vocabulary := int64(args.tokens), int64(args.vocabulary)
	chunk := max(sortChunk, ceil(ceil(tokens, sortBlocks), 32*sortWarps)*32*sortWarps)
	grid := dim{ceil(tokens, chunk), 1, 1}
	args.chunk, args.counts = C.int(chunk), b.reserve(grid[0]<<sortBits*4)
	orders := [2]C.u64{b.reserve(tokens * 4), b.reserve(tokens * 4)}
	for shift := 0; vocabulary>>shift > 0; shift += sortBits { // keys are 0 to vocabulary
		args.shift, args.order = C.int(shift), orders[0]
		addStep(b, "sequence", "sort_count", grid, rowBlock, 0, *args)
		addStep(b, "sequence", "sort_place", grid, rowBlock, 0, *args)
		args.unsorted, orders[0], orders[1] = orders[0], orders[1], orders[0]
	}
	args.starts = b.reserve((vocabulary + 1) * 4)
	addStep(b, "sequence", "embed_starts", dim{ceil(vocabulary+1, rowBlock[0]), 1, 1}, rowBlock, 0, *args)
}

const (
	sumAtOnce = 2 // SUM_AT_ONCE in src/sequence.cu
	rowWarps  = 8 // ROW_WARPS
)

// rowNormStep appends a kernel that goes through all rows. Rows of whole vectors that a warp can hold are its; blocks take others.
func (b *builder) rowNormStep(function string, args C.struct_rownorm_args, d kernels.DType) {
	c, rows := int64(args.channels), int64(args.rows)
	if c%wide(d) == 0 {
		for _, held := range []int64{16, 32, 64} { // channels of a lane, see HELD_INSTANCES in src/sequence.cu
			if c <= 32*held {
				function += "_held" + suffix(d) + fmt.Sprintf("_h%d", held)
				addStep(b, "sequence", function, perRow(ceil(rows, rowWarps)), rowBlock, 0, args)
				return
			}
		}
	}
	addStep(b, "sequence", function+suffix(d), perRow(rows), rowBlock, 0, args)
}

// rowNorm is LayerNorm, or RMSNorm, which has no bias and saves no mean. The parameters' gradients come first: the input's may
// lie on what they are made of.
func (b *builder) rowNorm(epsilon, offset float32, centered bool) {
	x := b.call.In[0]
	c := channels(x)
	rows := x.Elements() / c
	args := C.struct_rownorm_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), weight: b.at(kernels.ParamRole, 0), inverse: b.at(kernels.Save, 0),
		rows: C.i64(rows), channels: C.int(c), epsilon: C.double(epsilon), offset: C.float(offset),
	}
	if centered {
		args.mean, args.inverse, args.bias = b.at(kernels.Save, 0), b.at(kernels.Save, 1), b.at(kernels.ParamRole, 1)
	}
	if b.call.Pass == kernels.Forward {
		b.rowNormStep("rownorm_forward", args, x.DType)
		return
	}
	l, outputs := newLanes(x.DType, c, 0, sumLanes), int64(len(b.call.Op.Params(b.call.In)))
	chunks, chunkRows := chunked(rows, ceil(sumBlocks, l.grid), l.rows*sumAtOnce*2)
	args.chunks, args.chunk_rows, args.part = C.int(chunks), C.i64(chunkRows), b.reserve(chunks*c*2*8)
	args.dy, args.dx, args.add_dx = b.at(kernels.DY, 0), b.at(kernels.DX, 0), flag(b.call.Adds(0))
	args.dweight, args.dbias, args.add_params = b.at(kernels.DParam, 0), b.at(kernels.DParam, 1), flag(b.call.AddParams)
	addStep(b, "sequence", "rownorm_sums"+l.suffix(x.DType), dim{l.grid, chunks, 1}, l.block(), 0, args)
	addStep(b, "sequence", "rownorm_params", dim{ceil(c, mergeLanes), outputs, 1}, mergeBlock, 0, args)
	if !b.call.Skips(0) {
		b.rowNormStep("rownorm_backward", args, x.DType)
	}
}

// rotary turns forward, and gradients back, by a table of the angles.
func (b *builder) rotary(op kernels.Rotary) {
	x := b.call.In[0]
	length, rows := int64(x.Shape[1]), int64(x.Shape[0])*int64(x.Shape[1])
	args := C.struct_rotary_args{
		in: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), rows: C.i64(rows), length: C.int(length), channels: C.int(x.Shape[2]),
		heads: C.int(op.Heads), dim: C.int(op.Dim), half: C.int(op.Turned / 2), ratio: C.double(op.Ratio()), sign: 1,
		factor: C.double(op.Scaling.Factor), low: C.double(op.Scaling.Low), high: C.double(op.Scaling.High), turns: C.double(op.Scaling.Turns()),
	}
	if b.call.Pass != kernels.Forward {
		if b.call.Skips(0) {
			return
		}
		args.in, args.out, args.sign, args.add = b.at(kernels.DY, 0), b.at(kernels.DX, 0), -1, flag(b.call.Adds(0))
	}
	args.table = b.reserve(length * int64(op.Turned) * 4)
	addStep(b, "sequence", "rotary_table", dim{ceil(length*int64(op.Turned)/2, rowBlock[0]), 1, 1}, rowBlock, 0, args)
	addStep(b, "sequence", "rotary"+suffix(x.DType), perRow(rows), rowBlock, 0, args)
}

const (
	attentionTile = 64 // TILE and
	meanRows      = 32 // MEAN_ROWS in src/attention.cu

	termBlocks = 2 * multiprocessors // that add up gradients of terms, at least
)

func (b *builder) attention(op kernels.Attention) {
	x := b.call.In[0]
	samples, length, width := int64(x.Shape[0]), int64(x.Shape[1]), int64(op.Dim(x))
	heads, kv := int64(op.Heads), int64(op.KVHeads)
	args := C.struct_attention_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), dy: b.at(kernels.DY, 0), dx: b.at(kernels.DX, 0), rows: b.at(kernels.Save, 0),
		total: C.i64(samples * heads * length), channels: C.i64(x.Shape[2]), heads: C.int(heads), kv: C.int(kv), dim: C.int(width), length: C.int(length),
		add: flag(b.call.Adds(0)), bidirectional: flag(op.Bidirectional), scale: C.float(op.ScoreScale(x)),
	}
	setTerms(b, op, &args)
	flash := b.lib.flash(op, x, b.call.Pass)
	tiles, parts := ceil(length, attentionTile), ceil(width, attentionTile)
	if b.call.Pass == kernels.Forward {
		if flash.head > 0 {
			grid := dim{ceil(length, flash.positions(kernels.Forward)) * samples * heads, 1, 1}
			addStep(b, flash.module("forward"), flash.name("forward"), grid, flashBlock, flash.forwardShared(), args)
			return
		}
		addStep(b, "attention", "attention_forward"+suffix(x.DType), dim{tiles * samples * heads, parts, 1}, rowBlock, 0, args)
		return
	}
	if b.call.Skips(0) && op.Table == 0 {
		return
	}
	args.means = b.reserve(samples * heads * length * 4)
	addStep(b, "attention", "attention_means"+suffix(x.DType), dim{ceil(samples*heads*length, meanRows), 1, 1}, rowBlock, 0, args)
	switch {
	case b.call.Skips(0):
	case flash.head > 0:
		blocks, shared := ceil(length, flash.positions(kernels.Backward))*samples, flash.backwardShared()
		addStep(b, flash.module("backward"), flash.name("queries"), dim{blocks * heads, 1, 1}, flashBlock, shared, args)
		addStep(b, flash.module("backward"), flash.name("keys"), dim{blocks * kv, 1, 1}, flashBlock, shared, args)
		if flash.head > 128 { // of keys alone
			addStep(b, flash.module("backward"), flash.name("values"), dim{blocks * kv, 1, 1}, flashBlock, shared, args)
		}
	default:
		addStep(b, "attention", "attention_queries"+suffix(x.DType), dim{tiles * samples * heads, parts, 1}, rowBlock, 0, args)
		addStep(b, "attention", "attention_keys"+suffix(x.DType), dim{tiles * samples * kv, parts, 1}, rowBlock, 0, args)
	}
	if op.Table > 0 {
		args.dbias, args.add = b.at(kernels.DParam, 0), flag(b.call.AddParams)
		rows, columns := tiles, tiles
		if flash.head > 0 {
			rows, columns = ceil(length, flash.positions(kernels.Backward)), ceil(length, flash.moving())
		}
		sampleParts := max(min(ceil(termBlocks, rows*columns*heads), maxPartial/(heads*length*length*4), samples), 1)
		args.parts, args.terms = C.int(sampleParts), b.reserve(sampleParts*heads*length*length*4)
		if flash.head > 0 {
			addStep(b, flash.module("backward"), flash.kernel("terms"), dim{rows * columns * sampleParts, heads, 1}, flashBlock, flash.backwardShared(), args)
		} else {
			addStep(b, "attention", "attention_terms"+suffix(x.DType), dim{rows * heads * sampleParts, columns, 1}, rowBlock, 0, args)
		}
		addStep(b, "attention", "attention_table"+suffix(x.DType), dim{int64(op.Table) * heads, 1, 1}, rowBlock, 0, args)
	}
}

// setTerms sets the arguments of what is added to scores.
func setTerms(b *builder, op kernels.Attention, args *C.struct_attention_args) {
	x, next := b.call.In[0], 0
	args.samples, args.table, args.masks, args.mask_heads = C.i64(x.Shape[0]), C.int(op.Table), C.int(op.Masks), flag(op.MaskHeads)
	if op.Table > 0 {
		args.bias, args.index, next = b.at(kernels.ParamRole, 0), b.at(kernels.ParamRole, 1), 2
	}
	if op.Masks > 0 {
		args.mask = b.at(kernels.ParamRole, next)
	}
}
