package cpu

// #include "job.h"
import "C"

import (
	"fmt"

	"plimsoll/kernels"
)

func (l *Library) build(c kernels.Call, uses []access) *builder {
	b := l.newBuilder(uses)
	addCall(b, c)
	return b
}

// addCall appends the jobs of a call.
func addCall(b *builder, c kernels.Call) {
	b.call, b.half = c, c.Has(kernels.BFloat16)
	switch op := c.Op.(type) {
	case kernels.Conv2D:
		b.conv(newConvolution(op.Defaults(), c.In[0]))
	case kernels.Linear:
		b.conv(newLinear(op, c.In[0]))
	case kernels.BatchNorm:
		b.norm(op.Defaults())
	case kernels.ReLU:
		b.relu(op)
	case kernels.Add:
		b.add()
	case kernels.Concat, kernels.Pack:
		b.concat()
	case kernels.Slice:
		b.slice(op.Defaults())
	case kernels.Upsample:
		b.upsample(op)
	case kernels.MaxPool:
		b.pool(kernels.AvgPool(op.Defaults()), C.MAXPOOL_FORWARD, C.MAXPOOL_BACKWARD)
	case kernels.AvgPool:
		b.pool(op.Defaults(), C.AVGPOOL_FORWARD, C.AVGPOOL_BACKWARD)
	case kernels.GlobalAvgPool:
		b.globalPool()
	case kernels.AdaptiveAvgPool:
		b.adaptivePool(op)
	case kernels.Cast:
		b.cast(op)
	case kernels.Dropout:
		b.dropout(op)
	case kernels.SoftmaxCrossEntropy, kernels.ElementLoss:
		addLoss(b, op)
	case kernels.Embedding:
		b.embedding(op)
	case kernels.LayerNorm:
		b.rowNorm(op.Defaults().Epsilon, op.Offset(), true)
	case kernels.RMSNorm:
		b.rowNorm(op.Defaults().Epsilon, op.Offset(), false)
	case kernels.GELU:
		b.gelu(op)
	case kernels.SiLU:
		b.activation(C.SILU_FORWARD, C.SILU_BACKWARD, 0)
	case kernels.Multiply:
		b.elementProduct()
	case kernels.Rotary:
		b.rotary(op.Defaults())
	case kernels.Attention:
		b.attention(op.Defaults())
	default:
		if !addArrangement(b, op) {
			b.err = fmt.Errorf("%s: %w", op.Kind(), kernels.NoKernel("kernels/cpu"))
		}
	}
}
