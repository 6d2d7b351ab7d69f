package pipeline

import (
	"fmt"
	"testing"

	"plimsoll/executor"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime/host"
)

// withState returns the chain of a workload whose costs say what an update takes.
func withState(w *Workload) *chain.Chain {
	c := w.Unmeasured()
	for i := range c.Layers {
		l := &c.Layers[i]
		for k := range w.Optimizer.States() {
			_, bytes := executor.StateLayout(w.Optimizer, w.Model.Layers[i], k)
			l.Update.StateBytes += bytes
		}
		seconds := float64(l.WeightBytes) / 1e10
		l.Update.DeviceS, l.Update.HostS = seconds, &seconds
	}
	return c
}

// cyclicWriter writes cyclic sequences of a chain.
type cyclicWriter struct {
	c            *chain.Chain
	microbatches int
	seq          cycle.Sequence
}

// state appends ops of a layer's weights, gradient and state, where it has some.
func (w *cyclicWriter) state(layer int, prime bool, kinds ...schedule.Kind) {
	l := w.c.Layer(layer)
	for _, k := range kinds {
		of := k == schedule.FetchState || k == schedule.WriteState || k == schedule.DropState
		if l.WeightBytes > 0 && (!of || l.Update.StateBytes > 0) {
			w.seq = append(w.seq, cycle.Op{Kind: k, Layer: layer, Prime: prime})
		}
	}
}

func (w *cyclicWriter) op(kind schedule.Kind, layer, microbatch int) {
	o := cycle.Op{Kind: kind, Layer: layer}
	if w.microbatches > 1 {
		o.Microbatch = microbatch
	}
	w.seq = append(w.seq, o)
}

// around says what comes before and behind the forwards and the backwards of a layer.
type around struct {
	beforeF, afterF, beforeB, afterB func(w *cyclicWriter, layer int)
}

func nothing(*cyclicWriter, int) {}

func stateOps(kinds ...schedule.Kind) func(*cyclicWriter, int) {
	return func(w *cyclicWriter, layer int) { w.state(layer, false, kinds...) }
}

// cyclicPlans are ways to have weights, gradients and state, by name.
var cyclicPlans = map[string]around{
	"resident":      {nothing, nothing, nothing, stateOps(schedule.Update)},
	"optimizer":     {nothing, nothing, nothing, stateOps(schedule.OffloadGradient, schedule.DropWeights, schedule.HostUpdate, schedule.FetchWeights)},
	"window":        {stateOps(schedule.FetchWeights), stateOps(schedule.DropWeights), stateOps(schedule.FetchWeights), stateOps(schedule.OffloadGradient, schedule.DropWeights, schedule.HostUpdate)},
	"device-update": {stateOps(schedule.FetchWeights), stateOps(schedule.DropWeights), stateOps(schedule.FetchWeights, schedule.FetchState), stateOps(schedule.Update, schedule.WriteWeights, schedule.WriteState, schedule.DropWeights, schedule.DropState)},
	"delayed-host": {func(w *cyclicWriter, l int) {
		w.state(l, true, schedule.HostUpdate)
		w.state(l, false, schedule.FetchWeights)
	}, stateOps(schedule.DropWeights), stateOps(schedule.FetchWeights), stateOps(schedule.OffloadGradient, schedule.DropWeights)},
	"delayed-device": {func(w *cyclicWriter, l int) {
		w.state(l, false, schedule.FetchWeights, schedule.FetchState)
		w.state(l, true, schedule.FetchGradient, schedule.Update)
		w.state(l, false, schedule.WriteState, schedule.DropState)
	}, stateOps(schedule.WriteWeights, schedule.DropWeights), stateOps(schedule.FetchWeights), stateOps(schedule.OffloadGradient, schedule.DropWeights)},
	"dirty": {stateOps(schedule.WriteWeights), nothing, nothing, stateOps(schedule.Update)},
}

// byMicrobatch writes a sequence microbatch after microbatch: weights come with each, the update behind the last.
func (p around) byMicrobatch(c *chain.Chain, microbatches int) cycle.Sequence {
	w, n := &cyclicWriter{c: c, microbatches: microbatches}, c.Len()
	for m := 1; m <= microbatches; m++ {
		first, last := p.beforeF, p.afterB
		if m > 1 {
			first = p.beforeB
		}
		if m < microbatches {
			last = p.afterF
		}
		for l := 1; l <= n; l++ {
			first(w, l)
			w.op(schedule.ForwardAll, l, m)
			p.afterF(w, l)
		}
		for l := n; l >= 1; l-- {
			p.beforeB(w, l)
			w.op(schedule.Backward, l, m)
			last(w, l)
		}
	}
	return w.seq
}

// byLayer writes a sequence layer after layer, all microbatches of each.
func (p around) byLayer(c *chain.Chain, microbatches int) cycle.Sequence {
	w, n := &cyclicWriter{c: c, microbatches: microbatches}, c.Len()
	for l := 1; l <= n; l++ {
		p.beforeF(w, l)
		for m := 1; m <= microbatches; m++ {
			w.op(schedule.ForwardAll, l, m)
		}
		p.afterF(w, l)
	}
	for l := n; l >= 1; l-- {
		p.beforeB(w, l)
		for m := 1; m <= microbatches; m++ {
			w.op(schedule.Backward, l, m)
		}
		p.afterB(w, l)
	}
	return w.seq
}

// Plans that move weights, gradients and state train the weights of a plan that keeps everything on the device, to the last bit, whatever the streams' times.
func TestCyclicPlansTrainAsResidentOnes(t *testing.T) {
	t.Parallel()
	for _, z := range []sample{{"tiny", models.Config{Batch: 4, Image: 8, Classes: 10}}, {"gpt2-2-16-untied", models.Config{Batch: 2, Image: 12, Classes: 50}}} {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workload(t, m)
		c := withState(w)
		p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 40}
		on := Costs{c, p}
		for _, n := range []int{1, 3} {
			flush := counted(w, 1)
			resident, want := trainedWith(t, w, flush, planFor(t, "1f1b-flush", flush, pipeline.Options{Microbatches: n}), 4*n, host.Config{}, Options{})
			want.Tensors = tensors(t, resident)
			for name, way := range cyclicPlans {
				for order, seq := range map[string]cycle.Sequence{"by microbatch": way.byMicrobatch(c, n), "by layer": way.byLayer(c, n)} {
					what := fmt.Sprintf("%s, %s, %d microbatches %s", z.name, name, n, order)
					plan, err := pipeline.PlanCycle(c, name, seq, p)
					if err != nil {
						t.Errorf("%s: %v", what, err)
						continue
					}
					e, out := trainedWith(t, w, on, plan, 4*n, host.Config{Chaos: uint64(n)}, Options{})
					out.Tensors = tensors(t, e)
					if d := want.FirstDifference(out); d != "" {
						t.Errorf("%s: %s\n%v\n%v", what, d, out.Losses, want.Losses)
					}
				}
			}
		}
	}
}
