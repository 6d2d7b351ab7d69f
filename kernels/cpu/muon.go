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

// muon is one step of one matrix. Workspace: the places of the iteration, sums of squares, and what products need.
func (b *builder) muon(u kernels.Muon, m kernels.Matrix, grad kernels.DType) {
	n, side := m.Rows*m.Columns, m.Side()
	parts, half := kernels.GuardPartials(n), m.DType == kernels.BFloat16
	bytes := m.MuonBytes()
	space := kernels.MuonSpace[C.uint64_t]{X: b.reserve(bytes.X), Next: b.reserve(bytes.Next), Square: b.reserve(bytes.Square), Again: b.reserve(bytes.Again)}
	args := C.struct_muon_args{
		param: b.at(kernels.ParamRole, 0), grad: b.at(kernels.DParam, 0), momentum: b.at(kernels.Save, 0), scalars: b.at(kernels.ScalarsRole, 0),
		x: space.X, square: space.Square, again: space.Again, partials: b.reserve(8 * parts),
		n: C.int64_t(n), chunk: grain, parts: C.int64_t(parts), side: C.int64_t(side), narrow: flag(half),
		beta: decimal(u.Momentum), weight_decay: decimal(u.WeightDecay), rate: C.double(m.Rate()), tiny: kernels.MuonTiny,
		a: C.double(kernels.MuonCoefficients[0]), b: C.double(kernels.MuonCoefficients[1]), c: C.double(kernels.MuonCoefficients[2]),
	}
	whole, part := ceil(n, grain), ceil(side*side, grain)
	b.half = grad == kernels.BFloat16
	addJob(b, C.MUON_BEGIN, whole, scratch{}, args)
	b.half = half
	addJob(b, C.GUARD_SQUARES, parts, scratch{}, C.struct_guard_args{grad: space.X, partials: args.partials, n: args.n, chunk: kernels.GuardChunk})
	addJob(b, C.MUON_NORMALIZE, whole, scratch{}, args)
	rest, most := b.used, b.used
	args.x = kernels.MuonIteration(m, space, func(c kernels.Call, operands map[kernels.Role]C.uint64_t) {
		b.used = rest
		b.inner(c, operands)
		most = max(most, b.used)
	}, func() { addJob(b, C.MUON_POLYNOMIAL, part, scratch{}, args) })
	b.used = most
	addJob(b, C.MUON_END, whole, scratch{}, args)
	b.half = false
}

// inner appends a call whose operands are addresses.
func (b *builder) inner(c kernels.Call, operands map[kernels.Role]C.uint64_t) {
	inner := &builder{lib: b.lib, used: b.used, address: map[kernels.Operand]C.uint64_t{{Role: kernels.Workspace}: b.at(kernels.Workspace, 0)}}
	for r, at := range operands {
		inner.address[kernels.Operand{Role: r}] = at
	}
	addCall(inner, c)
	b.jobs, b.used = append(b.jobs, inner.jobs...), inner.used
}
