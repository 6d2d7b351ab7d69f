//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// PrepareUpdate implements kernels.Library.
func (l *Library) PrepareUpdate(u kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	if err := kernels.CheckUpdates(u, all); err != nil {
		return nil, err
	}
	b := updater{&builder{lib: l}}
	if err := b.update(u, all); err != nil {
		return nil, fmt.Errorf("%s: %w", u.Kind(), err)
	}
	if b.err != nil {
		return nil, b.err
	}
	return l.launch(u.Kind(), b.builder)
}

// update updates as many parameters at a time as a kernel's argument has room for: most are too small for a launch of their own.
// Matrices come one after the other, then parameters rule by rule: vectors may be without weight decay.
func (b updater) update(u kernels.Update, all []kernels.UpdateOperands) error {
	var rules []kernels.Update
	rest := map[kernels.Update][]kernels.UpdateOperands{}
	for _, o := range all {
		if !o.Matrix.Muons(u) {
			r := o.Rule(u)
			if len(rest[r]) == 0 {
				rules = append(rules, r)
			}
			rest[r] = append(rest[r], o)
			continue
		}
		if err := kernels.CheckUpdateWorkspace(b.lib, u, o); err != nil {
			return err
		}
		at, err := b.lib.resolve(o.Uses())
		if err != nil {
			return err
		}
		b.address = at
		b.muon(u.(kernels.Muon), o.Matrix, o.GradType)
	}
	for _, r := range rules {
		if err := b.updateBy(r, rest[r]); err != nil {
			return err
		}
	}
	return nil
}

// updateBy updates parameters that are no matrices by one rule.
func (b updater) updateBy(r kernels.Update, all []kernels.UpdateOperands) error {
	for list := range slices.Chunk(all, C.UPDATE_TENSORS) {
		function, args, err := rule(r)
		if err != nil {
			return err
		}
		for i, o := range list {
			at, err := b.lib.resolve(o.Uses())
			if err != nil {
				return err
			}
			b.address = at
			args.scalars = b.at(kernels.ScalarsRole, 0)
			args.param[i], args.grad[i] = b.at(kernels.ParamRole, 0), b.at(kernels.DParam, 0)
			args.rounded[i] = b.at(kernels.Y, 0)
			if o.GradType == kernels.BFloat16 {
				args.narrow |= 1 << i
			}
			args.state0[i], args.state1[i] = b.at(kernels.Save, 0), b.at(kernels.Save, 1)
			args.earlier[i], args.n[i] = C.u64(o.Earlier), C.i64(o.Elements)
			args.first[i+1] = args.first[i] + C.int(streamGrid(o.Elements, 4)[0])
			args.count++
		}
		addStep(b.builder, "update", function, dim{int64(args.first[args.count]), 1, 1}, dim{streamThreads, 1, 1}, 0, args)
	}
	return nil
}

// rule returns an update's kernel, and its argument without tensors.
func rule(u kernels.Update) (function string, args C.struct_update_args, err error) {
	switch r := u.(type) {
	case kernels.SGD:
		args.momentum, args.dampening, args.weight_decay = decimal(r.Momentum), decimal(r.Dampening), decimal(r.WeightDecay)
		args.nesterov = flag(r.Nesterov)
		return "sgd_update", args, nil
	case kernels.Adam:
		return "adam_update", adam(r), nil
	case kernels.AdamW:
		args = adam(kernels.Adam(r))
		args.decoupled = 1
		return "adam_update", args, nil
	case kernels.Muon: // of what is no matrix
		return rule(r.AdamW())
	}
	return "", args, kernels.NoKernel("kernels/cuda")
}

func adam(r kernels.Adam) C.struct_update_args {
	return C.struct_update_args{
		beta1: decimal(r.Beta1), beta2: decimal(r.Beta2), epsilon: decimal(r.Epsilon), weight_decay: decimal(r.WeightDecay),
	}
}
