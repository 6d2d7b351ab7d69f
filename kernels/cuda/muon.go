//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

// UpdateWorkspace implements kernels.Library.
func (l *Library) UpdateWorkspace(u kernels.Update, m kernels.Matrix) (int64, error) {
	if err := kernels.CheckMatrix(u, m); err != nil || !m.Muons(u) {
		return 0, err
	}
	b := updater{&builder{lib: l}}
	b.muon(u.(kernels.Muon), m, kernels.Float32)
	return b.used, b.err
}

// muon is one step of one matrix. Workspace: two of the update's size, two square ones, sums of squares, and what products need.
func (b updater) muon(u kernels.Muon, m kernels.Matrix, grad kernels.DType) {
	n, side, parts := m.Rows*m.Columns, m.Side(), kernels.GuardPartials(m.Rows*m.Columns)
	b.used = 0
	x, next := b.reserve(4*n), b.reserve(4*n)
	args := C.struct_muon_args{
		scalars: b.at(kernels.ScalarsRole, 0), param: b.at(kernels.ParamRole, 0), rounded: b.at(kernels.Y, 0), grad: b.at(kernels.DParam, 0), momentum: b.at(kernels.Save, 0),
		x: x, square: b.reserve(4 * side * side), again: b.reserve(4 * side * side), partials: b.reserve(8 * parts),
		n: C.i64(n), chunk: kernels.GuardChunk, parts: C.i64(parts), side: C.i64(side),
		beta: decimal(u.Momentum), weight_decay: decimal(u.WeightDecay), rate: C.double(m.Rate()), tiny: kernels.MuonTiny,
		a: C.double(kernels.MuonCoefficients[0]), b: C.double(kernels.MuonCoefficients[1]), c: C.double(kernels.MuonCoefficients[2]),
	}
	if grad == kernels.BFloat16 {
		args.narrow = 1
	}
	addStream(b.builder, "update", "muon_begin", n, 4, args)
	addStep(b.builder, "update", "muon_squares", dim{parts, 1, 1}, guardBlock, 0, args)
	addStream(b.builder, "update", "muon_normalize", n, 4, args)
	rest, most := b.used, b.used
	args.x = kernels.MuonIteration(m, x, next, args.square, args.again, func(c kernels.Call, left, right, product C.u64) {
		b.used = rest
		b.product(c, left, right, product)
		most = max(most, b.used)
	}, func() { addStream(b.builder, "update", "muon_polynomial", side*side, 4, args) })
	b.used = most
	addStream(b.builder, "update", "muon_end", n, 4, args)
}

// product appends a call of a layer without bias.
func (b updater) product(c kernels.Call, left, right, product C.u64) {
	first, second, result := kernels.FactorRoles(c.Pass)
	inner := &builder{lib: b.lib, call: c, used: b.used, address: addresses{
		{Role: kernels.Workspace}: b.at(kernels.Workspace, 0),
		{Role: first}:             left, {Role: second}: right, {Role: result}: product,
	}}
	inner.conv(newLinear(c.Op.(kernels.Linear), c.In[0]), measured)
	b.steps, b.used = append(b.steps, inner.steps...), inner.used
	if b.err == nil {
		b.err = inner.err
	}
}
