package executor

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// StateLayout says where an optimizer's state k has the parameters of a layer, one behind the other: by the offset of a gradient in
// the layer's Grads block, the offset in the state's block, which has so many bytes. Where an optimizer keeps as much of every parameter
// the two are equal; of Muon's matrices there is no second state.
func StateLayout(opt kernels.Update, l *models.Layer, k int) (at map[int64]int64, bytes int64) {
	at = map[int64]int64{}
	for _, q := range l.Params() {
		if q.Trained && k < kernels.StatesOf(opt, q.Matrix) {
			at[q.Grad.Offset] = bytes
			bytes += q.Desc.Storage()
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
