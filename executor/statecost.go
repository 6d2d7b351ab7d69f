package executor

import (
	"encoding/json"

	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// StateCost is what offloaded state costs a step. Plans are simulated with activations alone, so the time is estimated
// beside the simulation, from both sides: by what the link cannot do faster, and by everything one after another.
type StateCost struct {
	Offloading    string  `json:"offload_state"`
	HostBytes     int64   `json:"host_bytes"`       // of page-locked memory that the state lives in
	WindowBytes   int64   `json:"window_bytes"`     // of the arena that it passes through
	ToDeviceBytes int64   `json:"to_device_bytes"`  // of a step
	ToHostBytes   int64   `json:"to_host_bytes"`    // of a step
	TransferS     float64 `json:"transfer_s"`       // of these, one copy after another, at the measured bandwidths
	LeastS        float64 `json:"least_s_per_step"` // everything that can hides behind ops
	MostS         float64 `json:"most_s_per_step"`  // nothing does
}

// StateCost returns what a plan's step pays for offloaded state over the chain's link; nil when nothing is offloaded.
// Without a measured link the times are those of the plan.
func (w *Workload) StateCost(c *chain.Chain, p *pipeline.Plan) *StateCost {
	h := &w.static.hostState
	if h.mode == OffloadNothing {
		return nil
	}
	x := &StateCost{Offloading: h.mode.String(), HostBytes: h.bytes, WindowBytes: h.windowBytes()}
	states := int64(len(h.states)) * h.region
	x.ToDeviceBytes, x.ToHostBytes = states, states
	w.weightFetches(p.Sequence()).each(func(a weightFetch) { x.ToDeviceBytes += kernels.Align(w.Layers[a.layer-1].GradBytes) })
	if h.mode == OffloadWeights {
		x.ToHostBytes += h.region
	}
	toDevice, toHost := linkSpeeds(c)
	in, out := seconds(x.ToDeviceBytes, toDevice), seconds(x.ToHostBytes, toHost)
	x.TransferS = in + out
	update := UpdateSeconds(c)
	step := p.Predicted.Makespan + update
	x.MostS, x.LeastS = step+in+out, max(step, in, out)
	if h.mode == OffloadOptimizer {
		// The first slices arrive during the sequence; the others when slots are free, after it.
		first := min(stateSlots*h.slice*int64(len(h.states)), states)
		x.LeastS = p.Predicted.Makespan + max(update, seconds(states-first, toDevice), out)
	}
	return x
}

func seconds(bytes int64, bandwidth float64) float64 {
	if bandwidth <= 0 {
		return 0
	}
	return float64(bytes) / bandwidth
}

// linkSpeeds returns the bandwidth of each direction alone, as far as the chain has it.
func linkSpeeds(c *chain.Chain) (toDevice, toHost float64) {
	var p LinkProfile
	if json.Unmarshal(c.Extra[LinkField], &p) != nil || p.ToDevice <= 0 || p.ToHost <= 0 {
		return c.Bandwidth, c.Bandwidth
	}
	return p.ToDevice, p.ToHost
}
