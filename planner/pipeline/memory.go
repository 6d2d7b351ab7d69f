package pipeline

import (
	"fmt"
	"math/big"
	"slices"

	"plimsoll/internal/units"
)

// memory fills in the peaks of all devices and refuses those that have less: copies of the weights, buffers of
// boundaries to other devices, and what live minibatches hold.
func (k *check) memory(r *Report) {
	n := k.platform.Devices
	r.PerDevicePeak, r.PerDeviceWeights, r.PerDeviceBuffers = make([]int64, n), make([]int64, n), make([]int64, n)
	costs := NewCosts(k.chain)
	var peaks []*peak
	for _, stays := range k.stays(costs) {
		peaks = append(peaks, highest(stays, k.period, len(k.plan.Stages)))
	}
	count := account{k.layout}
	r.NCA = count.nca(peaks)
	for d, peak := range peaks {
		weights, buffers := count.static(costs, d, peak.live, r.NCA[0])
		r.PerDevicePeak[d], r.PerDeviceWeights[d], r.PerDeviceBuffers[d] = total(weights, buffers, peak), ceil(weights), buffers
		if !count.runsOps(d) {
			k.fits(d, r, peak.task)
		}
	}
	k.memoryOfOps(r, peaks)
}

// runsOps reports whether a stage of a device has ops.
func (c account) runsOps(d int) bool {
	return slices.ContainsFunc(c.plan.Stages, func(st Stage) bool { return st.hasOps() && slices.Contains(st.Devices, d) })
}

// nca returns, for every stage, the most live minibatches on one of its devices.
func (c account) nca(peaks []*peak) []int {
	nca := make([]int, len(c.plan.Stages))
	for _, p := range peaks {
		for s, live := range p.live {
			nca[s] = max(nca[s], live)
		}
	}
	return nca
}

// static returns the bytes that stay on a device: weights of its stages, the optimizer's state, and the buffers. Blocks are for gradients of
// other replicas, and for those of weights that stages share. The number of copies of the weights may depend on how many minibatches are live in a stage or in the first
// stage.
func (c account) static(costs *Costs, d int, live []int, first int) (weights *big.Rat, buffers int64) {
	weights = new(big.Rat)
	for s, st := range c.plan.Stages {
		if slices.Contains(st.Devices, d) {
			weights.Add(weights, times(c.copies(s, live[s], first)-c.dividedCopies(s), costs.Weights(st.First, st.Last)))
			weights.Add(weights, times(c.dividedCopies(s), c.owned(s, d, costs.OwnWeights(st.First, st.Last))))
			if c.plan.Zero.dividesWeights() && c.dividedCopies(s) > 0 { // frozen ones stay whole
				weights.Add(weights, new(big.Rat).SetInt64(costs.Weights(st.First, st.Last)-costs.Summed(st.First, st.Last)))
			}
			if !c.plan.HostState {
				weights.Add(weights, times(c.plan.OptimizerCopies, c.owned(s, d, costs.OwnWeights(st.First, st.Last))))
			}
			buffers += c.buffers(costs, s, d) + c.receives(s, d)
		}
	}
	buffers += c.receivesTied(d)
	weights.Add(weights, new(big.Rat).SetInt64(c.dividedGradients(costs, d)))
	return weights, buffers
}

// total returns all bytes of a device, rounded up.
func total(weights *big.Rat, buffers int64, peak *peak) int64 {
	all := new(big.Rat).SetInt(peak.bytes)
	all.Add(all, new(big.Rat).SetInt64(buffers))
	return ceil(all.Add(all, weights))
}

// fits: a device needs no more than it has. task is the one whose start makes the peak.
func (k *check) fits(d int, r *Report, task int) {
	needed, limit := r.PerDevicePeak[d], k.platform.Memory[d]
	if needed <= limit {
		return
	}
	k.broken.put(Violation{
		Rule: RuleMemory, Task: task, Other: None, Device: d, Needed: needed, Limit: limit,
		Reason: fmt.Sprintf("device %d needs %s%s (weights %s, buffers %s), it has %s",
			d, units.Precise(needed), k.atTask(task), units.Bytes(r.PerDeviceWeights[d]), units.Bytes(r.PerDeviceBuffers[d]), units.Precise(limit)),
	})
}

// copies returns the copies of the weights of a stage on a device, by the number of live minibatches there and in the first
// stage. With vertical_sync all stages keep the versions that those see.
func (c account) copies(s, live, first int) float64 {
	said := c.plan.WeightCopies
	switch len(said) {
	case 0:
		n, ok := c.plan.Versions.Copies(live)
		if !ok {
			n, _ = Stash.Copies(first)
		}
		return n
	case 1:
		return said[0]
	}
	return said[s]
}

// buffers returns the bytes of the buffers of a stage on a device. They are for a and δ of each of its boundaries, and for
// the skips of each of its portals, that leave the device for some minibatch (thesis, assumption 5).
func (c account) buffers(costs *Costs, s, d int) (bytes int64) {
	if c.platform.NoBuffers {
		return 0
	}
	for _, boundary := range []int{s - 1, s} {
		if boundary < 0 || boundary+1 >= len(c.plan.Stages) {
			continue
		}
		for r := range c.repeats {
			if c.crosses(boundary, r) && c.at[place{F, s, r}].device == d {
				bytes += costs.Boundary(c.plan.Stages[boundary].Last) - 2*c.passing(boundary)
				break
			}
		}
	}
	for _, p := range c.plan.Portals {
		for r := range c.repeats {
			x, y := c.at[place{F, p.From, r}].device, c.at[place{F, p.To, r}].device
			if x != y && (p.From == s && x == d || p.To == s && y == d) {
				bytes += 2 * p.Bytes
				break
			}
		}
	}
	return bytes
}

// stays returns the stays in the memory of every device. These are live minibatches, from the start of F to the end
// of the last backward task, and the tensors that wait between two stages on one device (thesis 6.3.1). Ends are
// moved to the tolerance before, so that a minibatch that leaves when another one enters does not count, whatever was
// rounded.
func (k *check) stays(costs *Costs) [][]stay {
	all := make([][]stay, k.platform.Devices)
	for s := range k.plan.Stages {
		bytes := k.held(costs, s)
		for r := range k.repeats {
			f, b := k.at[place{F, s, r}], k.at[place{B, s, r}]
			on := &all[f.device]
			*on = append(*on, k.live(f, k.leaves(s, r), bytes))
			if s+1 < len(k.plan.Stages) && !k.crosses(s, r) {
				k.waits(on, f, k.at[place{F, s + 1, r}], k.waiting(F, s, r))
				k.waits(on, k.at[place{B, s + 1, r}], b, k.waiting(B, s, r))
			}
		}
	}
	return all
}

// live returns the bytes that a minibatch holds in a stage from its first task to its last.
func (k *check) live(first, last *job, bytes int64) stay {
	return stay{hold{bytes, first.stage, first.task}, first.start, before(first.start, last.end(), k.eps)}
}

// waits adds a tensor that lies between the end of x and the start of y.
func (k *check) waits(on *[]stay, x, y *job, bytes int64) {
	from, to := x.end(), sub(y.start, k.eps)
	if less(from, to) {
		*on = append(*on, stay{hold{bytes, None, x.task}, from, to})
	}
}

// dividedGradients returns the bytes of the buffers of a device for gradients that pass through it, and for weights. Each is as large as the
// gradients of the largest of its stages that divide theirs.
func (c account) dividedGradients(costs *Costs, d int) (bytes int64) {
	if !c.plan.Zero.dividesGradients() {
		return 0
	}
	for _, x := range c.divided {
		if st := c.plan.Stages[x.stage]; slices.Contains(x.line, d) && c.dividedCopies(x.stage) > 0 {
			bytes = max(bytes, costs.Summed(st.First, st.Last))
		}
	}
	if bytes == 0 {
		return 0
	}
	turns := 0
	if c.plan.Zero.dividesWeights() {
		turns = min(len(divisionOf(c.layout).weightTurns(d)), WeightBuffers)
	}
	all := divisionOf(c.layout).passingThrough(d)
	return bytes * int64(turns+Turns(len(all), func(i, later int) bool { return less(all[later].from, all[i].to) }))
}

// dividedCopies returns the copies of the weights of a stage of which each replica has its parts: gradients, and weights. With less than two
// copies a plan counts no gradients.
func (c account) dividedCopies(s int) float64 {
	if !c.plan.Zero.dividesGradients() || stageOf(c.divided, s) == nil || c.copies(s, 0, 0) < 2 {
		return 0
	}
	return float64(c.plan.Zero.DividedCopies())
}
