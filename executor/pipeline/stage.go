package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// localStage is a stage on one device: its memory there, and what its driver knows of the minibatches in flight.
//
// Invariant: all memory is placed before the first minibatch; a run only chooses between blocks.
type localStage struct {
	stage   int
	device  int
	spec    pipeline.Stage
	ops     [2]*stageOps // of the last microbatch of a step, which may run other ops, and of all others
	repeats int
	stash   *weightStash

	stageParameters
	stageSums
	stageMessages

	slabs       []slab
	ring        *ring        // of a stage that has one, and its slabs are by its slots; else nil
	cyclic      *cyclicStage // of a cyclic plan; else nil
	free        []int        // slabs that no minibatch holds
	inFlight    []*inFlight
	deferred    deferral
	discrepancy discrepancy
	waiting     stagedBatch // beside the batches of minibatches in flight
}

// stageParameters are the parameters of a stage on one device, and what updates need.
type stageParameters struct {
	weights   []runtime.Span // by slot: one copy of the trained parameters of all layers
	buffers   runtime.Span   // BatchNorm's statistics, of which there is one copy
	grads     []runtime.Span // by slot: a sum of gradients, and what else replicas add up
	ties      []runtime.Span // likewise, of parameters that are another layer's, by the layers that read them
	scalars   []runtime.Span // of the update, likewise
	squares   runtime.Span   // partial sums of those of the gradients
	states    []runtime.Span // the optimizer's, each by executor.StateLayout, or like the shard
	workspace runtime.Span   // of updates
	shard     *shard         // of the optimizer's state; nil: the device has all
	layers    []stageLayer
}

// stageSums is how the replicas of a stage add up their gradients.
type stageSums struct {
	summed    runtime.Event // gradients are ready to leave for another replica
	summedAll runtime.Event // those of all replicas are added up by a library, of a plan that does not say when
	sums      *replicaSums  // nil where the plan has no messages for those of replicas
	rounds    int           // sums over replicas in this run
	shared    int           // how often their statistics became the first one's, likewise
}

// stageMessages is what comes into a stage and leaves it.
type stageMessages struct {
	in, out       map[int]*channel // of a_l into the stage and out of it, by the other device
	back          map[int]*channel // of δ_j into the stage
	away          map[int]*channel // of δ_{i-1} out of it
	portalInputs  []portalInput    // of portals, by Branch-1
	portalOutputs []portalOutput
	returns       []runtime.Span
	freeReturns   []int      // returns that no minibatch holds, of those for δ from the same device
	outputs       sendBuffer // of the stage, where nothing else keeps them
	deltas        sendBuffer // δ of the input
}

// stageLayer says where the parameters of a layer lie: trained ones at an offset of a copy of the weights, of the gradients
// and of each state; buffers at an offset of theirs.
type stageLayer struct {
	at      int64
	own     int64                      // bytes of the gradients of its own parameters, which come first
	tiedAt  int64                      // offset, in a copy of the gradients, of those of parameters that are another layer's
	ties    []models.Parameter         // those parameters
	tied    map[int64]models.Parameter // likewise, by the offset in the Params block
	buffers map[int64]int64            // by offset in the Params block
	trained map[int64]int64            // likewise, the offset in the Grads block
	params  []models.Parameter         // with their places
	stateAt []map[int64]int64          // of each of the optimizer's states, where it has a parameter, by the offset in the Grads block
	number  int                        // of the layer, from 1
	earlier uint64                     // updates before this run
}

// inFlight is a minibatch in a stage, from its forward to the end of its last task.
type inFlight struct {
	minibatch int
	slab      int
	lent      []loan       // slabs of other stages on the same device, whose outputs this one reads
	entry     runtime.Span // the stage's input
	from      *channel     // that brought it, and in which block; nil from the same device
	block     int
	returned  int          // the return that δ of the output lies in, from the same device
	delta     runtime.Span // δ of the output
	back      *channel     // that brought it, and in which block; nil from the same device, and when it is given back
	backBlock int
	skips     []skipTensor // by portal input
	deltas    []skipTensor // by portal output
	at        frame        // where its task finds what is not its own
	left      bool         // of an input that goes to the host: it has been copied, or read for the last time, and the other is to come
}

// layLayers lays out the parameters of a stage's layers, and returns the bytes of a copy of the weights, of the buffers and of the gradients
// of parameters that are another layer's.
func (s *localStage) layLayers(m *models.Model, programs []*models.Programs) (weights, buffers, ties int64) {
	for l := s.spec.First; l <= s.spec.Last; l++ {
		tied := m.Layers[l-1].TiedBytes()
		layer := stageLayer{
			at: weights, own: programs[l-1].GradBytes - tied, tiedAt: ties, ties: m.Layers[l-1].Tied(), tied: map[int64]models.Parameter{}, number: l,
			buffers: map[int64]int64{}, trained: map[int64]int64{}, params: m.Layers[l-1].Params(),
		}
		for _, q := range layer.ties {
			layer.tied[q.Value.Offset] = q
		}
		for _, q := range layer.params {
			if q.Trained {
				layer.trained[q.Value.Offset] = q.Grad.Offset
				continue
			}
			layer.buffers[q.Value.Offset] = buffers
			buffers += kernels.Align(q.Desc.Bytes())
		}
		weights, ties = weights+kernels.Align(layer.own), ties+kernels.Align(tied)
		s.layers = append(s.layers, layer)
	}
	return weights, buffers, ties
}

// value returns where a parameter of a layer lies, a trained one in a copy of the weights.
func (s *localStage) value(l *stageLayer, slot int, ref models.Ref) runtime.Span {
	if at, ok := l.buffers[ref.Offset]; ok {
		return s.buffers.Part(at, ref.Bytes)
	}
	if q, ok := l.tied[ref.Offset]; ok {
		return s.value(&s.layers[q.Of.Layer-s.spec.First], slot, q.Of.Value)
	}
	return s.weights[slot].Part(l.at+l.trained[ref.Offset], ref.Bytes)
}

// gradient returns where a layer's op leaves, in a slot of the gradients, that of a parameter.
func (s *localStage) gradient(l *stageLayer, slot int, ref models.Ref) runtime.Span {
	if ref.Offset < l.own {
		return s.grads[slot].Part(l.at+ref.Offset, ref.Bytes)
	}
	return s.ties[slot].Part(l.tiedAt+ref.Offset-l.own, ref.Bytes)
}

// Memory is what a plan needs on one device, in bytes.
type Memory struct {
	// Static is weights, gradients, optimizer state, buffers and a batch that waits (executor.Workload.Stage), of which Weights are the
	// copies of the weights.
	Static, Weights int64
	Messages        int64 // blocks in which activations and gradients arrive, wait and leave
	Working         int64 // of one task while it runs; of a stage with a ring it is in InFlight
	InFlight        int64 // the most that minibatches in flight hold at one time
	Peak            int64 // all of it
	Snapshot        int64 // beside the arena: the page-locked memory that Options.Save takes
	Extent          int64 // the arena that it takes, with fragmentation
	Offloaded       int64 // likewise, page-locked memory for what the stage offloads
	Host            int64 // all page-locked memory of a cyclic plan, without Snapshot; 0 of other plans
}

// allocator hands out the memory of a device.
type allocator struct {
	end   int64
	space runtime.Space
}

func (g *allocator) alloc(bytes int64) runtime.Span {
	span := runtime.Span{Space: g.space, Offset: g.end, Bytes: bytes}
	g.end += kernels.Align(bytes)
	return span
}

// compile records what minibatches do in the stage; time is when, in a step with transfers, else nil.
func (s *localStage) compile(w *Workload, o *order, time *executor.Timeline) (err error) {
	s.repeats = o.repeats
	c := stageContext{
		Wiring: w.Model.Wiring(), inputBytes: w.InputBytes(), time: time, split: o.split[s.stage], departs: o.departs(s.stage, s.device), lingers: o.lingers(s.stage, s.device),
	}
	if s.ops[1], err = compileStage(w.Layers, s.spec, c); err != nil {
		return err
	}
	s.ops[0] = s.ops[1]
	if len(s.spec.LastOps) == 0 {
		return nil
	}
	last := s.spec
	last.Ops = s.spec.LastOps
	s.ops[0], err = compileStage(w.Layers, last, c)
	return err
}

// opsOf returns what a minibatch does in the stage. Only stages of flush plans have two lists of ops.
func (s *localStage) opsOf(minibatch int) *stageOps {
	if s.cyclic != nil {
		return s.cyclic.microbatches[minibatch%len(s.cyclic.microbatches)]
	}
	if minibatch%s.repeats == s.repeats-1 {
		return s.ops[0]
	}
	return s.ops[1]
}

// layStatic places what lives throughout, with so many copies of the weights and so many sums of gradients. With a flush the scalars of an
// update are those of a minibatch.
func (s *localStage) layStatic(w *Workload, copies, sums int, flush bool, g *allocator, m *Memory) {
	start := g.end
	weights, buffers, ties := s.layLayers(w.Model, w.Layers)
	for range copies + s.discrepancy.copies() {
		s.weights = append(s.weights, g.alloc(weights))
	}
	m.Weights += g.end - start
	s.buffers = g.alloc(buffers)
	for range sums {
		s.grads = append(s.grads, g.alloc(weights+s.deferred.bytes(buffers)))
		s.ties = append(s.ties, g.alloc(ties))
		if !flush {
			s.scalars = append(s.scalars, g.alloc(kernels.ScalarsBytes))
		}
	}
	s.discrepancy.layOut(g)
	s.deferred.rows = s.grads[0].Part(weights, s.deferred.bytes(buffers))
	s.layStates(w, g)
	m.Static += g.end - start
}

// layStates places the optimizer's states and the workspace of its updates.
func (s *localStage) layStates(w *Workload, g *allocator) {
	for k := range w.Optimizer.States() {
		var end int64
		for i := range s.layers {
			l := &s.layers[i]
			at, bytes := executor.StateLayout(w.Optimizer, w.Model.Layers[l.number-1], k)
			for offset := range at {
				at[offset] += end
			}
			l.stateAt, end = append(l.stateAt, at), end+bytes
		}
		s.states = append(s.states, g.alloc(s.shard.size(end)))
	}
	s.workspace = g.alloc(slices.Max(w.UpdateWorkspaces[s.spec.First-1 : s.spec.Last]))
}

// state returns where state k has what a device keeps of a parameter.
func (s *localStage) state(k int, l *stageLayer, q models.Parameter, p piece) runtime.Span {
	at := p.at
	if s.shard == nil {
		at = l.stateAt[k][q.Grad.Offset]
	}
	return s.states[k].Part(at, p.bytes)
}

// copies returns how many versions of a stage's weights are kept at one time, and how many sums of gradients grow, by going
// through a run.
func (s *localStage) copies(o *order, r rule) (weights, sums int, err error) {
	if len(s.layers) > 0 {
		return 0, 0, fmt.Errorf("BUG: stage %d is laid out twice", s.stage)
	}
	k := newWeightStash(r, o.here(s.stage, s.device), 1, 1)
	const updates = 4 // at least: the first ones need fewer versions
	n := max((o.long()+r.group-1)/r.group, updates) * r.group
	k.begin(newBound(n))
	err = o.instances(s.device, n, func(v instance) error {
		if v.stage != s.stage || !v.computes() && v.kind != pipeline.Update {
			return nil
		}
		switch v.kind {
		case pipeline.F:
			_, err := k.enter(v.minibatch)
			return err
		case pipeline.Update:
			for k.end(v.minibatch); k.due(); {
				k.update()
			}
			return nil
		}
		if s.opsOf(v.minibatch).writes(v.kind) {
			k.sum(v.minibatch / r.group)
		}
		_, err := k.see(v.minibatch)
		if o.last(v.instruction) {
			k.leave(v.minibatch)
		}
		return err
	})
	return len(k.slots), len(k.sums), err
}

// output returns where a minibatch has the output of the stage.
func (s *localStage) output(f *inFlight) runtime.Span {
	return s.slabs[f.slab].items[s.opsOf(f.minibatch).out.item]
}

// find returns the record of a minibatch in flight; nil when it is not in the stage.
func (s *localStage) find(minibatch int) *inFlight {
	if i := slices.IndexFunc(s.inFlight, func(f *inFlight) bool { return f.minibatch == minibatch }); i >= 0 {
		return s.inFlight[i]
	}
	return nil
}
