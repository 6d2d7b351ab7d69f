package pipeline

import (
	"fmt"
	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"slices"
)

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
