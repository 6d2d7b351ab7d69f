package executor

import (
	"maps"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
)

// KeepMasters lets cyclic plans have weights in bfloat16: those of products of bfloat16, which round them anyway, and which nothing else
// reads. So all bits stay what they are without. A library that does not read such weights leaves all in float32.
func (w *Workload) KeepMasters(lib kernels.Library) {
	kept := make(masters, len(w.Layers))
	exact := make(masters, len(w.Layers)) // read in float32
	note := func(in masters, q models.Parameter) {
		if in[q.Layer-1] == nil {
			in[q.Layer-1] = map[int64]bool{}
		}
		in[q.Layer-1][q.Value.Offset] = true
	}
	for i, p := range w.Layers {
		owners := map[int64]models.Parameter{}
		for _, q := range w.Model.Layers[i].Params() {
			owners[q.Value.Offset] = q
		}
		for _, q := range w.Model.Layers[i].Tied() {
			owners[q.Value.Offset] = *q.Of
		}
		for _, program := range []*models.Program{&p.Save, &p.Forget, &p.Eval, &p.Back, &p.BackInput, &p.BackParams} {
			for _, step := range program.Steps {
				for k, ref := range step.Refs.Params {
					if q, ok := owners[ref.Offset]; !ok || ref.Bytes == 0 || !q.Trained {
						continue
					} else if k == 0 && readsRounded(lib, step.Call) {
						note(kept, q)
					} else {
						note(exact, q)
					}
				}
			}
		}
	}
	for i := range kept {
		maps.DeleteFunc(kept[i], func(at int64, _ bool) bool { return exact[i][at] })
	}
	w.masters = kept
}

// Rounded reports whether cyclic plans have a parameter in bfloat16, and a master copy of it.
func (w *Workload) Rounded(q models.Parameter) bool {
	if q.Of != nil {
		q = *q.Of
	}
	return w.masters != nil && w.masters[q.Layer-1][q.Value.Offset]
}

// WeightType returns the type in which forward and backward of a cyclic plan read a parameter.
func (w *Workload) WeightType(q models.Parameter) kernels.DType {
	if w.Rounded(q) {
		return kernels.BFloat16
	}
	return q.Desc.DType
}

// NarrowGradients lets cyclic plans keep the gradients of weights in bfloat16 that have master copies, but for weights that several layers
// have: these add their gradients up. A backward adds in float32, and rounds what it leaves for the next one, the copies and the update.
// Call it behind KeepMasters.
func (w *Workload) NarrowGradients() {
	w.narrow = slices.Clone(w.masters)
	for i, l := range w.Model.Layers {
		for _, q := range l.Tied() {
			w.narrow[i], w.narrow[q.Of.Layer-1] = nil, nil
		}
		if l.Twin > 0 {
			w.narrow[i], w.narrow[l.Twin-1] = nil, nil
		}
	}
}

// HasNarrowGradients reports whether some gradient is kept in bfloat16.
func (w *Workload) HasNarrowGradients() bool {
	return slices.ContainsFunc(w.narrow, func(of map[int64]bool) bool { return len(of) > 0 })
}

// GradientType returns the type in which a cyclic plan keeps the gradient of a layer's own parameter.
func (w *Workload) GradientType(q models.Parameter) kernels.DType {
	if w.narrow != nil && w.narrow[q.Layer-1][q.Value.Offset] {
		return kernels.BFloat16
	}
	return q.Desc.DType
}

// GradientLayout says where a cyclic plan has the gradients of a layer's own parameters, one behind the other, and how many bytes they take. The
// key is the offset of a gradient in the layer's Grads block.
func (w *Workload) GradientLayout(l *models.Layer) (at map[int64]int64, bytes int64) {
	return lay(l, inGrads, func(q models.Parameter) int64 {
		if !q.Trained {
			return 0
		}
		return q.Desc.As(w.GradientType(q)).Storage()
	})
}

// WideLayout says where a backward of a cyclic plan has, in float32, the gradients that are kept in bfloat16: see GradientLayout.
func (w *Workload) WideLayout(l *models.Layer) (at map[int64]int64, bytes int64) {
	return lay(l, inGrads, func(q models.Parameter) int64 {
		if w.GradientType(q) != kernels.BFloat16 {
			return 0
		}
		return q.Desc.Storage()
	})
}

// WeightLayout says where a cyclic plan has a layer's own weights, one behind the other, and how many bytes they take: those that train and
// frozen ones. The key is the offset of a weight in the layer's Params block.
func (w *Workload) WeightLayout(l *models.Layer) (at map[int64]int64, bytes int64) {
	return lay(l, inParams, func(q models.Parameter) int64 {
		if q.Statistic() {
			return 0
		}
		return q.Desc.As(w.WeightType(q)).Storage()
	})
}

// MasterLayout says where the optimizer's state has the master copies of a layer's weights: see WeightLayout.
func (w *Workload) MasterLayout(l *models.Layer) (at map[int64]int64, bytes int64) {
	return lay(l, inParams, func(q models.Parameter) int64 {
		if w.Rounded(q) {
			return q.Desc.Storage()
		}
		return 0
	})
}

// MatrixType returns the type in which the optimizer multiplies matrices: float32 unless Muon updates some in another type.
func (w *Workload) MatrixType() (d kernels.DType) {
	for _, q := range w.Model.Params() {
		if q.Trained && q.Matrix.Muons(w.Optimizer) && q.Matrix.DType != kernels.Float32 {
			d = q.Matrix.DType
		}
	}
	return d
}

// Apart reports whether the optimizer updates parts of some parameter apart from each other: see models.Parameter.Updates.
func (w *Workload) Apart() bool {
	return slices.ContainsFunc(w.Model.Params(), func(q models.Parameter) bool {
		return q.Matrix.Muons(w.Optimizer) && len(q.Matrices()) > 1
	})
}

// readsRounded reports whether a library can read the weight of a call in bfloat16, in the workspace that there is.
func readsRounded(lib kernels.Library, c kernels.Call) bool {
	if !c.RoundsWeight() {
		return false
	}
	rounded := c
	rounded.Weight = kernels.BFloat16
	narrow, err := lib.Workspace(rounded)
	if err != nil {
		return false
	}
	wide, err := lib.Workspace(c)
	return err == nil && narrow <= wide
}
