package pipeline

import (
	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// slab is what a minibatch holds of a stage's device while it is in flight there, and what each of its tasks takes beside it.
type slab struct {
	kept, scalars, labels, images runtime.Span
	working                       map[pipeline.Kind]runtime.Span
	ring, hostCopies              []runtime.Span // of a stage with a ring, in place of kept and working: its items; its swaps, with the host
	forward                       runtime.Event  // the forward has ended
}

// scalarsBytes is the size of a minibatch's scalars, and those of its update.
const scalarsBytes = 2 * kernels.ScalarsBytes

// slabBytes returns the size of a slab and where its parts lie in it.
func (s *localStage) slabBytes(w *Workload, stages, minibatch int) (bytes int64, parts slab) {
	g := &allocator{}
	parts.kept = g.alloc(s.opsOf(minibatch).keptBytes)
	parts.scalars = g.alloc(scalarsBytes)
	if s.stage == stages-1 {
		parts.labels = g.alloc(w.Model.Labels.Bytes())
	}
	if s.stage == 0 {
		parts.images = g.alloc(w.Model.Input.Storage())
	}
	parts.working = map[pipeline.Kind]runtime.Span{}
	return g.end, parts
}

// at moves the parts of a slab to where the slab lies.
func (p slab) at(offset int64) slab {
	for _, s := range []*runtime.Span{&p.kept, &p.scalars, &p.labels, &p.images} {
		s.Offset += offset
	}
	return p
}

// hold is how long memory is held, in instructions of the device: the slab of a minibatch, or what one of its tasks takes
// beside it.
type hold struct {
	stage       *localStage
	minibatch   int
	task        pipeline.Kind // 0: the slab
	bytes       int64
	at          int64 // where it begins in the arena, with a flush
	first, last int
	until       instance // the task at whose end it is given back
}

// Hold is a part of Memory's Working or InFlight, from the start of a task to the end of one.
type Hold struct {
	Stage     int
	Minibatch int           // of a step, or of the first period: all that follow a period later hold the same
	Task      pipeline.Kind // that works in it; 0: the minibatch keeps it while it is in flight, from its forward on
	Bytes     int64
	// It is given back at the end of the task Until of UntilStage.
	Until      pipeline.Kind
	UntilStage int
}

// Holds returns what minibatches, and their tasks, hold of each device; none of a stage with transfers, which has its memory for
// itself throughout. Arguments and errors are those of Needs.
func Holds(w *Workload, costs Costs, plan *pipeline.Plan, opt Options) ([][]Hold, error) {
	e := &Executor{Workload: w, opt: opt}
	if err := e.layOut(costs, plan, costs.Platform.Devices); err != nil {
		return nil, err
	}
	all := make([][]Hold, len(e.holds))
	for d, holds := range e.holds {
		for _, t := range holds {
			if t.minibatch < e.order.repeats {
				all[d] = append(all[d], Hold{t.stage.stage, t.minibatch, t.task, t.bytes, t.until.kind, t.until.stage})
			}
		}
	}
	return all, nil
}

// laySlabs places what minibatches in flight and their tasks hold of a device, and returns it. In a flush plan everything has
// its own place, which it shares with what is not held during the same instructions: a step is known to the last of them, all
// instructions of a device are on one stream, and no copy reads or writes a slab that has been left. A periodic plan has a slab
// of each stage for as many minibatches as are in flight, and memory for the task that takes most.
func laySlabs(o *order, w *Workload, device int, stages []*localStage, g *allocator, m *Memory) []hold {
	holds := o.holds(w, device, stages)
	if o.plan.IsFlush() {
		layStep(o, w, holds, g, m)
		return holds
	}
	start := g.end
	for _, s := range stages {
		for _, bytes := range s.ops[0].working {
			m.Working = max(m.Working, bytes)
		}
	}
	work := g.alloc(m.Working)
	m.Working = g.end - start
	for _, s := range stages {
		bytes, parts := s.slabBytes(w, len(o.on), 0)
		for kind, n := range s.ops[0].working {
			parts.working[kind] = work.Part(0, n)
		}
		for range mostAtOnce(holds, s) {
			s.slabs = append(s.slabs, parts.at(g.alloc(bytes).Offset))
		}
	}
	m.InFlight = g.end - start - m.Working
	return holds
}

// layStep places the holds of one step, from the top: the first slab ends where the arena does. The last bytes of a slab are
// always written, those of what a task works in need not be, so that a run can be seen to take all that it was said to.
func layStep(o *order, w *Workload, holds []hold, g *allocator, m *Memory) {
	var all, slabs []pack.Item
	instructions := 0
	for _, t := range holds {
		it := pack.Item{Bytes: kernels.Align(t.bytes), First: t.first, Last: t.last}
		if all = append(all, it); t.task == 0 {
			slabs = append(slabs, it)
		}
		instructions = max(instructions, t.last+1)
	}
	m.InFlight = pack.Live(slabs, instructions)
	m.Working = pack.Live(all, instructions) - m.InFlight
	top := g.alloc(pack.Around(all[:1], all[1:], instructions)).End()
	for i, t := range holds {
		at := top - all[i].Offset - all[i].Bytes
		holds[i].at = at
		if t.task != 0 {
			t.stage.slabs[t.minibatch].working[t.task] = runtime.Span{Offset: at, Bytes: t.bytes}
			continue
		}
		_, parts := t.stage.slabBytes(w, len(o.on), t.minibatch)
		for len(t.stage.slabs) <= t.minibatch {
			t.stage.slabs = append(t.stage.slabs, slab{})
		}
		t.stage.slabs[t.minibatch] = parts.at(at)
	}
}

// holds returns what is held, and when, in one step of a flush plan or, for long enough to see the most at once, in a run of
// a periodic one. The slab of a minibatch comes before its tasks.
func (o *order) holds(w *Workload, device int, stages []*localStage) (all []hold) {
	bySite := map[int]*localStage{}
	for _, s := range stages {
		bySite[s.stage] = s
	}
	now, open, latest := 0, map[[2]int]int{}, map[int]instance{}
	giveBack := func(i, minibatch int) { all[i].last, all[i].until = now, latest[minibatch] }
	_ = o.instances(device, o.long(), func(v instance) error {
		s, key := bySite[v.stage], [2]int{v.stage, v.minibatch}
		if v.kind == pipeline.F {
			bytes, _ := s.slabBytes(w, len(o.on), v.minibatch)
			open[key] = len(all)
			all = append(all, hold{stage: s, minibatch: v.minibatch, bytes: bytes, first: now, last: now})
		}
		if v.computes() {
			all = append(all, hold{stage: s, minibatch: v.minibatch, task: v.kind, bytes: s.opsOf(v.minibatch).working[v.kind], first: now, last: now, until: v})
			latest[v.minibatch] = v
		}
		if o.last(v.instruction) {
			giveBack(open[key], v.minibatch)
			// The stage before on this device holds the input of this one, which a second half may read after that of the stage
			// before has run.
			if o.onDevice(v.stage-1, v.minibatch, device) {
				giveBack(open[[2]int{v.stage - 1, v.minibatch}], v.minibatch)
			}
			for _, p := range o.plan.Portals { // and so does a stage that makes a skip
				if maker, here := open[[2]int{p.From, v.minibatch}]; here && p.To == v.stage {
					giveBack(maker, v.minibatch)
				}
			}
		}
		now++
		return nil
	})
	return all
}

// mostAtOnce returns the most slabs of a stage that are held at one instruction.
func mostAtOnce(holds []hold, s *localStage) (most int) {
	var slabs []pack.Item
	instructions := 0
	for _, t := range holds {
		if t.stage == s && t.task == 0 {
			slabs = append(slabs, pack.Item{Bytes: 1, First: t.first, Last: t.last})
			instructions = max(instructions, t.last+1)
		}
	}
	return int(pack.Live(slabs, instructions))
}
