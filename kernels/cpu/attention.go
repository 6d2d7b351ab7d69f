package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

func (b *builder) attention(op kernels.Attention) {
	x := b.call.In[0].Shape
	dim := int64(op.Dim(b.call.In[0]))
	args := C.struct_attention_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), dy: b.at(kernels.DY, 0), dx: b.at(kernels.DX, 0), rows: b.at(kernels.Save, 0),
		heads: C.int64_t(op.Heads), kv: C.int64_t(op.KVHeads), dim: C.int64_t(dim),
		length: C.int64_t(x[1]), channels: C.int64_t(x[2]),
		accumulate: flag(b.call.Adds(0)), bidirectional: flag(op.Bidirectional), scale: C.float(op.ScoreScale(b.call.In[0])),
		samples: C.int64_t(x[0]), table: C.int64_t(op.Table), masks: C.int64_t(op.Masks), mask_heads: flag(op.MaskHeads),
	}
	next := 0
	if op.Table > 0 {
		args.bias, args.index, next = b.at(kernels.ParamRole, 0), b.at(kernels.ParamRole, 1), 2
	}
	if op.Masks > 0 {
		args.mask = b.at(kernels.ParamRole, next)
	}
	queries, keys, scores := attentionScratch(dim)
	if b.call.Pass != kernels.Forward {
		addAttentionGradients(b, op, args)
		return
	}
	// Queries, outputs; values; scores; keys.
	s := b.reserveScratch(4 * (2*queries + keys + scores + dim*C.ATT_LEAD))
	addJob(b, C.ATTENTION_FORWARD, int64(x[0])*int64(op.Heads)*ceil(int64(x[1]), C.ATT_ROWS), s, args)
}

// addAttentionGradients adds the jobs of a backward.
func addAttentionGradients(b *builder, op kernels.Attention, args C.struct_attention_args) {
	x := b.call.In[0].Shape
	dim := int64(op.Dim(b.call.In[0]))
	queries, keys, scores := attentionScratch(dim)
	if !b.call.Skips(0) { // queries and outputs' gradients; keys and two gradients; scores and gradients; keys and values, transposed
		floats := 2*queries + 3*keys + 2*scores + 2*dim*C.ATT_LEAD
		if b.half { // gradients of the queries that share a head of keys: they are sums over blocks of keys
			floats += int64(op.Heads/op.KVHeads) * int64(x[1]) * dim
		}
		s := b.reserveScratch(4 * floats)
		addJob(b, C.ATTENTION_BACKWARD, int64(x[0])*int64(op.KVHeads), s, args)
	}
	if op.Table > 0 { // queries and outputs' gradients; scores and gradients; keys and values, transposed; a column of the table
		s := b.reserveScratch(4*(2*queries+2*scores+2*dim*C.ATT_LEAD) + 8*int64(op.Table))
		args.dbias, args.accumulate = b.at(kernels.DParam, 0), flag(b.call.AddParams)
		addJob(b, C.ATTENTION_BIAS, int64(op.Heads), s, args)
	}
}

// attentionScratch returns the floats of a block of queries, of keys and of scores.
func attentionScratch(dim int64) (queries, keys, scores int64) {
	lead := ceil(dim, 16)*16 + C.GAP
	return C.ATT_ROWS * lead, C.ATT_KEYS * lead, C.ATT_ROWS * C.ATT_LEAD
}
