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
	ring, homes                   []runtime.Span // of a stage with a ring, in place of kept and working: its items; its trips, with the host
	forward                       runtime.Event  // the forward has ended
}

// scalarsBytes is the size of a minibatch's scalars, and those of its update.
const scalarsBytes = 2 * kernels.ScalarsBytes

// slabBytes returns the size of a slab and where its parts lie in it.
func (s *site) slabBytes(w *Workload, stages, minibatch int) (bytes int64, parts slab) {
	g := &ground{}
	parts.kept = g.take(s.tape(minibatch).keptBytes)
	parts.scalars = g.take(scalarsBytes)
	if s.stage == stages-1 {
		parts.labels = g.take(w.Model.Labels.Bytes())
	}
	if s.stage == 0 {
		parts.images = g.take(w.Model.Input.Storage())
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

// stay is how long memory is held, in turns of the device: the slab of a minibatch, or what one of its tasks takes beside it.
type stay struct {
	site        *site
	minibatch   int
	task        pipeline.Kind // 0: the slab
	bytes       int64
	first, last int
	until       visit // the task at whose end it is given back
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
	if err := e.lay(costs, plan, costs.Platform.Devices); err != nil {
		return nil, err
	}
	all := make([][]Hold, len(e.stays))
	for d, stays := range e.stays {
		for _, t := range stays {
			if t.minibatch < e.order.repeats {
				all[d] = append(all[d], Hold{t.site.stage, t.minibatch, t.task, t.bytes, t.until.kind, t.until.stage})
			}
		}
	}
	return all, nil
}

// laySlabs places what minibatches in flight and their tasks hold of a device, and returns it. In a flush plan everything has its own place,
// which it shares with what is not held in the same turns: a step is known to the last turn, all turns of a device are on
// one stream, and no copy reads or writes a slab that has been left. A periodic plan has a slab of each stage for as many minibatches as are in flight, and memory for the task that
// takes most.
func laySlabs(o *order, w *Workload, device int, sites []*site, g *ground, m *Memory) []stay {
	stays := o.stays(w, device, sites)
	if o.plan.IsFlush() {
		layStep(o, w, stays, g, m)
		return stays
	}
	start := g.end
	for _, s := range sites {
		for _, bytes := range s.tapes[0].working {
			m.Working = max(m.Working, bytes)
		}
	}
	work := g.take(m.Working)
	m.Working = g.end - start
	for _, s := range sites {
		bytes, parts := s.slabBytes(w, len(o.on), 0)
		for kind, n := range s.tapes[0].working {
			parts.working[kind] = work.Part(0, n)
		}
		for range mostAtOnce(stays, s) {
			s.slabs = append(s.slabs, parts.at(g.take(bytes).Offset))
		}
	}
	m.InFlight = g.end - start - m.Working
	return stays
}

// layStep places the stays of one step, from the top: the first slab ends where the arena does. The last bytes of a slab are
// always written, those of what a task works in need not be, so that a run can be seen to take all that it was said to.
func layStep(o *order, w *Workload, stays []stay, g *ground, m *Memory) {
	var all, slabs []pack.Item
	turns := 0
	for _, t := range stays {
		it := pack.Item{Bytes: kernels.Align(t.bytes), First: t.first, Last: t.last}
		if all = append(all, it); t.task == 0 {
			slabs = append(slabs, it)
		}
		turns = max(turns, t.last+1)
	}
	m.InFlight = pack.Live(slabs, turns)
	m.Working = pack.Live(all, turns) - m.InFlight
	top := g.take(pack.Around(all[:1], all[1:], turns)).End()
	for i, t := range stays {
		at := top - all[i].Offset - all[i].Bytes
		if t.task != 0 {
			t.site.slabs[t.minibatch].working[t.task] = runtime.Span{Offset: at, Bytes: t.bytes}
			continue
		}
		_, parts := t.site.slabBytes(w, len(o.on), t.minibatch)
		for len(t.site.slabs) <= t.minibatch {
			t.site.slabs = append(t.site.slabs, slab{})
		}
		t.site.slabs[t.minibatch] = parts.at(at)
	}
}

// stays returns what is held, and when, in one step of a flush plan or, for long enough to see the most at once, in a run of
// a periodic one. The slab of a minibatch comes before its tasks.
func (o *order) stays(w *Workload, device int, sites []*site) (all []stay) {
	bySite := map[int]*site{}
	for _, s := range sites {
		bySite[s.stage] = s
	}
	now, open, latest := 0, map[[2]int]int{}, map[int]visit{}
	hold := func(i, minibatch int) { all[i].last, all[i].until = now, latest[minibatch] }
	_ = o.visits(device, o.long(), func(v visit) error {
		s, key := bySite[v.stage], [2]int{v.stage, v.minibatch}
		if v.kind == pipeline.F {
			bytes, _ := s.slabBytes(w, len(o.on), v.minibatch)
			open[key] = len(all)
			all = append(all, stay{site: s, minibatch: v.minibatch, bytes: bytes, first: now, last: now})
		}
		if !v.kind.Communication() && v.kind != ended {
			all = append(all, stay{site: s, minibatch: v.minibatch, task: v.kind, bytes: s.tape(v.minibatch).working[v.kind], first: now, last: now, until: v})
			latest[v.minibatch] = v
		}
		if o.last(v.turn) {
			hold(open[key], v.minibatch)
			// The stage before on this device holds the input of this one, which a second half may read after that of the stage
			// before has run.
			if o.onDevice(v.stage-1, v.minibatch, device) {
				hold(open[[2]int{v.stage - 1, v.minibatch}], v.minibatch)
			}
			for _, p := range o.plan.Portals { // and so does a stage that makes a skip
				if maker, here := open[[2]int{p.From, v.minibatch}]; here && p.To == v.stage {
					hold(maker, v.minibatch)
				}
			}
		}
		now++
		return nil
	})
	return all
}

// mostAtOnce returns the most slabs of a site that are held at one turn.
func mostAtOnce(stays []stay, s *site) (most int) {
	var slabs []pack.Item
	turns := 0
	for _, t := range stays {
		if t.site == s && t.task == 0 {
			slabs = append(slabs, pack.Item{Bytes: 1, First: t.first, Last: t.last})
			turns = max(turns, t.last+1)
		}
	}
	return int(pack.Live(slabs, turns))
}
