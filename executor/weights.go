package executor

import (
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
)

// KeepMasters lets cyclic plans have weights in bfloat16: those of products of bfloat16, which round them anyway, and which nothing else
// reads. So all bits stay what they are without. A library that does not read such weights leaves all in float32.
func (w *Workload) KeepMasters(lib kernels.Library) { w.masters = findMasters(w.Model, w.Layers, lib) }

// Rounded reports whether cyclic plans have a parameter in bfloat16, and a master copy of it.
func (w *Workload) Rounded(q models.Parameter) bool {
	if q.Of != nil {
		q = *q.Of
	}
	return w.masters != nil && w.masters[q.Layer-1][q.Grad.Offset]
}

// WeightType returns the type in which forward and backward of a cyclic plan read a parameter.
func (w *Workload) WeightType(q models.Parameter) kernels.DType {
	if w.Rounded(q) {
		return kernels.BFloat16
	}
	return q.Desc.DType
}

// WeightLayout says where a cyclic plan has a layer's own weights, one behind the other, and how many bytes they take. The key is the offset of
// a weight's gradient in the layer's Grads block. Where nothing is rounded that is the layout of the gradients.
func (w *Workload) WeightLayout(l *models.Layer) (at map[int64]int64, bytes int64) {
	return lay(l, func(q models.Parameter) int64 { return q.Desc.As(w.WeightType(q)).Storage() })
}

// MasterLayout says where the optimizer's state has the master copies of a layer's weights: see StateLayout.
func (w *Workload) MasterLayout(l *models.Layer) (at map[int64]int64, bytes int64) {
	return lay(l, func(q models.Parameter) int64 {
		if w.Rounded(q) {
			return q.Desc.Storage()
		}
		return 0
	})
}

// Apart reports whether the optimizer updates parts of some parameter apart from each other: see models.Parameter.Updates.
func (w *Workload) Apart() bool {
	return slices.ContainsFunc(w.Model.Params(), func(q models.Parameter) bool {
		return q.Matrix.Muons(w.Optimizer) && len(q.Matrices()) > 1
	})
}
