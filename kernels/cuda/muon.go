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

// muon is one step of one matrix. Workspace: the places of the iteration, sums of squares, and what products need.
func (b updater) muon(u kernels.Muon, m kernels.Matrix, grad kernels.DType) {
	n, side, parts := m.Rows*m.Columns, m.Side(), kernels.GuardPartials(m.Rows*m.Columns)
	b.used = 0
	bytes := m.MuonBytes()
	space := kernels.MuonSpace[C.u64]{X: b.reserve(bytes.X), Next: b.reserve(bytes.Next), Square: b.reserve(bytes.Square), Again: b.reserve(bytes.Again)}
	args := C.struct_muon_args{
		scalars: b.at(kernels.ScalarsRole, 0), param: b.at(kernels.ParamRole, 0), rounded: b.at(kernels.Y, 0), grad: b.at(kernels.DParam, 0), momentum: b.at(kernels.Save, 0),
		x: space.X, square: space.Square, again: space.Again, partials: b.reserve(8 * parts),
		n: C.i64(n), chunk: kernels.GuardChunk, parts: C.i64(parts), side: C.i64(side),
		narrow: flag(grad == kernels.BFloat16), half: flag(m.DType == kernels.BFloat16),
		beta: decimal(u.Momentum), weight_decay: decimal(u.WeightDecay), rate: C.double(m.Rate()), tiny: kernels.MuonTiny,
		a: C.double(kernels.MuonCoefficients[0]), b: C.double(kernels.MuonCoefficients[1]), c: C.double(kernels.MuonCoefficients[2]),
	}
	addStream(b.builder, "update", "muon_begin", n, 4, args)
	addStep(b.builder, "update", "muon_squares", dim{parts, 1, 1}, guardBlock, 0, args)
	addStream(b.builder, "update", "muon_normalize", n, 4, args)
	rest, most := b.used, b.used
	args.x = kernels.MuonIteration(m, space, func(c kernels.Call, operands map[kernels.Role]C.u64) {
		b.used = rest
		b.inner(c, operands)
		most = max(most, b.used)
	}, func() { addStream(b.builder, "update", "muon_polynomial", side*side, 4, args) })
	b.used = most
	addStream(b.builder, "update", "muon_end", n, 4, args)
}

// inner appends a call whose operands are addresses.
func (b updater) inner(c kernels.Call, operands map[kernels.Role]C.u64) {
	inner := &builder{lib: b.lib, used: b.used, address: addresses{{Role: kernels.Workspace}: b.at(kernels.Workspace, 0)}}
	for r, at := range operands {
		inner.address[kernels.Operand{Role: r}] = at
	}
	addCall(inner, c, measured)
	b.steps, b.used = append(b.steps, inner.steps...), inner.used
	if b.err == nil {
		b.err = inner.err
	}
}
