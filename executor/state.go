package executor

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/models"
)

// Tensor is one named tensor of a model's state.
type Tensor struct {
	Name string // the parameter's name
	Role string // "weight", "buffer", "constant", "gradient", "state0", "state1"
	Desc kernels.Desc
	// Layer counts from 1.
	Layer int
	Parts []models.Part // how files hold it: see models.Parameter
}

// Tensors lists the weights, buffers and optimizer states in the order of the layers.
func (w *Workload) Tensors() (all []Tensor) {
	for l, layer := range w.Model.Layers {
		for _, q := range layer.Params() {
			roles := []string{q.Role()}
			if q.Trained {
				for k := range kernels.StatesOf(w.Optimizer, q.Matrix) {
					roles = append(roles, fmt.Sprintf("state%d", k))
				}
			}
			for _, role := range roles {
				all = append(all, Tensor{Name: q.Name, Role: role, Desc: q.Desc, Layer: l + 1, Parts: q.Parts})
			}
		}
	}
	return all
}
