package executor

import (
	"fmt"
	"maps"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// StateLayout says where an optimizer's state k has the parameters of a layer, one behind the other: by the offset of a gradient in
// the layer's Grads block, the offset in the state's block, which has so many bytes. Where an optimizer keeps as much of every parameter
// the two are equal; of Muon's matrices there is no second state.
func StateLayout(opt kernels.Update, l *models.Layer, k int) (at map[int64]int64, bytes int64) {
	return lay(l, func(q models.Parameter) int64 {
		if k < kernels.StatesOf(opt, q.Matrix) {
			return q.Desc.Storage()
		}
		return 0
	})
}

// masters are the parameters of each layer, by the offset in its Grads block, that forward and backward of a cyclic plan read in bfloat16.
// The optimizer's state then has float32 master copies.
type masters []map[int64]bool

// KeepMasters lets cyclic plans have weights in bfloat16: those of products of bfloat16, which round them anyway, and which nothing else
// reads. So all bits stay what they are without. A library that does not read such weights leaves all in float32.
func (w *Workload) KeepMasters(lib kernels.Library) {
	kept := make(masters, len(w.Layers))
	exact := make(masters, len(w.Layers)) // read in float32
	note := func(in masters, q models.Parameter) {
		if in[q.Layer-1] == nil {
			in[q.Layer-1] = map[int64]bool{}
		}
		in[q.Layer-1][q.Grad.Offset] = true
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
	return err == nil && narrow == wide
}

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

// lay places the trained parameters that take memory, one behind the other, by the offset of a gradient.
func lay(l *models.Layer, storage func(models.Parameter) int64) (at map[int64]int64, bytes int64) {
	at = map[int64]int64{}
	for _, q := range l.Params() {
		if !q.Trained {
			continue
		}
		if n := storage(q); n > 0 {
			at[q.Grad.Offset] = bytes
			bytes += n
		}
	}
	return at, bytes
}

// updateWorkspaces returns the scratch bytes that updates of each layer take, one parameter after the other.
func updateWorkspaces(m *models.Model, lib kernels.Library, opt kernels.Update) ([]int64, error) {
	all := make([]int64, len(m.Layers))
	for i, l := range m.Layers {
		for _, q := range l.Params() {
			if !q.Trained {
				continue
			}
			for _, matrix := range q.Matrices() {
				bytes, err := lib.UpdateWorkspace(opt, matrix)
				if err != nil {
					return nil, fmt.Errorf("update of %s: %w", q.Name, err)
				}
				all[i] = max(all[i], bytes)
			}
		}
	}
	return all, nil
}

// Apart reports whether the optimizer updates parts of some parameter apart from each other: see models.Parameter.Updates.
func (w *Workload) Apart() bool {
	return slices.ContainsFunc(w.Model.Params(), func(q models.Parameter) bool {
		return q.Matrix.Muons(w.Optimizer) && len(q.Matrices()) > 1
	})
}

// state returns where state k of a parameter lies.
func (l *staticLayer) state(k int, q models.Parameter) runtime.Span {
	return l.states[k].Part(l.stateAt[k][q.Grad.Offset], q.Desc.Bytes())
}
