package executor

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/models"
)

// StateLayout returns where an optimizer's state k has the parameters of a layer, which lie one after the other, and the block's bytes.
// The map at leads from the offset of a parameter's gradient in the layer's Grads block to its offset in the state's block. If the
// optimizer keeps an equal state of every parameter, the two offsets are equal; Muon's matrices have no second state.
func StateLayout(opt kernels.Update, l *models.Layer, k int) (at map[int64]int64, bytes int64) {
	return lay(l, inGrads, func(q models.Parameter) int64 {
		if q.Trained && k < kernels.StatesOf(opt, q.Matrix) {
			return q.Desc.Storage()
		}
		return 0
	})
}

// lay places the parameters that take memory, one behind the other, by a key.
func lay(l *models.Layer, key, storage func(models.Parameter) int64) (at map[int64]int64, bytes int64) {
	at = map[int64]int64{}
	for _, q := range l.Params() {
		if n := storage(q); n > 0 {
			at[key(q)] = bytes
			bytes += n
		}
	}
	return at, bytes
}

// inParams is the offset of a parameter in its layer's Params block.
func inParams(q models.Parameter) int64 { return q.Value.Offset }

// inGrads is the offset of a parameter's gradient in its layer's Grads block.
func inGrads(q models.Parameter) int64 { return q.Grad.Offset }

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
