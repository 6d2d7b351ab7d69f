package pipeline

import (
	"fmt"
	"strings"
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
func (w *cyclicWriter) state(layer int, kinds []schedule.Kind) {
	l := w.c.Layer(layer)
	for _, k := range kinds {
		o := cycle.Op{Kind: k &^ primed, Layer: layer, Prime: k&primed != 0}
		of := o.Kind == schedule.FetchState || o.Kind == schedule.WriteState || o.Kind == schedule.DropState
		if l.WeightBytes > 0 && (!of || l.Update.StateBytes > 0) {
			w.seq = append(w.seq, o)
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

// around says what comes before and behind the first forward and the last backward of a layer, and every pass between.
type around struct {
	beforeF, afterF, before, after, beforeB, afterB []schedule.Kind
}

// cyclicPlans are ways to have weights, gradients and state, by name.
var cyclicPlans = map[string]around{
	"resident":       {afterB: kinds("U")},
	"optimizer":      {afterB: kinds("Og Dw H Pw")},
	"window":         {kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Og Dw H")},
	"streamed":       {kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw Ps"), kinds("U Ow Os Dw Ds")},
	"delayed-host":   {kinds("H' Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Og Dw")},
	"delayed-device": {kinds("Pw Ps Pg' U' Os Ds"), kinds("Ow Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Og Dw")},
	"dirty":          {beforeF: kinds("Ow"), afterB: kinds("U")},
}

// primed marks kinds that are of the step before.
const primed = 1 << 7

// kinds reads ops of state without their layers.
func kinds(text string) (all []schedule.Kind) {
	for _, token := range strings.Fields(text) {
		letters, prime := strings.CutSuffix(token, "'")
		k, ok := schedule.KindOf(letters)
		if !ok {
			panic(token)
		}
		if prime {
			k |= primed
		}
		all = append(all, k)
	}
	return all
}

// byMicrobatch writes a sequence microbatch after microbatch.
func (p around) byMicrobatch(c *chain.Chain, microbatches int) cycle.Sequence {
	w, n := &cyclicWriter{c: c, microbatches: microbatches}, c.Len()
	for m := 1; m <= microbatches; m++ {
		beforeF, afterF, beforeB, afterB := p.before, p.after, p.before, p.after
		if m == 1 {
			beforeF, afterF = p.beforeF, p.afterF
		}
		if m == microbatches {
			beforeB, afterB = p.beforeB, p.afterB
		}
		for l := 1; l <= n; l++ {
			w.state(l, beforeF)
			w.op(schedule.ForwardAll, l, m)
			w.state(l, afterF)
		}
		for l := n; l >= 1; l-- {
			w.state(l, beforeB)
			w.op(schedule.Backward, l, m)
			w.state(l, afterB)
		}
	}
	return w.seq
}

// byLayer writes a sequence layer after layer, all microbatches of each.
func (p around) byLayer(c *chain.Chain, microbatches int) cycle.Sequence {
	w, n := &cyclicWriter{c: c, microbatches: microbatches}, c.Len()
	for l := 1; l <= n; l++ {
		w.state(l, p.beforeF)
		for m := 1; m <= microbatches; m++ {
			w.op(schedule.ForwardAll, l, m)
		}
		w.state(l, p.afterF)
	}
	for l := n; l >= 1; l-- {
		w.state(l, p.beforeB)
		for m := 1; m <= microbatches; m++ {
			w.op(schedule.Backward, l, m)
		}
		w.state(l, p.afterB)
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
					e, out := trainedWith(t, w, on, plan, 4*n, host.Config{Chaos: uint64(n)}, Options{Audit: true})
					if a, m := e.Audited()[0], e.memory[0]; a.PeakBytes != m.Peak || a.ExtentBytes > m.Extent {
						t.Errorf("%s: audited %+v, planned %+v", what, a, m)
					}
					out.Tensors = tensors(t, e)
					if d := want.FirstDifference(out); d != "" {
						t.Errorf("%s: %s", what, d)
					}
				}
			}
		}
	}
}
