//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

// addGroupNorm appends the kernels of each sample: sums of its channels, coefficients, and one pass that applies them.
func addGroupNorm(b *builder, op kernels.GroupNorm) {
	x := b.call.In[0]
	samples, c := int64(x.Shape[0]), channels(x)
	rows := x.Elements() / samples / c
	l := newLanes(x.DType, c, 0, sumLanes)
	chunks, chunkRows := chunked(rows, ceil(sumBlocks, l.grid), l.rows*groupRows*2)
	s := sampleNorm{builder: b, dtype: x.DType, sums: l}
	s.args = C.struct_norm_args{
		weight: b.at(kernels.ParamRole, 0), bias: b.at(kernels.ParamRole, 1), dweight: b.at(kernels.DParam, 0), dbias: b.at(kernels.DParam, 1),
		rows: C.i64(rows), channels: C.int(c), groups: C.int(op.Groups), train: 1, epsilon: C.double(op.Epsilon), chunks: C.int(chunks),
		chunk_rows: C.i64(chunkRows), coef: b.reserve(4 * c * 4), part: b.reserve(chunks * c * 2 * 8),
	}
	for n := range samples {
		s.add(n)
	}
}

// sampleNorm appends the kernels of one sample of a GroupNorm.
type sampleNorm struct {
	*builder
	dtype kernels.DType
	args  C.struct_norm_args
	sums  lanes
}

// of returns where sample n has its part of an operand of so many bytes each.
func (s *sampleNorm) of(r kernels.Role, index int, n, bytes int64) C.u64 {
	if address := s.at(r, index); address != 0 {
		return address + C.u64(n*bytes)
	}
	return 0
}

func (s *sampleNorm) add(n int64) {
	a, image, statistic := s.args, int64(s.args.rows)*int64(s.args.channels)*s.dtype.Size(), int64(s.args.channels)*4
	a.x, a.mean, a.invstd = s.of(kernels.X, 0, n, image), s.of(kernels.Save, 0, n, statistic), s.of(kernels.Save, 1, n, statistic)
	if s.call.Pass == kernels.Forward {
		a.y = s.of(kernels.Y, 0, n, image)
		s.sum("norm_moments", a)
		addStep(s.builder, "norm", "group_statistics", dim{int64(a.groups), 1, 1}, mergeBlock, 0, a)
		a.bias = a.coef + C.u64(2*statistic)
		s.normApply("norm_apply", a, s.dtype)
		return
	}
	a.dy, a.dx, a.add_dx, a.add_params = s.of(kernels.DY, 0, n, image), s.of(kernels.DX, 0, n, image), flag(s.call.Adds(0)), flag(s.call.AddParams || n > 0)
	s.sum("norm_backward_sums", a)
	addStep(s.builder, "norm", "group_params", dim{int64(a.groups), 1, 1}, mergeBlock, 0, a)
	if !s.call.Skips(0) {
		s.normApply("group_apply", a, s.dtype)
	}
}

// sum appends a kernel that leaves two sums of each chunk in part.
func (s *sampleNorm) sum(function string, a C.struct_norm_args) {
	addStep(s.builder, "norm", function+s.sums.suffix(s.dtype), dim{s.sums.grid, int64(a.chunks), 1}, s.sums.block(), 0, a)
}
