package pipeline_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

func simulate(t *testing.T, k pipelinetest.Case, n pipeline.Noise) *pipeline.Outcome {
	t.Helper()
	o, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, n)
	if err != nil {
		t.Fatalf("%+v: %v", k.Plan, err)
	}
	return o
}

// planned returns when a span begins according to the plan, for a plan of period T (0: flush).
func planned(p *pipeline.Plan, s pipeline.Span) float64 {
	var start float64
	var shift int
	if i := s.Task - len(p.Tasks); i >= 0 {
		start, shift = p.Synchronization[i].Start, p.Synchronization[i].Shift
	} else {
		start, shift = p.Tasks[s.Task].Start, p.Tasks[s.Task].Shift
	}
	return start + p.Period*float64((s.Minibatch-shift)/p.Repeats())
}

// neverLater fails when a plan that was judged runs later than its own times, without noise.
func neverLater(t *testing.T, k pipelinetest.Case, report *pipeline.Report) *pipeline.Outcome {
	t.Helper()
	o := simulate(t, k, pipeline.Noise{})
	origin := math.Inf(1)
	for _, s := range o.Spans {
		origin = min(origin, planned(k.Plan, s))
	}
	for _, s := range o.Spans {
		if at := planned(k.Plan, s) - origin; s.Start > at && !near(s.Start, at) {
			t.Fatalf("task %d of minibatch %d starts at %g, planned at %g: %+v", s.Task, s.Minibatch, s.Start, at, k.Plan)
		}
	}
	if o.PerMinibatch > report.PerMinibatch*(1+1e-9) {
		t.Errorf("%g s for each minibatch, planned are %g: %+v", o.PerMinibatch, report.PerMinibatch, k.Plan)
	}
	return o
}

// Without noise nothing is later than the plan says, no period longer, no peak higher; with noise no peak is higher either.
func TestNeverLaterThanThePlan(t *testing.T) {
	t.Parallel()
	plans := 300
	if testing.Short() {
		plans = 60
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	faster, noisier := 0, 0
	for range plans {
		k := random(rnd)
		report, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		o := neverLater(t, k, report)
		if o.PerMinibatch < report.PerMinibatch*(1-1e-9) {
			faster++
		}
		noisy := simulate(t, k, pipeline.Noise{Fraction: 0.3, Seed: 5})
		for d, peak := range report.PerDevicePeak {
			if o.PerDevicePeak[d] > peak || noisy.PerDevicePeak[d] > peak {
				t.Errorf("device %d needs %d bytes, %d with noise, checked are %d: %+v", d, o.PerDevicePeak[d], noisy.PerDevicePeak[d], peak, k.Plan)
			}
		}
		if noisy.PerMinibatch != o.PerMinibatch {
			noisier++
		}
	}
	if faster < plans/10 || faster > plans*9/10 || noisier < plans*3/4 {
		t.Errorf("%d of %d plans run faster than planned, %d change with noise: the plans are not what they should be", faster, plans, noisier)
	}
}

// naive runs a flush plan by asking every resource, again and again, whether the first task of its queue can start.
func naive(k pipelinetest.Case) (makespan float64, ok bool) {
	costs := pipeline.NewCosts(k.Chain)
	queues, ends, free := map[string][]pipeline.Task{}, map[string]float64{}, map[string]float64{}
	byStart := slices.SortedStableFunc(slices.Values(k.Plan.Tasks), func(a, b pipeline.Task) int { return cmp.Compare(a.Start, b.Start) })
	exists := map[string]bool{}
	for _, task := range byStart {
		q := fmt.Sprint(task.Device)
		if task.Kind.Communication() {
			q = fmt.Sprint("link", task.Stage)
		}
		queues[q] = append(queues[q], task)
		exists[task.String()] = true
	}
	id := func(kind pipeline.Kind, s, m int) string {
		return pipeline.Task{Kind: kind, Stage: s, Shift: m}.String()
	}
	first := func(names ...string) string { // of those that exist
		for _, n := range names {
			if exists[n] {
				return n
			}
		}
		return ""
	}
	for left := len(byStart); left > 0; {
		before := left
		for q, queue := range queues {
			if len(queue) == 0 {
				continue
			}
			x, s, m := queue[0], queue[0].Stage, queue[0].Shift
			st := k.Plan.Stages[s]
			var needs []string
			var length float64
			switch x.Kind {
			case F:
				needs, length = []string{first(id(CF, s-1, m), id(F, s-1, m))}, costs.Forward(st.First, st.Last)
			case B:
				needs, length = []string{first(id(CB, s, m), id(B, s+1, m)), id(F, s, m)}, costs.Backward(st.First, st.Last)
			case CF:
				needs, length = []string{id(F, s, m)}, k.Platform.Seconds(k.Chain.Activation(st.Last), 0, 1)
			case CB:
				needs, length = []string{id(B, s+1, m)}, k.Platform.Seconds(k.Chain.Gradient(st.Last), 0, 1)
			}
			start := free[q]
			for _, n := range needs {
				end, done := ends[n]
				if n != "" && !done {
					start = math.Inf(1)
				}
				start = max(start, end)
			}
			if math.IsInf(start, 1) {
				continue
			}
			queues[q] = queue[1:]
			ends[x.String()], free[q] = start+length, start+length
			makespan = max(makespan, start+length)
			left--
		}
		if left == before {
			return 0, false
		}
	}
	return makespan, true
}

// Orders of one stage a device at random, of which many block: the makespan, or the deadlock, is that of the naive run.
func TestAgainstTheNaiveRun(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(4, 4))
	deadlocks, runs := 0, 0
	for range 400 {
		stages, microbatches := 1+rnd.IntN(3), 1+rnd.IntN(3)
		k := pipelinetest.Case{Chain: pipelinetest.Chain(rnd, stages, false), Platform: pipeline.NewPlatform(stages, pipeline.NoLimit, 2)}
		k.Plan = &pipeline.Plan{Versions: pipeline.Flush, Microbatches: microbatches}
		for s := range stages {
			k.Chain.Layers[s].ForwardS++ // tasks of no duration may swap
			k.Plan.Stages = append(k.Plan.Stages, pipeline.Stage{First: s + 1, Last: s + 1, Devices: []int{s}})
			for m := range microbatches {
				for _, kind := range []pipeline.Kind{F, CF, CB, B} {
					if kind.Communication() && s+1 == stages {
						continue
					}
					rank := map[pipeline.Kind]int{F: 2 * s, CF: 2*s + 1, CB: 4*stages - 2*s - 1, B: 4*stages - 2*s}[kind]
					start := float64(rank+2*m) + 12*rnd.Float64()
					k.Plan.Tasks = append(k.Plan.Tasks, pipeline.Task{Kind: kind, Stage: s, Device: s, Shift: m, Start: start})
				}
			}
		}
		want, ok := naive(k)
		o, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{})
		var deadlock *pipeline.DeadlockError
		switch {
		case ok && (err != nil || !near(o.Makespan, want)):
			t.Fatalf("%+v, %v; the naive run takes %g s: %+v", o, err, want, k.Plan)
		case !ok && !errors.As(err, &deadlock):
			t.Fatalf("%v: the naive run blocks: %+v", err, k.Plan)
		case !ok:
			deadlocks++
			continue
		}
		runs++
		timed, err := pipeline.Timed(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := pipeline.Check(k.Chain, k.Platform, timed); err != nil || !near(r.Makespan, want) || !equal(r.PerDevicePeak, o.PerDevicePeak) {
			t.Fatalf("the timed plan: %+v, %v, want %g, %v", r, err, want, o.PerDevicePeak)
		}
	}
	if deadlocks < 50 || runs < 50 {
		t.Errorf("%d deadlocks, %d runs", deadlocks, runs)
	}
}

// A deadlock names the task that cannot run and, round the cycle, what it waits for.
func TestDeadlockIsNamed(t *testing.T) {
	t.Parallel()
	k := gpipe()
	k.Plan.Tasks[4].Start = 0.5 // on device 1 the backward of microbatch 0 goes before its forward
	_, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{})
	var deadlock *pipeline.DeadlockError
	if !errors.As(err, &deadlock) || !errors.Is(err, pipeline.ErrDeadlock) {
		t.Fatal(err)
	}
	if want := []string{"B1(0)", "F1(0)"}; !equal(deadlock.Cycle, want) || deadlock.Task != 4 ||
		!strings.Contains(err.Error(), "task 4, B1(0), can never run: it waits for F1(0), which waits for B1(0)") {
		t.Errorf("%v", err)
	}
	k = staircase()
	k.Plan.Tasks[0].Shift = 0 // device 0 runs the forward of a minibatch right before its backward
	k.Plan.Tasks[5].Start, k.Plan.Tasks[0].Start = 0, 1
	_, err = pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{})
	if want := []string{"F1(0)", "F0(0)", "B0(0)", "B1(0)"}; !errors.As(err, &deadlock) || !equal(deadlock.Cycle, want) {
		t.Errorf("%v", err)
	}
}

// The staircase runs without idle time in the steady state, also when the plan has slack; messages overlap when they can.
func TestSteadyState(t *testing.T) {
	t.Parallel()
	k := staircase()
	if o := simulate(t, k, pipeline.Noise{}); o.Period != 2 || o.Bubble != 0 || !equal(o.PerDevicePeak, []int64{6, 5, 4}) {
		t.Errorf("%+v", *o)
	}
	k.Plan.Period = 3
	if o := simulate(t, k, pipeline.Noise{}); o.Period != 2 {
		t.Errorf("with slack: period %g", o.Period)
	}
	k = messages() // F0 CF F1 B1 CB B0, one minibatch in flight
	if o := simulate(t, k, pipeline.Noise{}); !near(o.Period, 11) || !near(o.Bubble, 1-7.0/22) {
		t.Errorf("one in flight: %+v", *o)
	}
	k = gpipe()
	if o := simulate(t, k, pipeline.Noise{}); o.Makespan != 9 || o.PerMinibatch != 4.5 || !near(o.Bubble, 1.0/3) || !equal(o.PerDevicePeak, []int64{4, 4}) {
		t.Errorf("flush: %+v", *o)
	}
	if o := simulate(t, replicated(), pipeline.Noise{Periods: 2}); len(o.Spans) != 16 || o.Spans[15].Minibatch != 3 {
		t.Errorf("two periods: %+v", o)
	}
}

// Noise stays within its bounds, is the same for the same seed and another one for another seed.
func TestNoise(t *testing.T) {
	t.Parallel()
	k := messages()
	o := simulate(t, k, pipeline.Noise{Fraction: 0.1, Seed: 1})
	length := map[pipeline.Kind][2]float64{F: {2, 1}, B: {3, 1}, CF: {2}, CB: {2}}
	factors := map[float64]bool{}
	for _, s := range o.Spans {
		x := k.Plan.Tasks[s.Task]
		factor := (s.End - s.Start) / length[x.Kind][x.Stage]
		if !(factor > 0.9-1e-9 && factor < 1.1+1e-9) {
			t.Errorf("%v took %g of its time", x, factor)
		}
		factors[math.Round(factor*1e6)] = true
	}
	if len(factors) < len(o.Spans)/2 {
		t.Errorf("%d factors for %d tasks", len(factors), len(o.Spans))
	}
	if again := simulate(t, k, pipeline.Noise{Fraction: 0.1, Seed: 1}); !reflect.DeepEqual(o, again) {
		t.Error("the same seed gives another run")
	}
	if other := simulate(t, k, pipeline.Noise{Fraction: 0.1, Seed: 2}); other.Period == o.Period {
		t.Error("another seed gives the same run")
	}
	for _, n := range []pipeline.Noise{{Fraction: -1}, {Fraction: 1.5}, {Fraction: math.NaN()}, {Periods: -1}, {Periods: 1 << 40}} {
		if _, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, n); !errors.Is(err, pipeline.ErrPlan) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	if _, err := pipeline.Timed(k.Chain, k.Platform, k.Plan); !errors.Is(err, pipeline.ErrPlan) {
		t.Errorf("a periodic plan was timed: %v", err)
	}
	k.Plan.Tasks[5].Shift = -(1 << 30)
	if _, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{}); !errors.Is(err, pipeline.ErrPlan) {
		t.Errorf("a billion minibatches in flight: %v", err)
	}
}

// A plan replayed with the times of a noisy simulation runs as that did, and with those of its costs as without noise.
func TestReplayIsTheRunOfTheseTimes(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 8))
	flush := 0
	for range 200 {
		k := random(rnd)
		if !k.Plan.IsFlush() { // whose tasks run more than once, with another noise each time
			continue
		}
		flush++
		for _, n := range []pipeline.Noise{{}, {Fraction: 0.5, Seed: rnd.Uint64()}} {
			o, took := simulate(t, k, n), map[int]float64{}
			for _, s := range o.Spans {
				took[s.Task] = s.End - s.Start
			}
			again, err := pipeline.Replay(k.Chain, k.Platform, k.Plan, took)
			if err != nil || !near(again.Makespan, o.Makespan) || !near(again.Bubble, o.Bubble) {
				t.Fatalf("replayed: %v s, idle %v, %v; the run took %v s, idle %v: %+v", again.Makespan, again.Bubble, err, o.Makespan, o.Bubble, k.Plan)
			}
		}
	}
	if flush < 20 {
		t.Errorf("%d plans with a flush, too few to tell", flush)
	}
}
