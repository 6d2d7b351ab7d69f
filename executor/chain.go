package executor

import (
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Chain returns the chain of the model with exact sizes, those of updates among them, and with all times 0.
func (w *Workload) Chain() *chain.Chain { return w.SizeUpdates(w.Model.Footprints(w.Layers)) }

// Unmeasured returns the chain with times that are made up, in proportion to the bytes that an op reads and writes, and a link: for
// questions whose answers depend on sizes alone.
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
