package pipeline

import (
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// scalarsBytes is the size of the scalars that a minibatch brings: its own, and those of its update. In a plan with a flush these are
// one: the last minibatch of the step has those of the update.
func scalarsBytes(plan *pipeline.Plan) int64 {
	if plan.IsFlush() {
		return kernels.ScalarsBytes
	}
	return 2 * kernels.ScalarsBytes
}

// shift moves everything but the items.
func (p *slab) shift(offset int64) {
	p.scalars.Offset += offset
	p.labels.Offset += offset
	for k := range p.images {
		p.images[k].Offset += offset
	}
}

// holds reports whether a stage has images or labels that wait.
func (b *stagedBatch) holds() bool { return len(b.images) > 0 || b.labels.Bytes > 0 }

// layOut places the next batch of a stage, which may be the first one and the last one.
func (b *stagedBatch) layOut(w *Workload, first, last bool, g *allocator) {
	if w.StagedBytes() == 0 {
		return
	}
	if first {
		b.table = g.alloc(lookup(w).TableBytes())
		for range w.Model.Wiring().Inputs() {
			b.images = append(b.images, g.alloc(imageBytes(w)))
		}
	}
	if last {
		b.labels = g.alloc(w.Model.Labels.Bytes())
	}
}

// slabPlan says where the memory of a minibatch lies if it is one piece, its slab, from its forward to its last task. A task works in the
// parts of the slab that its ops have not filled yet, or have left. The rest of its working memory is its own. A saved output that goes
// to another device lives until the first op that reads its δ, which has been computed from it. The copy has ended by then, so that the
// next user of the place needs no event.
type slabPlan struct {
	slab                            // relative to where it begins
	bytes   int64                   // of it
	tasks   []pipeline.Kind         // by item: the task in whose own memory it lies, relative to where that begins; 0: in the slab
	working map[pipeline.Kind]int64 // bytes of that memory
}

// planSlab packs the memory of a minibatch in a stage: what its tasks keep, and around that what each of them works in.
func (s *localStage) planSlab(w *Workload, o *order.Order, minibatch int) *slabPlan {
	t := s.opsOf(minibatch)
	p := &slabPlan{working: map[pipeline.Kind]int64{}, tasks: make([]pipeline.Kind, len(t.Items))}
	p.items = make([]runtime.Span, len(t.Items))
	g := &allocator{}
	kept, index := t.Those(0, t.Moments, true)
	g.alloc(pack.Pack(kept, t.Moments))
	for k, i := range index {
		p.items[i] = itemSpan(kept[k])
	}
	fence := pack.Item{Offset: g.end, Bytes: kernels.Alignment, Last: t.Moments - 1} // between slab and task
	own, taken := fence.Offset+fence.Bytes, append(kept, fence)
	for _, kind := range []pipeline.Kind{pipeline.F, pipeline.B, pipeline.W} {
		begin, end := t.Task(kind)
		passing, index := t.Those(begin, end, false)
		p.working[kind] = pack.Around(taken, passing, t.Moments) - own
		for k, i := range index {
			if p.items[i] = itemSpan(passing[k]); passing[k].Offset >= own {
				p.items[i].Offset, p.tasks[i] = passing[k].Offset-own, kind
			}
		}
	}
	s.placeBatch(&p.slab, w, o, g)
	p.bytes = g.end
	return p
}

// placeBatch places what a minibatch brings: scalars, in the last stage labels, in the first one images.
func (s *localStage) placeBatch(p *slab, w *Workload, o *order.Order, g *allocator) {
	p.scalars = g.alloc(scalarsBytes(o.Plan))
	if s.stage == len(o.On)-1 {
		p.labels = g.alloc(w.Model.Labels.Bytes())
	}
	if s.stage == 0 {
		for range w.Model.Wiring().Inputs() {
			p.images = append(p.images, g.alloc(w.InputBytes()))
		}
	}
}

// at returns a slab that begins at an offset, and whose tasks have their own memory from other offsets on.
func (p *slabPlan) at(offset int64, working map[pipeline.Kind]int64) slab {
	out := p.slab
	out.images = slices.Clone(p.images)
	out.shift(offset)
	out.items = slices.Clone(p.items)
	for i := range out.items {
		if kind := p.tasks[i]; kind != 0 {
			out.items[i].Offset += working[kind]
		} else {
			out.items[i].Offset += offset
		}
	}
	return out
}

// hold is how long a slab is held, in instructions of its device.
type hold struct {
	stage       *localStage
	minibatch   int
	first, last int
	until       order.Instance // the task at whose end it is given back
}

// laySlabs places the memory that minibatches in flight, and their tasks, hold of a device in a plan without a flush, and returns it. It
// has a slab of each stage for as many minibatches as are in flight, and memory for the task that takes most.
func laySlabs(o *order.Order, w *Workload, device int, stages []*localStage, g *allocator, m *Memory) (all []Hold) {
	start := g.end
	plans := make([]*slabPlan, len(stages))
	for i, s := range stages {
		plans[i] = s.planSlab(w, o, 0)
		for _, bytes := range plans[i].working {
			m.Working = max(m.Working, bytes)
		}
	}
	work := g.alloc(m.Working).Offset
	m.Working = g.end - start
	own := map[pipeline.Kind]int64{pipeline.F: work, pipeline.B: work, pipeline.W: work}
	holds := heldSlabs(o, device, stages)
	for i, s := range stages {
		for range mostAtOnce(holds, s) {
			s.slabs = append(s.slabs, plans[i].at(g.alloc(plans[i].bytes).Offset, own))
		}
		all = append(all, s.held(plans[i], holds, o.Repeats)...)
	}
	m.InFlight = g.end - start - m.Working
	return all
}

// held returns the slabs that minibatches of the first period hold, and what their tasks work in.
func (s *localStage) held(p *slabPlan, holds []hold, repeats int) (all []Hold) {
	for _, h := range holds {
		if h.stage != s || h.minibatch >= repeats {
			continue
		}
		all = append(all, Hold{Stage: s.stage, Minibatch: h.minibatch, Bytes: p.bytes, Until: h.until.Kind, UntilStage: h.until.Stage})
		for _, kind := range []pipeline.Kind{pipeline.F, pipeline.B, pipeline.W} {
			if bytes := p.working[kind]; bytes > 0 {
				all = append(all, Hold{Stage: s.stage, Minibatch: h.minibatch, Task: kind, Bytes: bytes, Until: kind, UntilStage: s.stage})
			}
		}
	}
	return all
}

// heldSlabs returns the slabs that are held, and when, in a run that is long enough to see the most at once.
func heldSlabs(o *order.Order, device int, stages []*localStage) (all []hold) {
	bySite := map[int]*localStage{}
	for _, s := range stages {
		bySite[s.stage] = s
	}
	now, open, latest := 0, map[[2]int]int{}, map[int]order.Instance{}
	giveBack := func(i, minibatch int) { all[i].last, all[i].until = now, latest[minibatch] }
	_ = o.Instances(device, o.Long(), func(v order.Instance) error {
		key := [2]int{v.Stage, v.Minibatch}
		if v.Kind == pipeline.F {
			open[key] = len(all)
			all = append(all, hold{stage: bySite[v.Stage], minibatch: v.Minibatch, first: now, last: now})
		}
		if v.Computes() {
			latest[v.Minibatch] = v
		}
		if o.Last(v.Instruction) {
			giveBack(open[key], v.Minibatch)
			// The stage before on this device holds the input of this one, which a second half may read after that of the stage
			// before has run.
			if o.OnDevice(v.Stage-1, v.Minibatch, device) {
				giveBack(open[[2]int{v.Stage - 1, v.Minibatch}], v.Minibatch)
			}
			for _, p := range o.Plan.Portals { // and so does a stage that makes a skip
				if maker, here := open[[2]int{p.From, v.Minibatch}]; here && p.To == v.Stage {
					giveBack(maker, v.Minibatch)
				}
			}
		}
		now++
		return nil
	})
	return all
}

// mostAtOnce returns the most slabs of a stage that are held at one instruction.
func mostAtOnce(holds []hold, s *localStage) int {
	var slabs []pack.Item
	instructions := 0
	for _, t := range holds {
		if t.stage == s {
			slabs = append(slabs, pack.Item{Bytes: 1, First: t.first, Last: t.last})
			instructions = max(instructions, t.last+1)
		}
	}
	return int(pack.Live(slabs, instructions))
}
