package cpu

// #include "job.h"
import "C"

import (
	"math"

	"plimsoll/kernels"
)

func (b *builder) attention(op kernels.Attention) {
	x := b.call.In[0].Shape
	dim := int64(op.Dim(b.call.In[0]))
	args := C.struct_attention_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), dy: b.at(kernels.DY, 0), dx: b.at(kernels.DX, 0), rows: b.at(kernels.Save, 0),
		heads: C.int64_t(op.Heads), kv: C.int64_t(op.KVHeads), dim: C.int64_t(dim),
		length: C.int64_t(x[1]), channels: C.int64_t(x[2]),
		accumulate: flag(b.call.Adds(0)), bidirectional: flag(op.Bidirectional), scale: C.float(1 / math.Sqrt(float64(dim))),
	}
	queries, keys, scores := attentionScratch(dim)
	switch samples := int64(x[0]); {
	case b.call.Pass == kernels.Forward: // queries, outputs; values; scores; keys
		s := b.reserveScratch(4 * (2*queries + keys + scores + dim*C.ATT_LEAD))
		addJob(b, C.ATTENTION_FORWARD, samples*int64(op.Heads)*ceil(int64(x[1]), C.ATT_ROWS), s, args)
	case !b.call.Skips(0): // queries and outputs' gradients; keys and two gradients; scores and gradients; keys and values, transposed
		floats := 2*queries + 3*keys + 2*scores + 2*dim*C.ATT_LEAD
		if b.half { // gradients of the queries that share a head of keys: they are sums over blocks of keys
			floats += int64(op.Heads/op.KVHeads) * int64(x[1]) * dim
		}
		s := b.reserveScratch(4 * floats)
		addJob(b, C.ATTENTION_BACKWARD, samples*int64(op.KVHeads), s, args)
	}
}

// attentionScratch returns the floats of a block of queries, of keys and of scores.
func attentionScratch(dim int64) (queries, keys, scores int64) {
	lead := ceil(dim, 16)*16 + C.GAP
	return C.ATT_ROWS * lead, C.ATT_KEYS * lead, C.ATT_ROWS * C.ATT_LEAD
}
