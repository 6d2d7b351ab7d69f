package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
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

// updatesLast says what comes around the passes of a layer, and what behind all of them: first the gradients that go to the host, then all else.
type updatesLast struct {
	around
	behind []schedule.Kind
	tied   bool // gradients of layers that share weights are on the device together
}

// guardedPlans are ways to update behind the last backward, or in the next step, by name.
var guardedPlans = map[string]updatesLast{
	"resident":       {around{}, kinds("U"), true},
	"optimizer":      {around{}, kinds("Og Dw H Pw"), true},
	"window":         {around{kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw")}, kinds("Og H"), true},
	"early":          {around{kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Og Dw")}, kinds("H"), false},
	"streamed":       {around{kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw")}, kinds("Pw Ps U Ow Os Dw Ds"), true},
	"back":           {around{kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Og Dw")}, kinds("Pw Ps Pg U Ow Os Dw Ds"), false},
	"delayed-host":   {around{kinds("H' Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Dw")}, kinds("Og"), true},
	"delayed-device": {around{kinds("Pw Ps Pg' U' Os Ds"), kinds("Ow Dw"), kinds("Pw"), kinds("Dw"), kinds("Pw"), kinds("Og Dw")}, nil, false},
}

// plan returns the plan of a way, by layer or by microbatch, that updates last.
func (p updatesLast) plan(t *testing.T, c *chain.Chain, on *pipeline.Platform, name string, microbatches int, byLayer bool) *pipeline.Plan {
	t.Helper()
	w := &cyclicWriter{c: c, microbatches: microbatches, seq: p.byMicrobatch(c, microbatches)}
	if byLayer {
		w.seq = p.byLayer(c, microbatches)
	}
	for l := c.Len(); l >= 1; l-- {
		w.state(l, slices.DeleteFunc(slices.Clone(p.behind), func(k schedule.Kind) bool { return k != schedule.OffloadGradient }))
	}
	for l := c.Len(); l >= 1; l-- {
		if c.Owner(l) == l {
			w.state(l, slices.DeleteFunc(slices.Clone(p.behind), func(k schedule.Kind) bool { return k == schedule.OffloadGradient }))
		}
	}
	plan := pipeline.NewCycle(c.Name, name, w.seq, on)
	plan.UpdatesLast = true
	if err := plan.PredictCycle(c); err != nil {
		t.Fatalf("%s: %v\n%v", name, err, w.seq)
	}
	return plan
}

// clippedRun trains for four steps in two runs, clipped to a norm.
func clippedRun(t testing.TB, on []executor.Target, w *Workload, c Costs, plan *pipeline.Plan, opt Options) *guardedRun {
	t.Helper()
	e, out := guarded(t, on, w, c, plan, 4, opt)
	n := plan.Repeats()
	must(t, e.Run(t.Context(), 3*n))
	must(t, e.Run(t.Context(), n))
	out.Tensors = tensors(t, e)
	if opt.Audit {
		if a, m := e.Audited()[0], e.memory[0]; a.PeakBytes != m.Peak || a.ExtentBytes > m.Extent {
			t.Errorf("%s: audited %+v, planned %+v", plan.Strategy, a, m)
		}
	}
	return out
}

// guardedDifference compares runs, with their norms and the steps that are skipped.
func guardedDifference(want, got *guardedRun) string {
	if d := want.FirstDifference(got.Outcome); d != "" {
		return d
	}
	if !slices.Equal(want.skipped, got.skipped) {
		return fmt.Sprintf("skipped %v, want %v", got.skipped, want.skipped)
	}
	return ""
}

// guardedCases are cyclicCases that clip some steps and others not, each with a norm.
var guardedCases = []struct {
	cyclicCase
	most float32
}{{cyclicCases[0], 3}, {cyclicCases[1], 2.5}, {cyclicCases[2], 2.5}, {cyclicCases[3], 2.5}}

// A plan that moves weights, gradients and state clips gradients and skips non-finite steps as a plan that keeps everything on the device.
// Norms and weights are the same, to the last bit, whatever the streams' times.
func TestCyclicPlansClipAndSkip(t *testing.T) {
	t.Parallel()
	cases := guardedCases
	if testing.Short() {
		cases = cases[:3]
	}
	clipped := map[bool]int{}
	for _, z := range cases {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workloadOf(t, m, z.rule)
		c := withState(w)
		p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: true, HostMemory: 1 << 40}
		flush := counted(w, 1)
		for _, n := range []int{1, 3} {
			store := planFor(t, "1f1b-flush", flush, pipeline.Options{Microbatches: n})
			on := func(seed int) []executor.Target { return targets(t, 1, host.Config{Chaos: uint64(seed)}) }
			want := clippedRun(t, on(0), w, flush, store, Options{MaxNorm: z.most})
			bad := clippedRun(t, spoil(on(0), 0), w, flush, store, Options{MaxNorm: z.most})
			if !slices.Equal(bad.skipped, []bool{false, true, true, false}) {
				t.Fatalf("skipped %v", bad.skipped)
			}
			for _, norm := range want.Norms {
				clipped[norm > float64(z.most)]++
			}
			for name, way := range guardedPlans {
				if !way.tied && len(m.Tied()) > 0 {
					continue
				}
				for _, byLayer := range []bool{true, false} {
					if !byLayer && n == 1 {
						continue
					}
					plan := way.plan(t, c, p, name, n, byLayer)
					what := fmt.Sprintf("%s, %s, %d microbatches, by layer %v", z.name, name, n, byLayer)
					if d := guardedDifference(want, clippedRun(t, on(n), w, Costs{c, p}, plan, Options{MaxNorm: z.most, Audit: true})); d != "" {
						t.Errorf("%s: %s\n%v", what, d, plan.Cycle)
					}
					if d := guardedDifference(bad, clippedRun(t, spoil(on(n), 0), w, Costs{c, p}, plan, Options{MaxNorm: z.most})); d != "" {
						t.Errorf("%s, not finite: %s\n%v", what, d, plan.Cycle)
					}
				}
			}
		}
	}
	if clipped[true] < 4 || clipped[false] < 4 {
		t.Errorf("%d steps are clipped, %d are not", clipped[true], clipped[false])
	}
}

// Plans of all strategies for limits down to the smallest clip as a plan that keeps everything on the device.
func TestPlannedResidencyClips(t *testing.T) {
	t.Parallel()
	cases, shares := guardedCases[:3], []float64{0.85, 0.6, 0.4}
	if testing.Short() {
		cases, shares = cases[2:], shares[:2]
	}
	seen := map[string]int{}
	for i, z := range cases {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workloadOf(t, m, z.rule)
		c, flush := withState(w), counted(w, 1)
		for _, n := range []int{1, 2} {
			want := clippedRun(t, targets(t, 1, host.Config{}), w, flush, planFor(t, "1f1b-flush", flush, pipeline.Options{Microbatches: n}), Options{MaxNorm: z.most})
			p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: []float64{4e9, 4e10}[(n+i)%2], Duplex: n == 1, HostMemory: 1 << 40}
			o := pipeline.Options{Microbatches: n, UpdatesLast: true, Trials: fewTrials()}
			free := solved(t, "resident", c, p, o)
			plans := map[string]*pipeline.Plan{}
			for _, s := range residency.ForPlans() {
				for _, share := range shares {
					plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: p.WithMemory(int64(share * float64(free.Peak()))), Options: o})
					if errors.As(err, new(*pipeline.InfeasibleError)) {
						continue
					}
					must(t, err)
					plans[fmt.Sprintf("%s in %.0f %%", s.Name, 100*share)] = plan
				}
				for k, least := range s.Least {
					plan, err := least(t.Context(), pipeline.Request{Chain: c, Platform: p, Options: o})
					must(t, err)
					plans[fmt.Sprintf("least %d of %s", k, s.Name)] = plan
				}
			}
			for name, plan := range plans {
				got := clippedRun(t, targets(t, 1, host.Config{Chaos: uint64(n)}), w, Costs{c, plan.Platform}, plan, Options{MaxNorm: z.most, Audit: true})
				if d := guardedDifference(want, got); d != "" {
					t.Errorf("%s, %s, %d microbatches: %s\n%v", z.name, name, n, d, plan.Cycle)
				}
				count(seen, plan.Cycle)
			}
		}
	}
	t.Log(seen)
	for _, what := range []string{"plan", "again", "O", "H", "U", "Pw", "Ps", "prime"} {
		if seen[what] < 1 {
			t.Errorf("%d of %q: %v", seen[what], what, seen)
		}
	}
}

// solved returns a strategy's plan.
func solved(t *testing.T, name string, c *chain.Chain, p *pipeline.Platform, o pipeline.Options) *pipeline.Plan {
	t.Helper()
	s, err := planner.Lookup(name)
	must(t, err)
	plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: p, Options: o})
	must(t, err)
	return plan
}

// Needs refuses a plan that cannot clip, and names the op. Such a plan updates before the last backward, does not declare that its updates
// come last, or never brings the gradients of shared weights together.
func TestCyclicPlansThatCannotClip(t *testing.T) {
	t.Parallel()
	z := cyclicCases[2]
	m, err := models.New(z.name, z.config)
	must(t, err)
	w := workloadOf(t, m, kernels.SGD{})
	c := withState(w)
	p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, HostMemory: 1 << 40}
	early := pipeline.NewCycle(c.Name, "early", cyclicPlans["resident"].byLayer(c, 1), p)
	_, err = Needs(w, Costs{c, p}, early, Options{MaxNorm: 1})
	if !errors.Is(err, order.ErrPlan) || !strings.Contains(err.Error(), "clipping to a norm of 1 needs all gradients before the first update") {
		t.Errorf("not said: %v", err)
	}
	early.UpdatesLast = true
	_, err = Needs(w, Costs{c, p}, early, Options{MaxNorm: 1})
	if broken, ok := errors.AsType[*cycle.RuleError](err); !ok || broken.Op.Kind != schedule.Update || !strings.Contains(err.Error(), "put it behind the last backward") {
		t.Errorf("before the last backward: %v", err)
	}
	apart := guardedPlans["early"].plan(t, c, p, "apart", 1, true)
	_, err = Needs(w, Costs{c, p}, apart, Options{MaxNorm: 1})
	if !errors.Is(err, order.ErrPlan) || !strings.Contains(err.Error(), "B1: layers [1 ") {
		t.Errorf("apart: %v", err)
	}
}

// Random cyclic plans whose updates wait for all gradients clip as the resident plan.
func TestRandomCyclicPlansClip(t *testing.T) {
	t.Parallel()
	trials, cases := 12, guardedCases
	if testing.Short() {
		trials, cases = 2, cases[1:3]
	}
	seen := map[string]int{}
	for i, z := range cases {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workloadOf(t, m, z.rule)
		c, flush := withState(w), counted(w, 1)
		r := rand.New(rand.NewPCG(uint64(i), 41))
		for _, n := range []int{1, 3} {
			want := clippedRun(t, targets(t, 1, host.Config{}), w, flush, planFor(t, "1f1b-flush", flush, pipeline.Options{Microbatches: n}), Options{MaxNorm: z.most})
			for k := range trials {
				p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, Duplex: k%2 == 0, HostMemory: 1 << 40}
				walk := cycleWalk{r: r, c: c, lazy: 2 + r.IntN(12), updatesLast: true}
				plan := pipeline.NewCycle(c.Name, "random", walk.write(n), p)
				plan.UpdatesLast = true
				if err := plan.PredictCycle(c); err != nil {
					t.Fatalf("%v\n%v", err, plan.Cycle)
				}
				got := clippedRun(t, targets(t, 1, host.Config{Chaos: uint64(k + 1)}), w, Costs{c, p}, plan, Options{MaxNorm: z.most, Audit: k%2 == 0})
				if d := guardedDifference(want, got); d != "" {
					t.Errorf("%s, %d microbatches, trial %d: %s\n%v", z.name, n, k, d, plan.Cycle)
				}
				count(seen, plan.Cycle)
			}
		}
	}
	t.Log(seen)
	for _, what := range []string{"plan", "H", "U", "Og", "Pg", "prime"} {
		if seen[what] < 1 {
			t.Errorf("%d of %q: %v", seen[what], what, seen)
		}
	}
}

// The prover refuses a table in which an update on the host does not wait for the verdict on the norm. It also refuses a table in which the
// verdict reaches the host after the event that the updates wait for.
func TestUpdatesOnTheHostWaitForTheNorm(t *testing.T) {
	t.Parallel()
	z := cyclicCases[1]
	m, err := models.New(z.name, z.config)
	must(t, err)
	w := workloadOf(t, m, z.rule)
	c := withState(w)
	p := &pipeline.Platform{Devices: 1, Memory: []int64{pipeline.NoLimit}, Host: 4e10, HostMemory: 1 << 40}
	plan := guardedPlans["early"].plan(t, c, p, "early", 1, true)
	e, err := New(w, targets(t, 1, host.Config{}), Costs{c, p}, plan, Options{Feed: still{}, Rate: rate, MaxNorm: 1})
	must(t, err)
	cyclic := e.drivers[0].stages[0].cyclic
	judges := &cyclic.ops[cyclic.guard.judges]
	refuse := func(r *table.Row, changed []table.Cell, named ...string) {
		t.Helper()
		list := r.Lists[0]
		r.Lists[0] = changed
		err := e.prove()
		r.Lists[0] = list
		race, ok := errors.AsType[*OrderError](err)
		for _, name := range named {
			ok = ok && strings.Contains(err.Error(), name)
		}
		if !ok {
			t.Errorf("%v: %v, %v", r.Op, race, err)
		}
	}
	waits, verdicts := 0, 0
	for i := range e.drivers[0].table.Rows {
		r := &e.drivers[0].table.Rows[i]
		for k, x := range r.Lists[0] {
			switch c := x.Variants[0]; {
			case r.Op.Kind == schedule.HostUpdate && c.Verb == table.DoWait && c.Event == judges.end:
				refuse(r, other(r.Lists[0], k, 0, func(c *table.Command) { c.Played = table.Never }), "adamw in H")
				waits++
			case r.Op == judges.Op && c.Verb == table.DoCopy && c.Dst == cyclic.guard.verdict:
				refuse(r, moved(r.Lists[0], k, len(r.Lists[0])-1), "adamw in H", "a copy in "+judges.String())
				verdicts++
			}
		}
	}
	must(t, e.prove())
	if waits == 0 || verdicts != 1 {
		t.Errorf("%d updates on the host wait for the verdict by themselves, of %d verdicts", waits, verdicts)
	}
}
