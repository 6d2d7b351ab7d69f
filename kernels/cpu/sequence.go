package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// activation is an elementwise function whose backward reads its input.
func (b *builder) activation(forward, backward int64, by float32) {
	switch {
	case b.call.Pass == kernels.Forward:
		b.mapped(forward, C.struct_map_args{a: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), factor: C.float(by)})
	case !b.call.Skips(0):
		b.mapped(backward, C.struct_map_args{
			a: b.at(kernels.DY, 0), b: b.at(kernels.X, 0), out: b.at(kernels.DX, 0), accumulate: flag(b.call.Adds(0)), factor: C.float(by),
		})
	}
}

func (b *builder) gelu(op kernels.GELU) {
	if op.Tanh {
		b.activation(C.GELU_TANH_FORWARD, C.GELU_TANH_BACKWARD, 0)
	} else {
		b.activation(C.GELU_FORWARD, C.GELU_BACKWARD, 0)
	}
}

func (b *builder) elementProduct() {
	if b.call.Pass == kernels.Forward {
		b.mapped(C.MULTIPLY_FORWARD, C.struct_map_args{a: b.at(kernels.X, 0), b: b.at(kernels.X, 1), out: b.at(kernels.Y, 0)})
		return
	}
	n := b.call.In[0].Elements()
	addJob(b, C.MULTIPLY_BACKWARD, ceil(n, grain), scratch{}, C.struct_multiply_args{
		dy: b.at(kernels.DY, 0), a: b.at(kernels.X, 0), b: b.at(kernels.X, 1), da: b.at(kernels.DX, 0), db: b.at(kernels.DX, 1),
		n: C.int64_t(n), chunk: grain, add_a: flag(b.call.Adds(0)), add_b: flag(b.call.Adds(1)),
	})
}

func (b *builder) embedding(op kernels.Embedding) {
	width, tokens := int64(op.Width), b.call.In[0].Elements()
	args := C.struct_embed_args{
		x: b.at(kernels.X, 0), weight: b.at(kernels.ParamRole, 0), position: b.at(kernels.ParamRole, 1), y: b.at(kernels.Y, 0),
		tokens: C.int64_t(tokens), length: C.int64_t(b.call.In[0].Shape[1]), width: C.int64_t(width),
		vocabulary: C.int64_t(op.Vocabulary), positions: C.int64_t(op.Positions),
		per_task: C.int64_t(rowsPerTask(width)), accumulate: flag(b.call.AddParams), fixed: C.int64_t(op.Fixed - 1), uncounted: C.int64_t(op.Uncounted - 1),
	}
	if op.Uncounted > 0 {
		args.numbers = b.reserve(tokens * kernels.Int32.Size())
		addJob(b, C.EMBED_NUMBERS, int64(b.call.In[0].Shape[0]), scratch{}, args)
	}
	if b.call.Pass == kernels.Forward {
		addJob(b, C.EMBED_FORWARD, ceil(tokens, rowsPerTask(width)), scratch{}, args)
		return
	}
	args.weight, args.position, args.y = b.at(kernels.DParam, 0), b.at(kernels.DParam, 1), b.at(kernels.DY, 0)
	addJob(b, C.EMBED_BACKWARD, ceil(width, C.EMBED_COLUMNS)*ceil(int64(op.Vocabulary), C.EMBED_ROWS), scratch{}, args)
	switch {
	case op.Uncounted > 0: // a table of positions, as one of tokens
		args.x, args.weight, args.vocabulary, args.fixed = args.numbers, args.position, args.positions, args.uncounted
		addJob(b, C.EMBED_BACKWARD, ceil(width, C.EMBED_COLUMNS)*ceil(int64(op.Positions), C.EMBED_ROWS), scratch{}, args)
	case op.Positions > 0:
		addJob(b, C.POSITION_BACKWARD, ceil(int64(op.Positions), rowsPerTask(width)), scratch{}, args)
	}
}

// rowNorm is LayerNorm, or RMSNorm, which has no bias and saves no mean.
func (b *builder) rowNorm(epsilon, offset float32, centered bool) {
	x := b.call.In[0]
	channels := int64(x.Shape[len(x.Shape)-1])
	rows := x.Elements() / channels
	args := C.struct_rownorm_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), weight: b.at(kernels.ParamRole, 0), inverse: b.at(kernels.Save, 0),
		rows: C.int64_t(rows), channels: C.int64_t(channels), per_task: C.int64_t(rowsPerTask(channels)), epsilon: C.float(epsilon), offset: C.float(offset),
	}
	if centered {
		args.mean, args.inverse, args.bias = b.at(kernels.Save, 0), b.at(kernels.Save, 1), b.at(kernels.ParamRole, 1)
	}
	if b.call.Pass == kernels.Forward {
		addJob(b, C.ROWNORM_FORWARD, ceil(rows, rowsPerTask(channels)), scratch{}, args)
		return
	}
	chunks := max(min(normTasks, ceil(x.Elements(), grain), rows), 1)
	args.chunks, args.part = C.int64_t(chunks), b.reserve(chunks*channels*2*8)
	args.dy, args.dx, args.add_dx = b.at(kernels.DY, 0), b.at(kernels.DX, 0), flag(b.call.Adds(0))
	args.dweight, args.dbias, args.add_params = b.at(kernels.DParam, 0), b.at(kernels.DParam, 1), flag(b.call.AddParams)
	addJob(b, C.ROWNORM_BACKWARD, chunks, scratch{}, args)
	addJob(b, C.ROWNORM_PARAMS, ceil(channels, C.NORM_CHANNELS), scratch{}, args)
}

// rotary turns forward, and gradients back.
func (b *builder) rotary(op kernels.Rotary) {
	x := b.call.In[0].Shape
	args := C.struct_rotary_args{
		in: b.at(kernels.X, 0), out: b.at(kernels.Y, 0), samples: C.int64_t(x[0]), length: C.int64_t(x[1]), channels: C.int64_t(x[2]),
		heads: C.int64_t(op.Heads), dim: C.int64_t(op.Dim), half: C.int64_t(op.Turned / 2), ratio: C.double(op.Ratio()), sign: 1,
		factor: C.double(op.Scaling.Factor), low: C.double(op.Scaling.Low), high: C.double(op.Scaling.High), turns: C.double(op.Scaling.Turns()),
	}
	if b.call.Pass != kernels.Forward {
		if b.call.Skips(0) {
			return
		}
		args.in, args.out, args.sign, args.accumulate = b.at(kernels.DY, 0), b.at(kernels.DX, 0), -1, flag(b.call.Adds(0))
	}
	per := rowsPerTask(int64(x[0]) * int64(x[2]))
	args.per_task = C.int64_t(per)
	addJob(b, C.ROTARY, ceil(int64(x[1]), per), b.reserveScratch(int64(op.Dim)*4), args)
}
