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
	b.muon(u.(kernels.Muon), m, kernels.Float32)
	return b.used, nil
}

// muon is one step of one matrix. Workspace: two of the update's size, two square ones, sums of squares, and what products need.
func (b *builder) muon(u kernels.Muon, m kernels.Matrix, grad kernels.DType) {
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
	b.half = grad == kernels.BFloat16
	addJob(b, C.MUON_BEGIN, whole, scratch{}, args)
	b.half = false
	addJob(b, C.GUARD_SQUARES, parts, scratch{}, C.struct_guard_args{grad: x, partials: args.partials, n: args.n, chunk: kernels.GuardChunk})
	addJob(b, C.MUON_NORMALIZE, whole, scratch{}, args)
	rest, most := b.used, b.used
	args.x = kernels.MuonIteration(m, x, next, args.square, args.again, func(c kernels.Call, left, right, product C.uint64_t) {
		b.used = rest
		b.product(c, left, right, product)
		most = max(most, b.used)
	}, func() { addJob(b, C.MUON_POLYNOMIAL, part, scratch{}, args) })
	b.used = most
	addJob(b, C.MUON_END, whole, scratch{}, args)
}

// product appends a call of a layer without bias.
func (b *builder) product(c kernels.Call, left, right, product C.uint64_t) {
	first, second, result := kernels.FactorRoles(c.Pass)
	inner := &builder{lib: b.lib, call: c, used: b.used, address: map[kernels.Operand]C.uint64_t{
		{Role: kernels.Workspace}: b.at(kernels.Workspace, 0),
		{Role: first}:             left, {Role: second}: right, {Role: result}: product,
	}}
	inner.conv(newLinear(c.Op.(kernels.Linear), c.In[0]))
	b.jobs, b.used = append(b.jobs, inner.jobs...), inner.used
}
