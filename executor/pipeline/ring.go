package pipeline

import (
	"fmt"
	"time"

	"plimsoll/executor/internal/order"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

const (
	onCompute stream = iota
	toHost
	fromHost
	ofBatches
	onHost // updates in host memory
	links
)

// onLink returns the stream of the link to a device.
func onLink(to int) stream { return links + stream(to) }

// batchSeconds returns how long a batch comes from the host, in seconds, where it may come ahead of its forward; else 0.
func (c Costs) batchSeconds(w *Workload) float64 {
	if c.Platform.Host == 0 {
		return 0
	}
	return float64(w.Model.Input.Bytes()) / c.Platform.Host
}

// ringScalars is scalarsBytes of a ring.
const ringScalars = 2 * kernels.ScalarsBytes

// slabs returns the memory of the minibatches of each slot, in an arena and in page-locked memory from two offsets on.
func (r *ring) slabs(t *localStage, base int64) (all []slab) {
	for slot := range r.slots {
		at := func(item int) runtime.Span {
			if item == none {
				return runtime.Span{}
			}
			return runtime.Span{Offset: base + r.places[slot][item], Bytes: r.items[item]}
		}
		p := slab{labels: at(r.labels), scalars: runtime.Span{Offset: base + r.bytes + int64(slot)*ringScalars, Bytes: ringScalars}}
		if r.images != none {
			p.images = []runtime.Span{at(r.images)}
		}
		for i := range r.items {
			p.items = append(p.items, at(i))
		}
		for k := range t.ops[1].Swaps {
			p.hostCopies = append(p.hostCopies, runtime.Span{Space: runtime.Host, Offset: r.hostCopies[slot][k], Bytes: t.ops[1].Swaps[k].Bytes})
		}
		all = append(all, p)
	}
	return all
}

// slot returns the slot of a minibatch.
func (r *ring) slot(minibatch int) int { return mod(minibatch, r.slots) }

// extent returns the bytes of a ring: behind what is packed each slot has its scalars, which only compute touches.
func (r *ring) extent() int64 { return r.bytes + int64(r.slots)*ringScalars }

// open makes the events that steps wait for.
func (r *ring) open(dev runtime.Device) error {
	for i := range r.steps {
		for _, waits := range r.steps[i].waits {
			for _, p := range waits {
				if err := makeEvents(dev, &r.steps[p.step].ends[p.slot]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pauses adds the launches that stand for the ops of a task which takes so long, in simulated time: each takes its planned share.
func (r *ring) pauses(all map[order.TaskKey]runtime.Launch, kind pipeline.Kind, length time.Duration) {
	var ops []*step
	whole := 0.0
	for i := range r.steps {
		if s := &r.steps[i]; s.Kind == kind && s.op != none {
			ops = append(ops, s)
			whole += s.length
		}
	}
	for _, s := range ops {
		share := 1 / float64(len(ops))
		if whole > 0 {
			share = s.length / whole
		}
		all[order.TaskKey{Kind: kind, Stage: s.Stage, Residue: s.op}] = host.Pause(fmt.Sprintf("simulated part %d of %v%d", s.op, kind, s.Stage), time.Duration(share*float64(length)))
	}
}
