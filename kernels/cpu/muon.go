package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// UpdateWorkspace implements kernels.Library. It depends on the path and the threads.
func (l *Library) UpdateWorkspace(u kernels.Update, m kernels.Matrix) (int64, error) {
	if err := kernels.CheckMatrix(u, m); err != nil || !m.Muons(u) {
		return 0, err
	}
	b := l.newBuilder(nil)
	b.muon(u.(kernels.Muon), m)
	return b.used, nil
}

// muon is one step of one matrix. Workspace: two of the update's size, two square ones, sums of squares, and what products need.
func (b *builder) muon(u kernels.Muon, m kernels.Matrix) {
	n, side := m.Rows*m.Columns, m.Side()
	parts := kernels.GuardPartials(n)
	x, next := b.reserve(4*n), b.reserve(4*n)
	args := C.struct_muon_args{
		param: b.at(kernels.ParamRole, 0), grad: b.at(kernels.DParam, 0), momentum: b.at(kernels.Save, 0), scalars: b.at(kernels.ScalarsRole, 0),
		x: x, square: b.reserve(4 * side * side), again: b.reserve(4 * side * side), partials: b.reserve(8 * parts),
		n: C.int64_t(n), chunk: grain, parts: C.int64_t(parts), side: C.int64_t(side),
		beta: decimal(u.Momentum), weight_decay: decimal(u.WeightDecay), rate: C.double(m.Rate()), tiny: kernels.MuonTiny,
		a: C.double(kernels.MuonCoefficients[0]), b: C.double(kernels.MuonCoefficients[1]), c: C.double(kernels.MuonCoefficients[2]),
	}
	whole, part := ceil(n, grain), ceil(side*side, grain)
	addJob(b, C.MUON_BEGIN, whole, scratch{}, args)
	addJob(b, C.GUARD_SQUARES, parts, scratch{}, C.struct_guard_args{grad: x, partials: args.partials, n: args.n, chunk: kernels.GuardChunk})
	addJob(b, C.MUON_NORMALIZE, whole, scratch{}, args)
	square, again, apply := m.MuonProducts()
	rest, most := b.used, b.used
	multiply := func(c kernels.Call, left, right, out C.uint64_t) {
		b.used = rest
		b.product(c, left, right, out)
		most = max(most, b.used)
	}
	for range kernels.MuonSteps {
		multiply(square, x, x, args.square)
		multiply(again, args.square, args.square, args.again)
		addJob(b, C.MUON_POLYNOMIAL, part, scratch{}, args)
		if apply.Pass == kernels.Forward {
			multiply(apply, x, args.again, next)
		} else {
			multiply(apply, args.again, x, next)
		}
		x, next = next, x
	}
	b.used, args.x = most, x
	addJob(b, C.MUON_END, whole, scratch{}, args)
}

// product appends a call of a layer without bias: forward left*right^T, backward to the input left*right, to the weight left^T*right.
func (b *builder) product(c kernels.Call, left, right, out C.uint64_t) {
	operands := map[kernels.Pass][3]kernels.Role{
		kernels.Forward:        {kernels.X, kernels.ParamRole, kernels.Y},
		kernels.BackwardInput:  {kernels.DY, kernels.ParamRole, kernels.DX},
		kernels.BackwardParams: {kernels.DY, kernels.X, kernels.DParam},
	}[c.Pass]
	inner := &builder{lib: b.lib, call: c, used: b.used, address: map[kernels.Operand]C.uint64_t{
		{Role: kernels.Workspace}: b.at(kernels.Workspace, 0),
		{Role: operands[0]}:       left, {Role: operands[1]}: right, {Role: operands[2]}: out,
	}}
	inner.conv(newLinear(c.Op.(kernels.Linear), c.In[0]))
	b.jobs, b.used = append(b.jobs, inner.jobs...), inner.used
}
