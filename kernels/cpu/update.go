package cpu

// #include "job.h"
import "C"

import (
	"fmt"

	"plimsoll/kernels"
)

// update is one optimizer step of one parameter, and behind it the rounding of its copy in bfloat16.
func (b *builder) update(u kernels.Update, o kernels.UpdateOperands) {
	b.apply(u, o)
	if rounded := b.at(kernels.Y, 0); rounded != 0 {
		b.half = true
		addJob(b, C.NARROW, ceil(o.Elements, grain), scratch{}, C.struct_map_args{
			a: b.at(kernels.ParamRole, 0), out: rounded, n: C.int64_t(o.Elements), chunk: grain,
		})
		b.half = false
	}
}

func (b *builder) apply(u kernels.Update, o kernels.UpdateOperands) {
	if o.Matrix.Muons(u) {
		b.muon(u.(kernels.Muon), o.Matrix, o.GradType)
		return
	}
	args := C.struct_update_args{
		param: b.at(kernels.ParamRole, 0), grad: b.at(kernels.DParam, 0),
		state0: b.at(kernels.Save, 0), state1: b.at(kernels.Save, 1), scalars: b.at(kernels.ScalarsRole, 0),
		earlier: C.uint64_t(o.Earlier), n: C.int64_t(o.Elements), chunk: grain,
	}
	kernel := int64(C.ADAM_UPDATE)
	switch r := u.(type) {
	case kernels.SGD:
		kernel = C.SGD_UPDATE
		args.momentum, args.dampening, args.weight_decay = decimal(r.Momentum), decimal(r.Dampening), decimal(r.WeightDecay)
		args.nesterov = flag(r.Nesterov)
	case kernels.Adam:
		adam(&args, r)
	case kernels.AdamW:
		adam(&args, kernels.Adam(r))
		args.decoupled = 1
	case kernels.Muon:
		adam(&args, kernels.Adam(r.AdamW()))
		args.decoupled = 1
	default:
		b.err = fmt.Errorf("%s: %w", u.Kind(), kernels.NoKernel("kernels/cpu"))
	}
	b.half = o.GradType == kernels.BFloat16
	addJob(b, kernel, ceil(o.Elements, grain), scratch{}, args)
	b.half = false
}

func adam(args *C.struct_update_args, a kernels.Adam) {
	args.beta1, args.beta2 = decimal(a.Beta1), decimal(a.Beta2)
	args.epsilon, args.weight_decay = decimal(a.Epsilon), decimal(a.WeightDecay)
}
