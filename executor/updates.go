package executor

import (
	"encoding/json"
	"slices"

	"plimsoll/kernels"
	"plimsoll/planner/chain"
)

// UpdateField is the chain file's extra field with the seconds of the optimizer's update, which follows the
// sequence in every step.
const UpdateField = "update_s"

// UpdateSeconds returns the time of the optimizer's update that a profiled chain carries, 0 if it has none.
func UpdateSeconds(c *chain.Chain) float64 {
	var s float64
	if json.Unmarshal(c.Extra[UpdateField], &s) != nil {
		return 0
	}
	return s
}

// SizeUpdates returns a chain of the workload's layers with the sizes that its updates need: of gradients, of the optimizer's state, and whose
// weights those of twins are. Times stay. Where a layer has a parameter of another one, its weights are
// that layer's (weights_of). Parameters of its own, which then are small, are not counted: an executor has them throughout.
func (w *Workload) SizeUpdates(c *chain.Chain) *chain.Chain {
	out := *c
	out.Layers = slices.Clone(c.Layers)
	for i := range out.Layers {
		layer, of := &out.Layers[i], w.Model.Layers[i]
		u := &layer.Update
		layer.WeightBytes, layer.UnroundedWeightBytes = layer.WideWeights(), 0
		*u = chain.Update{DeviceS: u.DeviceS, HostS: u.HostS, NormS: u.NormS}
		if ties := of.Tied(); len(ties) > 0 {
			u.WeightsOf, layer.WeightBytes = ties[0].Of.Layer, 0
			continue
		}
		if of.Twin > 0 {
			if out.Layer(of.Twin).WeightBytes > 0 {
				u.WeightsOf = of.Twin
			}
			continue
		}
		_, narrow := w.WeightLayout(of)
		_, u.StateBytes = w.MasterLayout(of)
		if wide := layer.WeightBytes; u.StateBytes > 0 {
			layer.WeightBytes, layer.UnroundedWeightBytes = wide-w.Layers[i].GradBytes+narrow, wide
		}
		if bytes := w.Layers[i].GradBytes; bytes != layer.WeightBytes {
			u.GradientBytes = &bytes
		}
		for k := range w.Optimizer.States() {
			_, bytes := StateLayout(w.Optimizer, of, k)
			u.StateBytes += bytes
		}
	}
	return &out
}

// UpdatesOf returns the updates of layer l, from 1, without memory: of a rounded copy the bytes alone.
func (w *Workload) UpdatesOf(l int) (all []kernels.UpdateOperands) {
	for _, q := range w.Model.Layers[l-1].Params() {
		if !q.Trained {
			continue
		}
		for _, o := range q.Updates(w.Optimizer, kernels.UpdateOperands{Elements: q.Desc.Elements()}) {
			x := kernels.UpdateOperands{Elements: o.Elements, Matrix: o.Matrix, Vector: o.Vector}
			if w.Rounded(q) {
				x.Rounded.Bytes = o.Elements * kernels.BFloat16.Size()
			}
			all = append(all, x)
		}
	}
	return all
}

// HasUpdates reports, by layer from 0, whether a library has the updates of a layer's weights.
func (w *Workload) HasUpdates(by kernels.Updater) []bool {
	all := make([]bool, len(w.Layers))
	for i := range all {
		all[i] = !slices.ContainsFunc(w.UpdatesOf(i+1), func(o kernels.UpdateOperands) bool {
			_, err := by.UpdateWorkspace(w.Optimizer, o.Matrix)
			return err != nil
		})
	}
	return all
}
