package pipeline

import (
	"fmt"
	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"slices"
)

// layLayers lays out the parameters of a stage's layers. It returns bytes: of a copy of the weights, of a sum of gradients, of the buffers,
// and of frozen weights. Behind the gradients of a layer's own parameters a sum has those of parameters that are another layer's.
func (s *localStage) layLayers(m *models.Model, programs []*models.Programs) (weights, sums, buffers, frozen int64) {
	for l := s.spec.First; l <= s.spec.Last; l++ {
		_, tied := m.Layers[l-1].TiedBytes()
		layer := stageLayer{
			at: weights, sumAt: sums, own: programs[l-1].GradBytes - tied, ties: m.Layers[l-1].Tied(), tied: map[int64]*tiedParameter{}, number: l,
			buffers: map[int64]int64{}, frozen: map[int64]int64{}, trained: map[int64]int64{}, params: m.Layers[l-1].Params(),
		}
		for _, q := range layer.ties {
			layer.tied[q.Value.Offset] = &tiedParameter{Parameter: q}
		}
		for _, q := range layer.params {
			switch {
			case q.Trained:
				layer.trained[q.Value.Offset] = q.Grad.Offset
			case q.Frozen:
				layer.frozen[q.Value.Offset] = frozen
				frozen += kernels.Align(q.Desc.Bytes())
			default:
				layer.buffers[q.Value.Offset] = buffers
				buffers += kernels.Align(q.Desc.Bytes())
			}
		}
		weights, sums = weights+kernels.Align(layer.own), sums+kernels.Align(programs[l-1].GradBytes)
		s.layers = append(s.layers, layer)
	}
	return weights, sums, buffers, frozen
}

// layStatic places what lives throughout, with so many copies of the weights and so many sums of gradients. With a flush the scalars of an
// update are those of a minibatch.
func (s *localStage) layStatic(w *Workload, copies, sums int, flush bool, g *allocator, m *Memory) {
	start := g.end
	weights, gradients, buffers, frozen := s.layLayers(w.Model, w.Layers)
	if s.fetches {
		s.kept = g.alloc(s.shard.size(weights))
	} else {
		for range copies + s.discrepancy.copies() {
			s.weights = append(s.weights, g.alloc(weights))
		}
	}
	m.Weights += g.end - start
	s.buffers, s.frozen = g.alloc(buffers), g.alloc(frozen)
	passes := len(s.grads) > 0
	if passes {
		s.own = g.alloc(s.shard.size(weights))
	}
	for range sums {
		if !passes {
			s.grads = append(s.grads, g.alloc(gradients+s.deferred.bytes(buffers)))
		}
		if !flush {
			s.scalars = append(s.scalars, g.alloc(kernels.ScalarsBytes))
		}
	}
	s.discrepancy.layOut(g)
	if !passes {
		s.deferred.rows = s.grads[0].Part(gradients, s.deferred.bytes(buffers))
	}
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
		if s.host != nil {
			s.states = append(s.states, runtime.Span{Space: runtime.Host, Bytes: s.shard.size(end)})
			continue
		}
		s.states = append(s.states, g.alloc(s.shard.size(end)))
	}
	workspace := slices.Max(w.UpdateWorkspaces[s.spec.First-1 : s.spec.Last])
	if s.host != nil {
		s.host.workspace.Bytes = workspace
		return
	}
	s.workspace = g.alloc(workspace)
}

// compile records what minibatches do in the stage; time is when, in a step with transfers, else nil.
func (s *localStage) compile(w *Workload, o *order.Order, time *executor.Timeline) (err error) {
	s.repeats = o.Repeats
	c := stageops.StageContext{
		Wiring: w.Model.Wiring(), InputBytes: w.InputBytes(), Time: time, Split: o.Split[s.stage], Departs: o.Departs(s.stage, s.device), Lingers: o.Lingers(s.stage, s.device),
	}
	if s.ops[1], err = stageops.Compile(w.Layers, s.spec, c); err != nil {
		return err
	}
	s.ops[0] = s.ops[1]
	if len(s.spec.LastOps) == 0 {
		return nil
	}
	last := s.spec
	last.Ops = s.spec.LastOps
	s.ops[0], err = stageops.Compile(w.Layers, last, c)
	return err
}

// copies returns how many versions of a stage's weights are kept at one time, and how many sums of gradients grow, by going
// through a run.
func (s *localStage) copies(o *order.Order, r order.Rule) (weights, sums int, err error) {
	if len(s.layers) > 0 {
		return 0, 0, fmt.Errorf("BUG: stage %d is laid out twice", s.stage)
	}
	k := order.NewWeightStash(r, o.Here(s.stage, s.device), 1, 1)
	const updates = 4 // at least: the first ones need fewer versions
	n := max((o.Long()+r.Group-1)/r.Group, updates) * r.Group
	k.Begin(order.NewBound(n))
	err = o.Instances(s.device, n, func(v order.Instance) error {
		if v.Stage != s.stage || !v.Computes() && v.Kind != pipeline.Update {
			return nil
		}
		switch v.Kind {
		case pipeline.F:
			_, err := k.Enter(v.Minibatch)
			return err
		case pipeline.Update:
			for k.End(v.Minibatch); k.Due(); {
				k.Update()
			}
			return nil
		}
		if s.opsOf(v.Minibatch).Writes(v.Kind) {
			k.Sum(v.Minibatch / r.Group)
		}
		_, err := k.See(v.Minibatch)
		if o.Last(v.Instruction) {
			k.Leave(v.Minibatch)
		}
		return err
	})
	return len(k.Slots), len(k.Sums), err
}
