package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/internal/cycle"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	sequential "plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/runtime/host"
)

// randomPlan draws a legal plan of any kind for a workload. The plan may have several stages a device, replicas that need not take turns,
// and several minibatches a period. Its backwards may be in two halves, and minibatches may overtake others. A task of each layer takes at
// least the given number of units of time.
func randomPlan(w *Workload, seed uint64, least int) (Costs, *pipeline.Plan) {
	r := rand.New(rand.NewPCG(seed, 11))
	c := Costs{Chain: w.Chain(), Platform: pipelinetest.Platform(r, 1+r.IntN(4))}
	unit := []float64{1, 0.1, 1.0 / 3}[r.IntN(3)]
	length := func(n int) float64 { return unit * float64(least+r.IntN(n)) }
	for i := range c.Chain.Layers {
		l := &c.Chain.Layers[i]
		input, weight := length(5), length(4)
		l.ForwardS, l.BackwardS, l.BackwardInputS, l.BackwardWeightS = length(5), input+weight, &input, &weight
	}
	c.Chain.Layers[0].ForwardS += unit
	scale := float64(c.Chain.Activation(1)) / unit
	c.Platform.Bandwidth *= scale
	for ends := range c.Platform.Pairs {
		c.Platform.Pairs[ends] *= scale
	}
	return c, pipelinetest.Plan(r, c.Chain, c.Platform)
}

func hasReplicas(plan *pipeline.Plan) bool {
	return slices.ContainsFunc(plan.Stages, func(s pipeline.Stage) bool { return len(s.Devices) > 1 })
}

// idleBind is idleNew for plans that may be refused.
func idleBind(w *Workload, lib kernels.Library, c Costs, plan *pipeline.Plan, h *history) (*Executor, error) {
	var on []executor.Target
	for d := range c.Platform.Devices {
		dev := &idle{history: h, number: d}
		on = append(on, executor.Target{Device: dev, Library: idleLibrary{lib, dev}})
	}
	return New(w, on, c, plan, Options{Feed: still{}, Rate: rate})
}

// The drivers of no legal plan wait for each other, and events order all they do. Refused are only plans with vertical_sync:
// whose stages count updates differently, or whose first stage updates before another one has the version.
// Only this test finds a legal plan that New refuses, or one that needs launches that its dry runs have not prepared.
func TestNoLegalPlanIsStuck(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	lib := targets(t, 1, host.Config{})[0].Library
	ran, refused, enough := map[string]int{}, 0, make(chan struct{})
	close(enough)
	seeds := uint64(320)
	if testing.Short() {
		seeds = 160
	}
	for seed := range seeds {
		c, plan := randomPlan(w, seed/2, 0)
		if plan = summing(t, c, plan, int(seed%2)*(1+int(seed/2)%4)); seed%2 == 1 && plan.Synchronization == nil {
			continue
		}
		h := &history{drop: none}
		e, err := idleBind(w, lib, c, plan, h)
		if errors.Is(err, order.ErrPlan) && plan.Versions == pipeline.VerticalSync && !strings.Contains(err.Error(), "wait for each other") {
			refused++
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		ran[fmt.Sprintf("flush %v, replicas %v, messages %v, split %v", plan.IsFlush(), hasReplicas(plan), plan.Synchronization != nil, slices.Contains(e.order.Split, true))]++
		if e.order.Repeats == 1 { // no minibatch overtakes another
			nothingNew(t, e, 31, 300)
		}
		if seed%8 != 0 {
			continue
		}
		h.deeds = h.deeds[:0]
		must(t, e.Run(context.Background(), (12+e.group-1)/e.group*e.group))
		if race := h.race(); race != nil {
			t.Errorf("seed %d: %v", seed, race)
		}
		must(t, e.RunUntil(context.Background(), enough, Segment{Minibatches: 100 * e.group}))
		if e.Done()%e.group != 0 {
			t.Errorf("seed %d: %d minibatches done, %d make an update", seed, e.Done(), e.group)
		}
	}
	t.Log(ran, refused)
	if len(ran) != 12 || refused > 20 {
		t.Errorf("ran %v, refused %d: want all kinds, and few refused", ran, refused)
	}
	for kind, n := range ran {
		if n < 3 && !testing.Short() {
			t.Errorf("%d plans with %s", n, kind)
		}
	}
}

// nothingNew goes through runs of several lengths, of which the tables must play every command. Where a run ends it needs no copy of
// weights that nobody sees any more, which a table has.
func nothingNew(t *testing.T, e *Executor, updates ...int) {
	t.Helper()
	if e.order.Plan.IsFlush() {
		return
	}
	for _, k := range updates {
		must(t, e.dryRun(k*e.group))
		for _, d := range e.drivers {
			plays := d.table.List(d.Device, k*e.group)
			recorded := d.recorded(k * e.group)
			last := (k-1)*e.group - e.order.Filling()
			ends := func(p table.Played) bool { return p.Of.Minibatch >= last }
			plays, recorded = slices.DeleteFunc(plays, ends), slices.DeleteFunc(recorded, ends)
			for n := range max(len(plays), len(recorded)) {
				if n < min(len(plays), len(recorded)) && plays[n].Key() == recorded[n].Key() && plays[n].Of == recorded[n].Of {
					continue
				}
				t.Errorf("device %d: in a run of %d minibatches, command %d of %d that are played differs from that of a dry run of as many, of %d: %v and %v", d.Number, k*e.group, n, len(plays), len(recorded), plays[min(n, len(plays)-1)], recorded[min(n, len(recorded)-1)])
				break
			}
		}
	}
}

// recorded returns the instructions that a driver has played in a dry run of the given number of minibatches, in order.
func (d *driver) recorded(minibatches int) (all []table.Played) {
	t := &table.Table{Repeats: d.lay.order.Repeats, Before: d.compiler.Recording.List(d.compiler.Recording.Before)}
	for i, x := range d.instructions() {
		w := table.Row{Instruction: x, Lists: [][]table.Cell{nil}, Shapes: cycle.Always(0)}
		for _, n := range d.compiler.Recording.Done[i] {
			list := d.compiler.Recording.Lists[n]
			w.Shapes.Begins = append(w.Shapes.Begins, int32(len(w.Lists)))
			w.Lists = append(w.Lists, table.Fixed(d.compiler.Recording.List(list)))
		}
		t.Rows = append(t.Rows, w)
	}
	t.Ends = d.table.Ends
	return t.List(d.Device, minibatches)
}

// instants are when the tasks of a plan run, by its times.
type instants struct {
	plan    *pipeline.Plan
	repeats int
	split   []bool
	at      map[order.TaskKey]pipeline.Task
	k       *clock
}

func newInstants(t *testing.T, c Costs, plan *pipeline.Plan) *instants {
	t.Helper()
	k, err := newClock(c, plan)
	must(t, err)
	x := &instants{plan: plan, repeats: plan.Repeats(), split: plan.Split(), at: map[order.TaskKey]pipeline.Task{}, k: k}
	for _, task := range plan.Tasks {
		x.at[order.TaskKey{Kind: task.Kind, Stage: task.Stage, Residue: (task.Shift%x.repeats + x.repeats) % x.repeats}] = task
	}
	return x
}

// start returns when a task of minibatch m starts, in seconds.
func (x *instants) start(kind pipeline.Kind, s, m int) float64 {
	task := x.at[order.TaskKey{Kind: kind, Stage: s, Residue: m % x.repeats}]
	if x.plan.IsFlush() {
		return task.Start
	}
	return task.Start + float64((m-task.Shift)/x.repeats)*x.plan.Period
}

// ends returns when the last task of minibatch m ends in stage s.
func (x *instants) ends(s, m int) float64 {
	kind := pipeline.B
	if x.split[s] {
		kind = pipeline.W
	}
	return x.start(kind, s, m) + x.k.length(kind, s, m%x.repeats)
}

// summed returns when the last message between replicas has ended in stage s of the round that minibatch m ends, if there are any.
func (x *instants) summed(s, m int) float64 {
	latest := math.Inf(-1)
	for i, message := range x.plan.Synchronization {
		if message.Stage == s && x.k.sums[i].Minibatch == m%x.repeats {
			latest = max(latest, x.k.sums[i].End+float64(m/x.repeats)*x.plan.Period)
		}
	}
	return latest
}

// program returns the sequential program of a plan of n minibatches; groups has the number of minibatches in an update of each stage. A
// task sees an update if all its minibatches, and their messages between replicas, have ended when the task starts. The minibatches of all
// updates before must have ended, too.
func (x *instants) program(groups []int, n int) sequential.Program {
	all := 1
	updates := make([][]float64, len(groups)) // by stage: when they are made
	for s, g := range groups {
		all = all / order.GCD(all, g) * g
		now := math.Inf(-1)
		for m := range n {
			if now = max(now, x.ends(s, m), x.summed(s, m)); (m+1)%g == 0 {
				updates[s] = append(updates[s], now)
			}
		}
	}
	seen := func(kind pipeline.Kind) sequential.Versions {
		return func(s, m int) int {
			start := x.start(kind, s, m) + x.k.eps
			return len(updates[s]) - len(slices.DeleteFunc(slices.Clone(updates[s]), func(u float64) bool { return u <= start }))
		}
	}
	p := sequential.Delayed("by the clock", seen(pipeline.F))
	if x.plan.Versions == pipeline.Latest {
		p.Backward = seen(pipeline.B)
	}
	p.Group, p.Groups = all, groups
	return p
}

// expected returns the sequential program of n minibatches of an executor's plan.
func (x *instants) expected(e *layout, n int) (p sequential.Program) {
	var groups []int
	for _, r := range e.rules {
		groups = append(groups, r.Group)
	}
	switch x.plan.Versions {
	case pipeline.Flush:
		p = sequential.Flush(e.group)
	case pipeline.DoubleBuffered:
		p = sequential.DoubleBuffered(e.group, slices.Repeat([]int{1}, len(groups)))
	default:
		p = x.program(groups, n)
	}
	p.Replica = func(s, m int) int {
		at := slices.Index(e.order.Hosts(s), e.order.On[s][m%e.order.Repeats])
		if e.order.Sums[s].Passes() { // owners add up microbatch by microbatch
			at += len(e.order.Hosts(s)) * e.order.Sums[s].Round(m, e.order.Repeats)
		}
		return at
	}
	return p
}

// ascending reports whether every device has the minibatches of an update in the order of their numbers, so that their
// gradients are added in that order.
func (x *instants) ascending(e *layout, n int) bool {
	for d := range e.order.Instructions {
		latest := map[order.TaskKey]int{}
		err := e.order.Instances(d, n, func(v order.Instance) error {
			key := order.TaskKey{Kind: v.Kind, Stage: v.Stage, Residue: v.Minibatch / e.rules[v.Stage].Group}
			if v.Kind == pipeline.F && x.plan.Versions != pipeline.Flush || !v.Computes() {
				return nil
			}
			if v.Minibatch < latest[key] {
				return errors.New("overtaken")
			}
			latest[key] = v.Minibatch
			return nil
		})
		if err != nil {
			return false
		}
	}
	return true
}

// Random plans with replicas or split backwards train with the bits of the sequential program whose versions follow from the
// times of the plan.
// Without a flush, only this test finds a wrong weight version of split backwards or of replicas without turns.
func TestRandomPlansFollowTheClock(t *testing.T) {
	t.Parallel()
	m := plainModel(t)
	w := workload(t, m)
	ran, most := map[string]int{}, 2
	if testing.Short() {
		most = 1
	}
	for seed := uint64(0); seed < 4000 && len(ran) < 100; seed++ {
		c, plan := randomPlan(w, seed, 1)
		if hasReplicas(plan) && seed%2 == 1 {
			plan = summing(t, c, plan, 1+int(seed/2)%4)
		}
		split := slices.Contains(plan.Split(), true)
		kind := fmt.Sprintf("%s, replicas %v, messages %v, split %v", plan.Versions, hasReplicas(plan), plan.Synchronization != nil, split)
		if plan.Versions == pipeline.VerticalSync || !hasReplicas(plan) && !split || ran[kind] >= most {
			continue
		}
		e := &layout{Workload: w}
		must(t, e.layOut(c, plan, c.Platform.Devices))
		n := max(3, 12/e.group) * e.group
		x := newInstants(t, c, plan)
		if !x.ascending(e, n) {
			continue
		}
		ran[kind]++
		p := x.expected(e, n)
		run, out := trained(t, w, c, plan, n, host.Config{Chaos: seed})
		out.Tensors = tensors(t, run)
		if d := reference(t, m, plan, p, n).FirstDifference(out); d != "" {
			t.Errorf("seed %d, %s: %s", seed, kind, d)
		}
	}
	t.Log(ran)
	if len(ran) != 20 {
		t.Errorf("ran %v: want 4 versions, with and without replicas, messages between them and split backwards", ran)
	}
}

// A circle is found, and named, without waiting.
func TestDriversThatWaitForEachOtherAreRefused(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	lib := targets(t, 1, host.Config{})[0].Library
	c := costs(w, 2, 1)
	e := idleNew(t, w, lib, c, planFor(t, "gpipe", c, pipeline.Options{Microbatches: 1}), &history{drop: none})
	must(t, e.dryRun(1))
	instructions := e.order.Instructions[0] // F0 CF0 B0
	instructions[1], instructions[2] = instructions[2], instructions[1]
	err := e.dryRun(1)
	if !errors.Is(err, order.ErrPlan) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"wait for each other", "device 0: issues B0 of minibatch 0, which needs CB0 from device 1", "device 1: issues F1 of minibatch 0, which needs CF0 from device 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// A plan that takes too many minibatches to repeat itself is refused before anybody walks through them.
func TestHugeShiftsAreRefused(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	c := costs(w, 2, 1)
	plan := planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash})
	for i := range plan.Tasks {
		if t := &plan.Tasks[i]; t.Kind == pipeline.F {
			t.Shift += 1_000_000
		}
	}
	if _, err := Needs(w, c, plan, Options{}); !errors.Is(err, order.ErrPlan) || !strings.Contains(err.Error(), "smaller shifts") {
		t.Errorf("%v", err)
	}
}

// Skips that go straight have the same values where backwards are split and minibatches overlap. A second half may read a skip after the
// minibatch has left the stage that made it.
func TestPortalsOfRandomPlans(t *testing.T) {
	t.Parallel()
	lib, tried := onlyLibrary(t), 0
	for seed := uint64(0); seed < 4000 && tried < 12; seed++ {
		r := rand.New(rand.NewPCG(seed, 12))
		m, err := (&wiring{Rand: r, width: 1 + r.IntN(3)}).model(6 + r.IntN(6))
		must(t, err)
		w := workload(t, m)
		c, plan := randomPlan(w, seed, 1)
		if plan.IsFlush() || plan.Versions == pipeline.VerticalSync || !slices.Contains(plan.Split(), true) {
			continue
		}
		straight, s := straightened(t, w, lib, c, plan, pipeline.Late)
		if straight == nil || !slices.ContainsFunc(straight.Portals, func(p pipeline.Portal) bool { return sharesADevice(plan, p) }) {
			continue
		}
		n := shown(t, w, c, plan)
		e, want := trained(t, w, c, plan, n, host.Config{})
		want.Tensors = tensors(t, e)
		f, got := trained(t, s, c, straight, n, host.Config{})
		got.Tensors = tensors(t, f)
		if d := want.FirstDifference(got); d != "" {
			t.Errorf("seed %d, %v: %s", seed, straight.Portals, d)
		}
		tried++
	}
	if tried < 12 {
		t.Errorf("%d plans have portals", tried)
	}
}

// sharesADevice reports whether a stage that makes a skip has a device with the one that reads it.
func sharesADevice(plan *pipeline.Plan, p pipeline.Portal) bool {
	return slices.ContainsFunc(plan.Stages[p.From].Devices, func(d int) bool { return slices.Contains(plan.Stages[p.To].Devices, d) })
}

// How many updates a minibatch misses, as the checker counts them in the plan's times, is how many it misses when it runs.
func TestMissedUpdatesAreThoseThatArePlanned(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	plans, spread := 0, 0
	for seed := range uint64(400) {
		c, plan := randomPlan(w, seed, 1)
		if plan.IsFlush() {
			continue
		}
		plan.Versions = pipeline.Stash
		report, err := pipeline.Check(c.Chain, c.Platform, plan)
		must(t, err)
		e := &layout{Workload: w}
		must(t, e.layOut(c, plan, c.Platform.Devices))
		for s, r := range e.rules {
			n := 2 * e.order.Long() * e.group
			at := e.order.Made(r, s, n)
			got := [2]int{n, 0}
			for m := n / 4; m < n/2; m++ { // the pipeline is full, and is not running empty
				missed := m/r.Group - at[m]
				got = [2]int{min(got[0], missed), max(got[1], missed)}
			}
			if got != report.Missed[s] {
				t.Errorf("seed %d: minibatches miss %v updates in stage %d, planned are %v", seed, got, s, report.Missed[s])
			}
			if got[0] < got[1] {
				spread++
			}
		}
		plans++
	}
	if plans < 100 || spread < 20 {
		t.Errorf("%d plans; minibatches miss different numbers of updates in %d stages", plans, spread)
	}
}
