package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// passes are the divisions with which gradients pass.
var passes = []pipeline.Zero{pipeline.ZeroGradients, pipeline.ZeroWeights}

// dividedBy returns a plan with a division, with each stage in up to so many.
func dividedBy(t testing.TB, c Costs, plan *pipeline.Plan, parts int, zero pipeline.Zero) *pipeline.Plan {
	t.Helper()
	p := *pipeline.DivideStages(c.Chain, plan, parts)
	p.Zero = zero
	out, err := pipeline.Synchronize(c.Chain, c.Platform, &p)
	must(t, err)
	_, err = pipeline.Check(c.Chain, c.Platform, out)
	must(t, err)
	return out
}

// Gradients that pass are added up microbatch by microbatch: losses and weights have the bits of gradient accumulation on one device, however
// many rounds and stages there are.
// Only this test finds a round that is added up out of order, or a buffer that the next stage takes too early.
func TestPassingIsGradientAccumulation(t *testing.T) {
	t.Parallel()
	m := plainModel(t)
	w := workload(t, m)
	for _, zero := range passes {
		for _, devices := range []int{2, 4, 8} {
			for _, rounds := range []int{1, 3} {
				for _, parts := range []int{1, 2, 100} {
					if testing.Short() && ((devices == 2) != (parts == 2) || devices == 8) {
						continue
					}
					t.Run(fmt.Sprintf("zero %d, %d devices, %d rounds, %d stages", zero, devices, rounds, parts), func(t *testing.T) {
						c := costs(w, devices, 3)
						p := dividedBy(t, c, dataParallel(c, rounds*devices), parts, zero)
						n := 3 * p.Repeats()
						e, got := trained(t, w, c, p, n, host.Config{Chaos: 4})
						got.Tensors = tensors(t, e)
						same(t, reference(t, m, p, newInstants(t, c, p).expected(e.layout, n), n), got)
					})
				}
			}
		}
	}
}

// Random plans, whose stages need not have the same replicas and may split their backwards, pass gradients to the last bit.
func TestRandomPlansPass(t *testing.T) {
	t.Parallel()
	m := wideModel(t)
	w := workload(t, m)
	r := rand.New(rand.NewPCG(17, 1))
	ran, split, rounds, plans := 0, 0, 0, 60
	if testing.Short() {
		plans = 30
	}
	for seed := uint64(0); ran < plans; seed++ {
		c, plan := randomPlan(w, seed, 1)
		if ran%2 == 0 {
			c = costs(w, 2+r.IntN(2), seed)
			plan = dataParallel(c, (2+r.IntN(3))*c.Platform.Devices)
		}
		if !plan.IsFlush() || !hasReplicas(plan) {
			continue
		}
		p := *pipeline.DivideStages(c.Chain, plan, 1+r.IntN(3))
		p.Zero = passes[seed%2]
		passing, err := pipeline.Synchronize(c.Chain, c.Platform, &p)
		if errors.Is(err, pipeline.ErrPlan) { // its devices do not take turns
			continue
		}
		must(t, err)
		if passing.Synchronization == nil {
			continue
		}
		n := 2 * passing.Repeats()
		e, got := trained(t, w, c, passing, n, host.Config{Chaos: seed})
		x := newInstants(t, c, passing)
		if !x.ascending(e.layout, n) { // a stage on one device would add up in another order
			continue
		}
		ran++
		if slices.Contains(passing.Split(), true) {
			split++
		}
		for _, x := range e.order.Sums {
			if x != nil && x.Rounds(e.order.Repeats) > 1 {
				rounds++
				break
			}
		}
		got.Tensors = tensors(t, e)
		want := reference(t, m, passing, x.expected(e.layout, n), n)
		if d := want.FirstDifference(got); d != "" {
			t.Fatalf("seed %d: %s", seed, d)
		}
	}
	t.Logf("%d plans, %d with split backwards, %d with several rounds", ran, split, rounds)
	if split < plans/10 || rounds < plans/10 {
		t.Errorf("%d of %d plans with split backwards, %d with several rounds", split, plans, rounds)
	}
}

// Where each replica has one microbatch, gradients that pass give the undivided run to the last bit: losses, norms, weights and states. The norm
// may be clipped, and the state on the host.
func TestPassingIsTheUndividedRun(t *testing.T) {
	t.Parallel()
	w := *workload(t, wideModel(t))
	for _, rule := range []kernels.Update{kernels.SGD{Momentum: 0.9, WeightDecay: 1e-3}, kernels.Adam{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}} {
		w.Optimizer = rule
		for _, devices := range []int{2, 4} {
			c := costs(&w, devices, 3)
			whole := dataParallel(c, devices)
			for i := range 4 {
				zero, parts := passes[i%2], 1+i/2*2
				for _, opt := range []Options{{}, {MaxNorm: 0.05}} {
					steps, passing := 3, dividedBy(t, c, whole, parts, zero)
					want, out := guarded(t, targets(t, devices, host.Config{}), &w, c, whole, steps, opt)
					must(t, want.Run(t.Context(), steps*whole.Repeats()))
					out.Tensors = tensors(t, want)
					for _, p := range []*pipeline.Plan{passing, onHostState(passing)} {
						got, shared := guarded(t, targets(t, devices, host.Config{Chaos: 3}), &w, c, p, steps, opt)
						must(t, got.Run(t.Context(), steps*p.Repeats()))
						shared.Tensors = tensors(t, got)
						if d := out.FirstDifference(shared.Outcome); d != "" || !slices.Equal(out.Norms, shared.Norms) {
							t.Fatalf("zero %d, %T, %d devices, %d stages, max norm %v, state on the host %v: %s; norms %v, undivided %v", zero, rule, devices, parts, opt.MaxNorm, p.HostState, d, shared.Norms, out.Norms)
						}
						got.joinsPartialSums(t)
					}
				}
			}
		}
	}
}

// Replicas in different processes pass gradients, too, and train the bits of one process.
func TestPassingBetweenProcesses(t *testing.T) {
	t.Parallel()
	w := workload(t, wideModel(t))
	r := rand.New(rand.NewPCG(4, 5))
	for _, devices := range []int{2, 4} {
		c := costs(w, devices, 3)
		c.Platform.Duplex = devices == 2
		for _, zero := range passes {
			p := dividedBy(t, c, dataParallel(c, 2*devices), 2, zero)
			n := 2 * p.Repeats()
			want := newWorld(t, w, c, p, make([]int, devices), cpus(t, host.Config{}), Options{}).trained(n)
			for i, process := range divisions(devices, r) {
				t.Run(fmt.Sprintf("zero %d/%d/%v", zero, devices, process), func(t *testing.T) {
					same(t, want, newWorld(t, w, c, p, process, cpus(t, host.Config{Chaos: uint64(i)}), Options{}).trained(n))
				})
			}
		}
	}
}

// After each segment, a run whose gradients pass saves the state of an undivided run, and either goes on from the other's.
func TestPassingCheckpoints(t *testing.T) {
	t.Parallel()
	w := workload(t, wideModel(t))
	c := costs(w, 4, 3)
	whole := dataParallel(c, 4)
	for _, zero := range passes {
		savesLike(t, w, c, whole, dividedBy(t, c, whole, 1, zero))
	}
}

// An audit of a step finds the planned peak to the byte, and gradients need less than those of ZeRO-1 where stages are divided.
func TestMemoryOfPassing(t *testing.T) {
	t.Parallel()
	w := *workload(t, wideModel(t))
	w.Optimizer = kernels.Adam{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
	for _, devices := range []int{2, 4} {
		c := costs(&w, devices, 3)
		whole := dataParallel(c, 2*devices)
		for i := range 6 {
			zero, parts := passes[i%2], 1<<(i/2)
			p := dividedBy(t, c, whole, parts, zero)
			needs, err := Needs(&w, c, p, Options{})
			must(t, err)
			e, _ := guarded(t, targets(t, devices, host.Config{}), &w, c, p, 1, Options{Audit: true})
			for _, a := range e.Audited() {
				d, own, gradients := e.driver(a.Device), int64(0), int64(0)
				for s, t := range d.stages {
					own, gradients = own+t.own.Bytes, gradients+e.weightBytes(s)
				}
				if m := needs[a.Device]; a.PeakBytes != m.Peak {
					t.Errorf("zero %d, %d devices, %d stages: audited %+v, planned %+v", zero, devices, parts, a, m)
				}
				if most := gradients/int64(devices) + guardBytes*int64(len(d.stages)); own > most {
					t.Errorf("%d devices, %d stages: device %d keeps %d of %d bytes of sums, more than %d", devices, parts, a.Device, own, gradients, most)
				}
				t.Logf("zero %d, %d devices, %d stages: device %d keeps %d of %d bytes of sums, %d buffers of %d; peak %d", zero, devices, parts, a.Device, own, gradients, len(d.buffers.spans), d.buffers.spans[0].Bytes, a.PeakBytes)
			}
		}
	}
}

// Rows of BatchNorm's statistics do not pass with gradients.
func TestRefusedPassing(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c := costs(w, 2, 3)
	p := dividedBy(t, c, dataParallel(c, 4), 1, pipeline.ZeroGradients)
	if _, err := Needs(w, c, p, Options{}); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), "statistics of its BatchNorm") {
		t.Error(err)
	}
}

// Where weights come for turns, an evaluation has the logits of one with all weights, before training and behind it, in one process or several.
func TestFetchingEvaluates(t *testing.T) {
	t.Parallel()
	w := workload(t, wideModel(t))
	const batches = 3
	for _, devices := range []int{2, 4} {
		c := costs(w, devices, 3)
		whole := dataParallel(c, devices)
		for _, parts := range []int{1, 3} {
			var want []float32
			for i, p := range []*pipeline.Plan{whole, dividedBy(t, c, whole, parts, pipeline.ZeroWeights)} {
				var got []float32
				evaluate := func(e *Executor) {
					must(t, e.Evaluate(t.Context(), feedOf(w.Model), batches, func(_ int, logits []float32) error {
						got = append(got, logits...)
						return nil
					}))
				}
				e, _ := guarded(t, targets(t, devices, host.Config{Chaos: uint64(3 * i)}), w, c, p, 4, Options{})
				evaluate(e)
				must(t, e.Run(t.Context(), 2*p.Repeats()))
				evaluate(e)
				must(t, e.Run(t.Context(), p.Repeats()))
				evaluate(e)
				if i == 0 {
					want = got
					continue
				}
				x := newWorld(t, w, c, p, divisions(devices, rand.New(rand.NewPCG(5, 5)))[0], cpus(t, host.Config{}), Options{})
				var apart []float32
				x.each(func(k int) error {
					return x.all[k].Evaluate(t.Context(), feedOf(w.Model), batches, func(_ int, logits []float32) error {
						apart = append(apart, logits...)
						return nil
					})
				})
				if !slices.Equal(apart, got[:len(apart)]) || len(apart) != len(got)/3 {
					t.Errorf("%d devices, %d stages, processes %v: logits %v, in one process %v", devices, parts, x.process, apart, got)
				}
				if !slices.Equal(want, got) {
					t.Errorf("%d devices, %d stages: logits %v, with all weights %v", devices, parts, got, want)
				}
			}
		}
	}
}

// The drivers of no plan that divides gradients or weights wait for each other, and events order all that they do to the same memory. Tasks and
// messages may take no time.
func TestNoPassingPlanIsStuck(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	lib := targets(t, 1, host.Config{})[0].Library
	r := rand.New(rand.NewPCG(18, 1))
	ran, seeds := 0, uint64(240)
	if testing.Short() {
		seeds = 80
	}
	for seed := range seeds {
		c, plan := randomPlan(w, seed, 0)
		if seed%2 == 0 {
			c = costs(w, 2+r.IntN(3), seed)
			plan = dataParallel(c, (1+r.IntN(3))*c.Platform.Devices)
			if seed%4 == 0 {
				c.Platform.Bandwidth = pipeline.Free()
			}
		}
		if !plan.IsFlush() || !hasReplicas(plan) {
			continue
		}
		p := *pipeline.DivideStages(c.Chain, plan, 1+r.IntN(5))
		p.Zero = passes[seed/4%2]
		passing, err := pipeline.Synchronize(c.Chain, c.Platform, &p)
		if errors.Is(err, pipeline.ErrPlan) {
			continue
		}
		must(t, err)
		h := &history{drop: none}
		e, err := idleBind(w, lib, c, passing, h)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		ran++
		h.deeds = h.deeds[:0]
		must(t, e.Run(t.Context(), 3*e.group))
		if race := h.race(); race != nil {
			t.Errorf("seed %d, zero %d: %v", seed, p.Zero, race)
		}
	}
	t.Logf("%d plans", ran)
	if ran < int(seeds)/2 {
		t.Errorf("%d plans of %d seeds", ran, seeds)
	}
}

// Backwards that recompute, on devices that wait for each other's weights, do not let them wait in a circle: of chimera whose stages recompute for any
// times.
func TestRecomputingTurnsAreNotStuck(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	lib := targets(t, 1, host.Config{})[0].Library
	seeds := uint64(10)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		for _, devices := range []int{2, 4} {
			r := rand.New(rand.NewPCG(seed, 21))
			c := costs(w, devices, seed)
			for i := range c.Chain.Layers {
				c.Chain.Layers[i].ForwardS *= float64(int(1) << r.IntN(8))
			}
			free := planFor(t, "chimera", c, pipeline.Options{Microbatches: 2 * devices, Accounting: pipeline.Saved})
			plan := tightened(t, "chimera", c, free)
			for i := range plan.Tasks {
				plan.Tasks[i].Duration = nil
			}
			p := dividedBy(t, c, plan, 1, passes[seed%2])
			h := &history{drop: none}
			e, err := idleBind(w, lib, c, p, h)
			if err != nil {
				t.Fatalf("seed %d, %d devices: %v", seed, devices, err)
			}
			h.deeds = h.deeds[:0]
			must(t, e.Run(t.Context(), 2*e.group))
			if race := h.race(); race != nil {
				t.Errorf("seed %d, %d devices: %v", seed, devices, race)
			}
		}
	}
}
