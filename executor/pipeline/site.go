package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// site is a stage on one device: its memory there, and what its driver knows of the minibatches in flight.
//
// Invariant: all memory is placed before the first minibatch; a run only chooses between blocks.
type site struct {
	stage   int
	device  int
	spec    pipeline.Stage
	tapes   [2]*tape // of the last microbatch of a step, which may run other ops, and of all others
	repeats int
	shelf   *shelf

	weights []runtime.Span // by slot: one copy of the trained parameters of all layers
	buffers runtime.Span   // BatchNorm's statistics, of which there is one copy
	grads   runtime.Span   // and what else replicas add up
	scalars runtime.Span   // of the update
	summed  runtime.Event  // gradients are ready to leave for another replica
	rounds  int            // sums of gradients in this run
	states  []runtime.Span // the optimizer's, each laid out like the weights
	layers  []siteLayer

	slabs   []slab
	free    []int // slabs that no minibatch holds
	returns []runtime.Span
	handed  []int // returns that no minibatch holds, of those for δ from the same device
	exits   []exit
	spare   []int // exits that hold nothing

	flights     []*flight
	leaving     []leaving
	deferred    deferral
	discrepancy discrepancy
	summing     map[pipeline.Kind]int // tasks of each kind since the last update: the first writes gradients, the others add

	in, out map[int]*lane // of a_l into the stage and out of it, by the other device
	back    map[int]*lane // of δ_j into the stage
	away    map[int]*lane // of δ_{i-1} out of it
}

// siteLayer says where the parameters of a layer lie: trained ones at an offset of a copy of the weights, of the gradients
// and of each state; buffers at an offset of theirs.
type siteLayer struct {
	at      int64
	buffers map[int64]int64    // by offset in the Params block
	trained map[int64]int64    // likewise, the offset in the Grads block
	params  []models.Parameter // with their places
	number  int                // of the layer, from 1
}

// slab is what a minibatch holds of a stage's device while it is in flight there.
type slab struct {
	kept, scalars, labels, images runtime.Span
	forward                       runtime.Event // the forward has ended
}

// exit is a block for δ on its way to another device.
type exit struct {
	span        runtime.Span
	ready, sent runtime.Event // the backward has written it; it has been copied
}

// leaving is δ in an exit, until its communication is issued.
type leaving struct{ minibatch, exit int }

// flight is a minibatch in a stage, from its forward to the end of its last task.
type flight struct {
	minibatch int
	slab      int
	entry     runtime.Span // the stage's input
	from      *lane        // that brought it, and in which block; nil from the same device
	block     int
	exit      int          // that δ of the input leaves by
	handed    int          // the return that δ of the output lies in, from the same device
	delta     runtime.Span // δ of the output
	back      *lane        // that brought it, and in which block; nil from the same device, and when it is given back
	backBlock int
}

// layLayers lays out the parameters of a site's layers, and returns the bytes of a copy of the weights and of the buffers.
func (s *site) layLayers(m *models.Model, programs []*models.Programs) (weights, buffers int64) {
	for l := s.spec.First; l <= s.spec.Last; l++ {
		layer := siteLayer{at: weights, number: l, buffers: map[int64]int64{}, trained: map[int64]int64{}, params: m.Layers[l-1].Params()}
		for _, q := range layer.params {
			if q.Trained {
				layer.trained[q.Value.Offset] = q.Grad.Offset
				continue
			}
			layer.buffers[q.Value.Offset] = buffers
			buffers += kernels.Align(q.Desc.Bytes())
		}
		weights += kernels.Align(programs[l-1].GradBytes)
		s.layers = append(s.layers, layer)
	}
	return weights, buffers
}

// value returns where a parameter of a layer lies, a trained one in a copy of the weights.
func (s *site) value(l *siteLayer, slot int, ref models.Ref) runtime.Span {
	if at, ok := l.buffers[ref.Offset]; ok {
		return s.buffers.Part(at, ref.Bytes)
	}
	return s.weights[slot].Part(l.at+l.trained[ref.Offset], ref.Bytes)
}

// Memory is what a plan needs on one device, in bytes.
type Memory struct {
	// Static is weights, gradients, optimizer state and buffers, of which Weights are the copies of the weights.
	Static, Weights int64
	Messages        int64 // blocks in which activations and gradients arrive, wait and leave
	Working         int64 // of one task while it runs
	InFlight        int64 // the most that minibatches in flight hold at one time
	Peak            int64 // all of it
	Extent          int64 // the arena that it takes, with fragmentation
}

// ground hands out the memory of a device.
type ground struct {
	end   int64
	space runtime.Space
}

func (g *ground) take(bytes int64) runtime.Span {
	span := runtime.Span{Space: g.space, Offset: g.end, Bytes: bytes}
	g.end += kernels.Align(bytes)
	return span
}

// record records what minibatches do in the stage.
func (s *site) record(layers []*models.Programs, o *order, inputBytes int64) (err error) {
	s.repeats = o.repeats
	if s.tapes[1], err = newTape(layers, s.spec, o.split[s.stage], inputBytes); err != nil {
		return err
	}
	s.tapes[0] = s.tapes[1]
	if len(s.spec.LastOps) == 0 {
		return nil
	}
	last := s.spec
	last.Ops = s.spec.LastOps
	s.tapes[0], err = newTape(layers, last, o.split[s.stage], inputBytes)
	return err
}

// tape returns what a minibatch does in the stage. Only stages of flush plans have two tapes.
func (s *site) tape(minibatch int) *tape {
	if minibatch%s.repeats == s.repeats-1 {
		return s.tapes[0]
	}
	return s.tapes[1]
}

// slabBytes returns the size of a slab and where its parts lie in it.
func (s *site) slabBytes(w *Workload, stages, minibatch int) (bytes int64, parts slab) {
	g := &ground{}
	parts.kept = g.take(s.tape(minibatch).keptBytes)
	parts.scalars = g.take(2 * kernels.ScalarsBytes) // of the minibatch, and of its update
	if s.stage == stages-1 {
		parts.labels = g.take(w.Model.Labels.Bytes())
	}
	if s.stage == 0 {
		parts.images = g.take(w.Model.Input.Storage())
	}
	return g.end, parts
}

// at moves the parts of a slab to where the slab lies.
func (p slab) at(offset int64) slab {
	for _, s := range []*runtime.Span{&p.kept, &p.scalars, &p.labels, &p.images} {
		s.Offset += offset
	}
	return p
}

// layStatic places what lives throughout.
func (s *site) layStatic(w *Workload, copies int, g *ground, m *Memory) {
	start := g.end
	weights, buffers := s.layLayers(w.Model, w.Layers)
	for range copies + s.discrepancy.copies() {
		s.weights = append(s.weights, g.take(weights))
	}
	m.Weights += g.end - start
	s.buffers, s.grads, s.scalars = g.take(buffers), g.take(weights+s.deferred.bytes(buffers)), g.take(kernels.ScalarsBytes)
	s.discrepancy.lay(g)
	s.deferred.rows = s.grads.Part(weights, s.deferred.bytes(buffers))
	for range w.Optimizer.States() {
		s.states = append(s.states, g.take(weights))
	}
	m.Static += g.end - start
}

// stay is how long a slab is held, in turns of the device.
type stay struct {
	site        *site
	minibatch   int
	first, last int
}

// laySlabs places the slabs of a device's sites. In a flush plan each microbatch has its own, and slabs that are not held at
// the same time may share memory; in a periodic plan there are as many as minibatches in flight.
func laySlabs(o *order, w *Workload, device int, sites []*site, g *ground, m *Memory) {
	stays := o.stays(device, sites)
	if !o.plan.IsFlush() {
		for _, s := range sites {
			bytes, parts := s.slabBytes(w, len(o.on), 0)
			for range mostAtOnce(stays, s) {
				s.slabs = append(s.slabs, parts.at(g.take(bytes).Offset))
				m.InFlight += kernels.Align(bytes)
			}
		}
		return
	}
	items := make([]pack.Item, len(stays))
	last := 0
	for i, t := range stays {
		bytes, _ := t.site.slabBytes(w, len(o.on), t.minibatch)
		items[i] = pack.Item{Bytes: kernels.Align(bytes), First: t.first, Last: t.last}
		last = max(last, t.last)
	}
	m.InFlight = pack.Live(items, last+1)
	base := g.take(pack.Pack(items, last+1)).Offset
	for i, t := range stays {
		_, parts := t.site.slabBytes(w, len(o.on), t.minibatch)
		for len(t.site.slabs) <= t.minibatch {
			t.site.slabs = append(t.site.slabs, slab{})
		}
		t.site.slabs[t.minibatch] = parts.at(base + items[i].Offset)
	}
}

// stays returns when slabs are held in one step of a flush plan or, for long enough to see the most at once, in a run of
// a periodic one.
func (o *order) stays(device int, sites []*site) (all []stay) {
	bySite := map[int]*site{}
	for _, s := range sites {
		bySite[s.stage] = s
	}
	now, open := 0, map[[2]int]int{}
	_ = o.visits(device, o.long(), func(v visit) error {
		key := [2]int{v.stage, v.minibatch}
		switch {
		case v.kind == pipeline.F:
			open[key] = len(all)
			all = append(all, stay{bySite[v.stage], v.minibatch, now, now})
		case o.last(v.turn):
			all[open[key]].last = max(all[open[key]].last, now)
			// The stage before on this device holds the input of this one, which a second half may read after that of the stage
			// before has run.
			if o.onDevice(v.stage-1, v.minibatch, device) {
				before := open[[2]int{v.stage - 1, v.minibatch}]
				all[before].last = max(all[before].last, now)
			}
		}
		now++
		return nil
	}, func() error { return nil })
	return all
}

// onDevice reports whether a stage works on a minibatch on a device.
func (o *order) onDevice(stage, minibatch, device int) bool {
	return stage >= 0 && o.on[stage][o.residue(minibatch)] == device
}

// long returns how many minibatches show everything that a plan does: one step, or a run that fills the pipeline and goes on.
func (o *order) long() int {
	if o.plan.IsFlush() {
		return o.repeats
	}
	least, most := 0, 0
	for _, turns := range o.turns {
		for _, t := range turns {
			least, most = min(least, t.shift), max(most, t.shift)
		}
	}
	return 4*(most-least) + 8*o.repeats
}

// mostAtOnce returns the most slabs of a site that are held at one turn.
func mostAtOnce(stays []stay, s *site) (most int) {
	for _, a := range stays {
		n := 0
		for _, b := range stays {
			if a.site == s && b.site == s && b.first <= a.first && a.first <= b.last {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// copies returns how many versions of a site's weights are kept at one time, by going through a run.
func (s *site) copies(o *order, r rule) (int, error) {
	if len(s.layers) > 0 {
		return 0, fmt.Errorf("BUG: stage %d is laid out twice", s.stage)
	}
	k, most := newShelf(r, 1), 1
	n := (o.long() + r.group - 1) / r.group * r.group
	err := o.visits(s.device, n, func(v visit) error {
		if v.stage != s.stage || v.kind.Communication() {
			return nil
		}
		if v.kind == pipeline.F {
			_, err := k.enter(v.minibatch)
			return err
		}
		if r.group > 1 && o.last(v.turn) && v.minibatch/r.group != k.latest {
			return fmt.Errorf("%w: stage %d ends minibatch %d before all of update %d have ended there: gradients of two updates would mix", ErrPlan, s.stage, v.minibatch, k.latest)
		}
		if _, err := k.see(v.minibatch); err != nil {
			return err
		}
		if o.last(v.turn) && k.leave(v.minibatch) {
			k.update()
		}
		most = max(most, len(k.slots))
		return nil
	}, func() error { return nil })
	return most, err
}

// find returns the flight of a minibatch.
func (s *site) find(minibatch int) *flight {
	i := slices.IndexFunc(s.flights, func(f *flight) bool { return f.minibatch == minibatch })
	return s.flights[i]
}
