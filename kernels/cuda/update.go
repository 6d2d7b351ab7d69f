//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"fmt"
	"strconv"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareUpdate implements kernels.Library.
func (l *Library) PrepareUpdate(u kernels.Update, o kernels.UpdateOperands) (runtime.Launch, error) {
	if err := o.Check(u); err != nil {
		return nil, err
	}
	found, err := l.resolve(o.Uses())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Kind(), err)
	}
	b := &builder{lib: l, address: found}
	b.update(u, o)
	if b.err != nil {
		return nil, b.err
	}
	return l.launch(u.Kind(), b)
}

func (b *builder) update(u kernels.Update, o kernels.UpdateOperands) {
	args := C.struct_update_args{
		param: b.at(kernels.ParamRole, 0), grad: b.at(kernels.DParam, 0), state0: b.at(kernels.Save, 0), state1: b.at(kernels.Save, 1),
		scalars: b.at(kernels.ScalarsRole, 0), earlier: C.u64(o.Earlier), n: C.i64(o.Elements),
	}
	switch r := u.(type) {
	case kernels.SGD:
		args.momentum, args.dampening, args.weight_decay = decimal(r.Momentum), decimal(r.Dampening), decimal(r.WeightDecay)
		args.nesterov = flag(r.Nesterov)
		addStream(b, "update", "sgd_update", o.Elements, 4, args)
	case kernels.Adam:
		b.adam(args, r, false)
	case kernels.AdamW:
		b.adam(args, kernels.Adam(r), true)
	default:
		panic(fmt.Sprintf("BUG: no kernel for %T", u))
	}
}

func (b *builder) adam(args C.struct_update_args, r kernels.Adam, decoupled bool) {
	args.beta1, args.beta2 = decimal(r.Beta1), decimal(r.Beta2)
	args.epsilon, args.weight_decay = decimal(r.Epsilon), decimal(r.WeightDecay)
	args.decoupled = flag(decoupled)
	addStream(b, "update", "adam_update", int64(args.n), 4, args)
}

// decimal is the float64 that the user wrote: 0.999 stays 0.999, so that 1-0.999 is 0.001 to float32's precision.
func decimal(v float32) C.double {
	d, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
	if err != nil {
		panic("BUG: a formatted number does not parse: " + err.Error())
	}
	return C.double(d)
}
