package executor

import (
	"maps"

	"plimsoll/kernels"
	"plimsoll/models"
)

// masters are the parameters of each layer, by the offset in its Grads block, that forward and backward of a cyclic plan read in bfloat16.
// The optimizer's state then has float32 master copies.
type masters []map[int64]bool

// findMasters returns the parameters that only products of bfloat16 read, by a library that reads such weights in bfloat16.
func findMasters(m *models.Model, layers []*models.Programs, lib kernels.Library) masters {
	kept := make(masters, len(layers))
	exact := make(masters, len(layers)) // read in float32
	note := func(in masters, q models.Parameter) {
		if in[q.Layer-1] == nil {
			in[q.Layer-1] = map[int64]bool{}
		}
		in[q.Layer-1][q.Grad.Offset] = true
	}
	for i, p := range layers {
		owners := map[int64]models.Parameter{}
		for _, q := range m.Layers[i].Params() {
			owners[q.Value.Offset] = q
		}
		for _, q := range m.Layers[i].Tied() {
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
	return kept
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
