package pipeline

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/residency"
	"plimsoll/planner/schedule"
	"plimsoll/runtime/host"
)

// withState returns the chain of a workload, with times that are made up.
func withState(w *Workload) *chain.Chain {
	c := w.Unmeasured()
	for i := range c.Layers {
		l := &c.Layers[i]
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

// state appends ops of a layer's weights, gradient and state, where it has some. The weights of a layer that are another one's come and go
// for both; that one's update is for both, too, and needs both gradients.
func (w *cyclicWriter) state(layer int, kinds []schedule.Kind) {
	owner := w.c.Owner(layer)
	for _, k := range kinds {
		o := cycle.Op{Kind: k &^ primed, Layer: layer, Prime: k&primed != 0}
		ofWeights := o.Kind == schedule.FetchWeights || o.Kind == schedule.DropWeights
		ofState := o.Kind == schedule.FetchState || o.Kind == schedule.WriteState || o.Kind == schedule.DropState
		switch {
		case owner == 0, ofState && w.c.Layer(owner).Update.StateBytes == 0:
		case owner == layer, o.Kind == schedule.OffloadGradient:
			w.seq = append(w.seq, o)
		case ofWeights:
			w.seq = append(w.seq, cycle.Op{Kind: o.Kind, Layer: owner, Prime: o.Prime})
		}
		for j := range w.c.Layers {
			if o.Kind == schedule.FetchGradient && owner == layer && w.c.Layers[j].Update.WeightsOf == layer {
				w.seq = append(w.seq, cycle.Op{Kind: o.Kind, Layer: j + 1, Prime: o.Prime})
			}
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

type cyclicCase struct {
	sample
	rule kernels.Update
}

// cyclicCases are models that cyclic plans train: with branches inside layers and statistics, with tied weights, and with rules that have two states.
var cyclicCases = []cyclicCase{
	{sample{"tiny", models.Config{Batch: 4, Image: 8, Classes: 10}}, optimizer},
	{sample{"gpt2-2-16-untied", models.Config{Batch: 2, Image: 12, Classes: 50}}, kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1}},
	{sample{"gpt2-2-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50}}, kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1}},
	{sample{"llama-2-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50}}, kernels.SGD{}},
}

// A plan that moves weights, gradients and state trains the same weights, to the last bit, as a plan that keeps everything on the device.
// The streams' times make no difference. In an audited run, the memory equals the layout's.
func TestCyclicPlansTrainAsResidentOnes(t *testing.T) {
	t.Parallel()
	cases := cyclicCases
	if testing.Short() {
		cases = []cyclicCase{cases[0], cases[2]}
	}
	for _, z := range cases {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workloadOf(t, m, z.rule)
		c := withState(w)
		p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 40}
		for _, n := range []int{1, 3} {
			want := residentOutcome(t, w, n)
			for name, way := range cyclicPlans {
				orders := map[string]cycle.Sequence{"by layer": way.byLayer(c, n)}
				if n > 1 {
					orders["by microbatch"] = way.byMicrobatch(c, n)
				}
				for order, seq := range orders {
					what := fmt.Sprintf("%s, %s, %d microbatches %s", z.name, name, n, order)
					plan, err := pipeline.PlanCycle(c, name, seq, p)
					if err != nil {
						t.Errorf("%s: %v", what, err)
						continue
					}
					e, out := trainedWith(t, w, Costs{c, p}, plan, 4*n, host.Config{Chaos: uint64(n)}, Options{Audit: true})
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

// residentOutcome trains a plan that keeps everything on the device, with a flush, for four steps.
func residentOutcome(t *testing.T, w *Workload, microbatches int) *pipelinetest.Outcome {
	t.Helper()
	flush := counted(w, 1)
	e, out := trainedWith(t, w, flush, planFor(t, "1f1b-flush", flush, pipeline.Options{Microbatches: microbatches}), 4*microbatches, host.Config{}, Options{})
	out.Tensors = tensors(t, e)
	for _, loss := range out.Losses {
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			t.Fatalf("%s: losses %v", w.Model.Name, out.Losses)
		}
	}
	return out
}

// A cyclic plan gives the same results in segments as at once. The tensors saved after each segment, the predictions in between and the
// final state are the same as with everything on the device.
func TestCyclicSegments(t *testing.T) {
	t.Parallel()
	const n = 2
	for _, z := range cyclicCases[:3] {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workloadOf(t, m, z.rule)
		c := withState(w)
		p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, HostMemory: 1 << 40}
		flush := counted(w, 1)
		run := func(c Costs, plan *pipeline.Plan) (states [][]pipelinetest.Tensor, logits [][]float32) {
			book := album{all: map[[2]int][]pipelinetest.Tensor{}}
			e, err := New(w, targets(t, 1, host.Config{Chaos: 3}), c, plan, Options{Feed: feedOf(m), Seed: 7, Rate: rate, Save: book.save})
			must(t, err)
			must(t, e.RunUntil(t.Context(), nil, Segment{n, true}, Segment{2 * n, true}))
			e.Saved()
			must(t, book.err)
			must(t, e.Evaluate(t.Context(), feedOf(m), 2, func(_ int, x []float32) error {
				logits = append(logits, slices.Clone(x))
				return nil
			}))
			must(t, e.Run(t.Context(), n))
			return [][]pipelinetest.Tensor{book.state(1, n), book.state(1, 3*n), tensors(t, e)}, logits
		}
		wantStates, wantLogits := run(flush, planFor(t, "1f1b-flush", flush, pipeline.Options{Microbatches: n}))
		for name, way := range cyclicPlans {
			plan, err := pipeline.PlanCycle(c, name, way.byLayer(c, n), p)
			must(t, err)
			states, logits := run(Costs{c, p}, plan)
			for i := range states {
				if d := (&pipelinetest.Outcome{Tensors: wantStates[i]}).FirstDifference(&pipelinetest.Outcome{Tensors: states[i]}); d != "" {
					t.Errorf("%s, %s, state %d: %s", z.name, name, i, d)
				}
			}
			if !reflect.DeepEqual(logits, wantLogits) {
				t.Errorf("%s, %s: other predictions", z.name, name)
			}
		}
	}
}

// Running statistics move in the order of microbatches: a plan that forwards a layer in another order is refused, with the op and the layer.
func TestCyclicStatisticsMoveInOrder(t *testing.T) {
	t.Parallel()
	m, err := models.New("tiny", cyclicCases[0].config)
	must(t, err)
	w := workload(t, m)
	c := withState(w)
	seq := cyclicPlans["resident"].byLayer(c, 2)
	seq[0], seq[1] = seq[1], seq[0]
	p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, HostMemory: 1 << 40}
	plan, err := pipeline.PlanCycle(c, "swapped", seq, p)
	must(t, err)
	if _, err := Needs(w, Costs{c, p}, plan, Options{}); !errors.Is(err, order.ErrPlan) || !strings.Contains(err.Error(), "op 1, Fall1.1: running statistics of layer") {
		t.Error(err)
	}
}

// Plans that the planner makes for limits down to the smallest train the same weights, to the last bit. These plans recompute, offload
// activations, update on the host and in the next step, and take microbatches in any order.
func TestPlannedResidencyTrainsAsResident(t *testing.T) {
	t.Parallel()
	cases, shares := cyclicCases[:3], []float64{0.85, 0.6, 0.45, 0.3}
	if testing.Short() {
		cases, shares = cases[1:], shares[:2]
	}
	seen := residencyPlans(t, cases, shares)
	for _, what := range []string{"plan", "again", "O", "H", "U", "Pw", "Ps", "prime"} {
		if seen[what] < 1 {
			t.Errorf("%d of %q: %v", seen[what], what, seen)
		}
	}
}

// fewTrials ends residency's search early at the size of every submission: its plans run, they need not be fast.
func fewTrials() int {
	if testing.Short() {
		return 800
	}
	return 0
}

// residencyPlans trains models along plans within shares of the resident plan's peak, and returns what the plans do.
func residencyPlans(t *testing.T, cases []cyclicCase, shares []float64) (seen map[string]int) {
	t.Helper()
	var names []string
	for _, s := range residency.ForPlans() {
		names = append(names, s.Name)
	}
	seen = map[string]int{}
	for i, z := range cases {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workloadOf(t, m, z.rule)
		c := withState(w)
		for _, n := range []int{1, 2} {
			want := residentOutcome(t, w, n)
			p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: []float64{4e9, 4e10}[(n+i)%2], Duplex: n == 1, HostMemory: 1 << 40}
			resident, err := planner.Lookup("resident")
			must(t, err)
			free, err := resident.Solve(t.Context(), pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Microbatches: n}})
			must(t, err)
			for k, name := range names {
				s, err := planner.Lookup(name)
				must(t, err)
				for _, share := range shares {
					plan, err := s.Solve(t.Context(), pipeline.Request{
						Chain: c, Platform: p.WithMemory(int64(share * float64(free.Peak()))), Options: pipeline.Options{Microbatches: n, Trials: fewTrials()},
					})
					if errors.As(err, new(*pipeline.InfeasibleError)) {
						continue
					}
					must(t, err)
					what := fmt.Sprintf("%s, %s in %.0f %%, %d microbatches", z.name, name, 100*share, n)
					e, out := trainedWith(t, w, Costs{c, p}, plan, 4*n, host.Config{Chaos: uint64(k + 1)}, Options{Audit: true})
					if a, m := e.Audited()[0], e.memory[0]; a.PeakBytes != m.Peak || a.ExtentBytes > m.Extent {
						t.Errorf("%s: audited %+v, planned %+v", what, a, m)
					}
					out.Tensors = tensors(t, e)
					if d := want.FirstDifference(out); d != "" {
						t.Errorf("%s: %s\n%v", what, d, plan.Cycle)
					}
					count(seen, plan.Cycle)
				}
			}
		}
	}
	t.Log(seen)
	return seen
}

// count counts plans that do something.
func count(seen map[string]int, seq cycle.Sequence) {
	has, forwards, backwards := map[string]bool{"plan": true}, 0, 0
	for _, o := range seq {
		has[o.Kind.Token()] = true
		has["prime"] = has["prime"] || o.Prime
		switch o.Kind {
		case schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.ForwardDiscard:
			forwards++
		case schedule.Backward:
			backwards++
		}
	}
	has["again"] = forwards > backwards
	for what, yes := range has {
		if yes {
			seen[what]++
		}
	}
}
