package executor

import (
	"encoding/json"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Chain returns the chain of the model with exact sizes, those of updates among them, and with all times 0.
func (w *Workload) Chain() *chain.Chain { return w.SizeUpdates(w.Model.Footprints(w.Layers)) }

// Unmeasured returns the chain with a link and with assumed times, in proportion to the bytes that an op reads and writes. It
// answers questions that depend on sizes alone.
func (w *Workload) Unmeasured() *chain.Chain { return bySizes(w.Chain()) }

// UnmeasuredUpdates returns the chain of Unmeasured with updates, whose times are made up, too. The host updates the layers that it is
// given for.
func (w *Workload) UnmeasuredUpdates(host func(layer int) bool) *chain.Chain {
	c := w.Unmeasured()
	for i := range c.Layers {
		l := &c.Layers[i]
		seconds := float64(l.WeightBytes) / c.Bandwidth
		if l.Update.DeviceS = seconds; host(i + 1) {
			l.Update.HostS = &seconds
		}
	}
	return c
}

// bySizes replaces the times of a chain, and its link.
func bySizes(c *chain.Chain) *chain.Chain {
	const bytesPerS = 1e10
	c.Bandwidth = bytesPerS
	c.ForgetContention()
	in := c.InputBytes
	for i := range c.Layers {
		l := &c.Layers[i]
		l.ForwardS = float64(in+l.SavedBytes+l.WeightBytes) / bytesPerS
		l.BackwardS = 2 * l.ForwardS
		in = l.OutputBytes
	}
	return c
}

// StoreAll returns the sequence that recomputes nothing: every forward_all, then every backward.
func (w *Workload) StoreAll() schedule.Sequence {
	n := len(w.Layers)
	seq := make(schedule.Sequence, 0, 2*n)
	for l := 1; l <= n; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
	}
	for l := n; l >= 1; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

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
		layer.BackwardOverheadBytes -= u.WideGradientBytes
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
			layer.WeightBytes, layer.UnroundedWeightBytes = wide-w.roundedFrom(of)+narrow, wide
		}
		bytes := w.Layers[i].GradBytes
		if _, u.WideGradientBytes = w.WideLayout(of); u.WideGradientBytes > 0 {
			_, bytes = w.GradientLayout(of)
			layer.BackwardOverheadBytes += u.WideGradientBytes
		}
		if bytes != layer.WeightBytes {
			u.GradientBytes = &bytes
		}
		for k := range w.Optimizer.States() {
			_, bytes := StateLayout(w.Optimizer, of, k)
			u.StateBytes += bytes
		}
	}
	return &out
}

// roundedFrom returns the bytes of a layer's own weights before any is rounded.
func (w *Workload) roundedFrom(l *models.Layer) (bytes int64) {
	for _, q := range l.Params() {
		if !q.Statistic() {
			bytes += q.Desc.Storage()
		}
	}
	return bytes
}

// UpdatesOf returns the updates of layer l, from 1, without memory: of a rounded copy the bytes alone.
func (w *Workload) UpdatesOf(l int) (all []kernels.UpdateOperands) {
	for _, q := range w.Model.Layers[l-1].Params() {
		if !q.Trained {
			continue
		}
		for _, o := range q.Updates(w.Optimizer, kernels.UpdateOperands{Elements: q.Desc.Elements()}) {
			x := kernels.UpdateOperands{Elements: o.Elements, Matrix: o.Matrix, Vector: o.Vector, GradType: w.GradientType(q)}
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
