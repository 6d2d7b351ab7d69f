package pipeline

import (
	"fmt"

	"plimsoll/executor"
	"plimsoll/executor/internal/pack"
	"plimsoll/executor/internal/stageops"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// places returns where something of a layer is between runs, current copies alone, in the order of devices before the host.
func (x newest) places(of *residences, home runtime.Span) (all []runtime.Span) {
	if x.device {
		all = append(all, of.at(of.positions-1))
	}
	if x.host {
		all = append(all, home)
	}
	return all
}

// listCyclic calls add for the tensors of a cyclic plan's stage. The tensor of a rounded weight is its master copy.
func (s *localStage) listCyclic(d *driver, add func(placed)) {
	for i := range s.layers {
		l, x := &s.layers[i], &s.cyclic.layers[i]
		for _, q := range l.params {
			bytes := q.Desc.Bytes()
			put := func(role string, at, rounded []place) {
				add(placed{executor.Tensor{Name: q.Name, Role: role, Desc: q.Desc, Layer: l.number, Parts: q.Parts}, q, at, rounded})
			}
			if q.Statistic() {
				put("buffer", []place{{d, s.buffers.Part(l.buffers[q.Value.Offset], bytes), 0}}, nil)
				continue
			}
			each := func(spans []runtime.Span, of func(runtime.Span) runtime.Span) (at []place) {
				for _, span := range spans {
					at = append(at, place{d, of(span), 0})
				}
				return at
			}
			states := x.newestState.places(x.state, x.stateHome)
			weights := each(x.newest.places(x.weights, x.weightHome), func(in runtime.Span) runtime.Span { return x.weight(in, q.Value.Offset, bytes) })
			if q.Frozen {
				put(q.Role(), weights, nil)
				continue
			}
			if x.rounds(q.Value.Offset) {
				put("weight", each(states, func(in runtime.Span) runtime.Span { return x.master(in, q.Value.Offset, bytes) }), weights)
			} else {
				put("weight", weights, nil)
			}
			for k := range kernels.StatesOf(d.lay.Optimizer, q.Matrix) {
				put(fmt.Sprintf("state%d", k), each(states, func(in runtime.Span) runtime.Span {
					return in.Part(x.stateAt[k]+l.stateAt[k][q.Grad.Offset], bytes)
				}), nil)
			}
		}
	}
}

// savedCyclic lists what a device saves of a cyclic plan's stage.
func (s *localStage) savedCyclic() []runtime.Span {
	all := []runtime.Span{s.buffers}
	for i := range s.cyclic.layers {
		x := &s.cyclic.layers[i]
		for _, spans := range [][]runtime.Span{x.newest.places(x.weights, x.weightHome), x.newestState.places(x.state, x.stateHome)} {
			if len(spans) > 0 && spans[0].Bytes > 0 {
				all = append(all, spans[0])
			}
		}
	}
	return all
}

// layCyclicEvaluation lays out the evaluation of a cyclic plan's stage, around the weights and the state that stay on the device between steps, and
// returns where it ends. Other weights come to the device for the ops that read them.
func (lay *layout) layCyclicEvaluation(d *driver, t *localStage, m *Memory) (x *evaluation, end int64) {
	x = &evaluation{stage: t, driver: d, inputs: make([]runtime.Span, 1)}
	for l := 1; l < len(lay.Layers); l++ {
		p := lay.Layers[l-1]
		x.ops = append(x.ops, stageops.Op{Layer: l, Program: &p.Eval})
		x.frames = append(x.frames, frame{output: runtime.Span{Bytes: p.OutputBytes}, scratch: runtime.Span{Bytes: p.Eval.Scratch}})
	}
	var fixed, items []pack.Item
	n := len(x.ops) + 1
	for i := range t.cyclic.layers {
		s := &t.cyclic.layers[i]
		for _, r := range []*residences{s.weights, s.state} {
			if !r.throughout() && r.stays() {
				at := r.at(r.positions - 1)
				fixed = append(fixed, pack.Item{Bytes: kernels.Align(at.Bytes), Offset: at.Offset - m.Static, Last: n - 1})
			}
		}
	}
	var spans []*runtime.Span
	add := func(bytes int64, first, last int, span *runtime.Span) {
		*span = runtime.Span{Bytes: bytes}
		items, spans = append(items, pack.Item{Bytes: kernels.Align(bytes), First: first, Last: last}), append(spans, span)
	}
	scalars := new(runtime.Span)
	add(kernels.ScalarsBytes, 0, n-1, scalars)
	add(lay.InputBytes(), 0, 0, &x.inputs[0])
	x.loads = make([]load, 0, 2*len(x.ops)) // spans point into it
	for i := range x.ops {
		f := &x.frames[i]
		add(f.output.Bytes, i, i+1, &f.output)
		add(f.scratch.Bytes, i, i, &f.scratch)
		l := &t.layers[x.ops[i].Layer-1]
		f.weights = x.weightsOf(t, l.number, i, add)
		for _, q := range l.ties {
			f.tied = x.weightsOf(t, q.Of.Layer, i, add)
		}
	}
	extent := pack.Around(fixed, items, n)
	for i, s := range spans {
		s.Offset = m.Static + items[i].Offset
	}
	x.bind(t, *scalars)
	return x, m.Static + extent
}

// weightsOf returns where an op of an evaluation finds the weights of a layer: where they stay, or else nothing yet, and a load of them.
func (x *evaluation) weightsOf(t *localStage, layer, op int, add func(bytes int64, first, last int, span *runtime.Span)) runtime.Span {
	s := &t.cyclic.layers[layer-1]
	if s.weightBytes == 0 {
		return runtime.Span{}
	}
	if s.newest.device {
		return s.weights.at(s.weights.positions - 1)
	}
	x.loads = append(x.loads, load{op: op})
	add(s.weightBytes, op, op, &x.loads[len(x.loads)-1].dst)
	return runtime.Span{}
}

// bind tells the frames of an evaluation where their blocks are.
func (x *evaluation) bind(t *localStage, scalars runtime.Span) {
	next := 0
	take := func(layer int, at *runtime.Span) {
		if s := &t.cyclic.layers[layer-1]; at.Bytes == 0 && s.weightBytes > 0 {
			*at = x.loads[next].dst
			x.loadedFrom = append(x.loadedFrom, layer)
			next++
		}
	}
	for i := range x.frames {
		f := &x.frames[i]
		f.scalars, f.input = scalars, x.inputs[0]
		if i > 0 {
			f.input = x.frames[i-1].output
		}
		l := &t.layers[x.ops[i].Layer-1]
		take(l.number, &f.weights)
		for _, q := range l.ties {
			take(q.Of.Layer, &f.tied)
		}
	}
	x.output = x.frames[len(x.frames)-1].output
}

// fetch brings the weights for an op of an evaluation to the device.
func (x *evaluation) fetch(op int) error {
	for i, l := range x.loads {
		if l.op != op {
			continue
		}
		if err := x.driver.compute.S.Copy(l.dst, x.stage.cyclic.layers[x.loadedFrom[i]-1].weightHome); err != nil {
			return err
		}
	}
	return nil
}
