package pipeline_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// sharing returns a case whose devices share processors for so many ops at once; 0: each has its own.
func sharing(k pipelinetest.Case, most float64) pipelinetest.Case {
	p := *k.Platform
	p.OpsAtOnce = most
	k.Platform = &p
	return k
}

// Devices that share as many processors as there are have their own. On fewer, a step takes no less than all tasks together take. A step
// takes at most the sum of that time and of a step on processors of their own. At each instant the processors are full, or all ready tasks
// run at full speed.
func TestSharedProcessors(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 2))
	slower, faster, compared := 0, 0, 0
	for range 150 {
		k := random(rnd)
		own, devices := simulate(t, k, pipeline.Noise{}), float64(k.Platform.Devices)
		if o := simulate(t, sharing(k, devices), pipeline.Noise{}); !reflect.DeepEqual(o, own) {
			t.Errorf("%g processors: %g s, of their own %g s: %+v", devices, o.PerMinibatch, own.PerMinibatch, k.Plan)
		}
		last := math.Inf(1)
		for most := 1.0; most < devices; most += 0.25 {
			o := simulate(t, sharing(k, most), pipeline.Noise{})
			if len(o.Spans) != len(own.Spans) {
				t.Fatalf("%g processors: %d spans, of their own %d: %+v", most, len(o.Spans), len(own.Spans), k.Plan)
			}
			work := computing(k.Plan, own)
			least, longest := max(own.Makespan, work/most), work/most+own.Makespan
			if o.Makespan < least*(1-1e-9) || o.Makespan > longest*(1+1e-9) {
				t.Errorf("%g processors: %g s, not in %g to %g s: %+v", most, o.Makespan, least, longest, k.Plan)
			}
			if o.PerMinibatch > own.PerMinibatch*(1+1e-6) {
				slower++
			}
			if compared++; o.Makespan > last*(1+1e-9) {
				faster++
			}
			last = o.Makespan
		}
	}
	if slower < 100 {
		t.Errorf("sharing makes only %d slower", slower)
	}
	// With lists, a processor more can make a task begin earlier that takes the place of one that the end waits for (Graham, 1966).
	if faster*50 > compared {
		t.Errorf("%d of %d steps are faster on fewer processors", faster, compared)
	}
}

// computing returns the seconds that all tasks of a run on processors of their own compute together.
func computing(plan *pipeline.Plan, own *pipeline.Outcome) (busy float64) {
	for _, s := range own.Spans {
		if s.Task < len(plan.Tasks) && !plan.Tasks[s.Task].Kind.Communication() {
			busy += s.End - s.Start
		}
	}
	return busy
}

// Where links take no time, one processor is never idle: a step takes as long as all tasks one after the other.
func TestOneProcessorIsNeverIdle(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(9, 2))
	flushes := 0
	for range 200 {
		k := random(rnd)
		if !k.Plan.IsFlush() || len(k.Plan.Synchronization) > 0 {
			continue
		}
		k.Platform = pipeline.NewPlatform(k.Platform.Devices, pipeline.NoLimit, pipeline.Free())
		own, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{})
		if err != nil {
			continue // its times hold for its own links
		}
		flushes++
		if o, busy := simulate(t, sharing(k, 1), pipeline.Noise{}), computing(k.Plan, own); !near(o.Makespan, busy) {
			t.Errorf("%g s, its tasks take %g s: %+v", o.Makespan, busy, k.Plan)
		}
	}
	if flushes < 20 {
		t.Errorf("only %d plans", flushes)
	}
}

// Two tasks of 1 s on one processor and a half: both run from the start, each at 3/4 of its speed. One of 1 s and one of 3 s: the first ends
// after 4/3 s, and the second has 2 s left.
func TestSharesAreEqual(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ second, want float64 }{{1, 4. / 3}, {3, 4./3 + 2}} {
		k := pipelinetest.Case{
			Chain: &chain.Chain{Name: "two", Layers: []chain.Layer{layer(1, 0, 0, 0), layer(c.second, 0, 0, 0)}}, Platform: pipeline.NewPlatform(2, pipeline.NoLimit, pipeline.Free()),
			Plan: &pipeline.Plan{
				Versions: pipeline.DoubleBuffered, Period: 10, Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0}}, {First: 2, Last: 2, Devices: []int{1}}},
				Tasks: []pipeline.Task{
					{Kind: F, Stage: 0, Device: 0, Start: 0, Shift: 1}, {Kind: F, Stage: 1, Device: 1, Start: 0}, {Kind: B, Stage: 1, Device: 1, Start: 9}, {Kind: B, Stage: 0, Device: 0, Start: 9},
				},
			},
		}
		k.Platform.OpsAtOnce = 1.5
		o := simulate(t, k, pipeline.Noise{})
		report, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil || !near(o.Period, c.want) || !near(report.Period, o.Period) || !near(report.PerMinibatch, o.Period) || !near(report.Bubble, o.Bubble) {
			t.Errorf("%g s beside 1 s: period %g s, Check says %+v (%v), want %g", c.second, o.Period, report, err, c.want)
		}
	}
}

// On small plans, Simulate has the times of a fluid that is computed step by step from the plan alone.
func TestSharingIsThatOfAFluid(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(10, 2))
	compared := 0
	for range 800 {
		k := random(rnd)
		if k.Platform.Devices < 2 || !isPlain(k.Plan) {
			continue
		}
		most := 1 + rnd.Float64()*float64(k.Platform.Devices-1)
		o := simulate(t, sharing(k, most), pipeline.Noise{})
		own := simulate(t, k, pipeline.Noise{})
		for _, x := range []struct {
			most float64
			o    *pipeline.Outcome
		}{{most, o}, {float64(k.Platform.Devices), own}} {
			if want := fluid(k, own, x.most); !near(x.o.Makespan, want) {
				t.Errorf("%g processors: %g s, the fluid takes %g s: %+v", x.most, x.o.Makespan, want, k.Plan)
			}
		}
		compared++
	}
	if compared < 40 {
		t.Errorf("only %d plans", compared)
	}
}

// If the devices of a plan share processors, Check reports the times that Simulate finds; otherwise it reports the times of the plan.
func TestCheckSharesProcessors(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(11, 2))
	shared := 0
	for range 200 {
		k := random(rnd)
		used := map[int]bool{}
		for _, st := range k.Plan.Stages {
			for _, d := range st.Devices {
				used[d] = true
			}
		}
		alone, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil {
			continue
		}
		k = sharing(k, 1+rnd.Float64()*3)
		report, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		if k.Platform.OpsAtOnce >= float64(len(used)) {
			if !reflect.DeepEqual(report, alone) {
				t.Errorf("%+v, of their own %+v", report, alone)
			}
			continue
		}
		o := simulate(t, k, pipeline.Noise{})
		if shared++; k.Plan.IsFlush() && !near(report.Makespan, o.Makespan) || !near(report.Period, o.Period) || !near(report.PerMinibatch, o.PerMinibatch) || !near(report.Bubble, o.Bubble) {
			t.Errorf("Check says %+v, Simulate %+v", report, o)
		}
		idle := 0.0
		for d := range used {
			idle += report.PerDeviceBubble[d] / float64(len(used))
		}
		if math.Abs(idle-report.Bubble) > 1e-9 {
			t.Errorf("bubble %g, of devices %v", report.Bubble, report.PerDeviceBubble)
		}
		if !reflect.DeepEqual(report.PerDevicePeak, alone.PerDevicePeak) {
			t.Errorf("peaks %v, of their own %v", report.PerDevicePeak, alone.PerDevicePeak)
		}
	}
	if shared < 30 {
		t.Errorf("only %d plans", shared)
	}
}

// isPlain reports whether a plan has a flush, no messages between replicas and no ops of its own, and each of its starts once: no order is open.
func isPlain(p *pipeline.Plan) bool {
	if !p.IsFlush() || len(p.Synchronization)+len(p.Portals) > 0 || p.HasOps() {
		return false
	}
	for i, t := range p.Tasks {
		for _, u := range p.Tasks[:i] {
			if t.Start == u.Start {
				return false
			}
		}
	}
	return true
}

// fluid returns the end of a plain plan. Tasks run in the order in which they become ready, and those that run get equal shares until the next
// event. own has the time of each task.
func fluid(k pipelinetest.Case, own *pipeline.Outcome, most float64) (now float64) {
	tasks := k.Plan.Tasks
	left, needs := make([]float64, len(tasks)), make([][]int, len(tasks))
	for _, s := range own.Spans {
		left[s.Task] = s.End - s.Start
	}
	for i, t := range tasks {
		for j, u := range tasks {
			if i != j && (needsOf(k.Plan, t, u) || u.Start < t.Start && sameResource(k, t, u)) {
				needs[i] = append(needs[i], j)
			}
		}
	}
	done, running, ready := make([]bool, len(tasks)), make([]bool, len(tasks)), make([]float64, len(tasks))
	for i := range ready {
		ready[i] = -1 // not yet
	}
	for slices.Contains(done, false) {
		computing, next := 0, math.Inf(1)
		var queue []int
		for i, t := range tasks {
			if done[i] || slices.ContainsFunc(needs[i], func(j int) bool { return !done[j] }) {
				continue
			}
			if ready[i] < 0 {
				ready[i] = now
			}
			switch {
			case t.Kind.Communication():
				running[i] = true
			case running[i]:
				computing++
			default:
				queue = append(queue, i)
			}
		}
		slices.SortFunc(queue, func(i, j int) int {
			return cmp.Or(cmp.Compare(ready[i], ready[j]), cmp.Compare(tasks[i].Start, tasks[j].Start))
		})
		for _, i := range queue {
			if float64(computing) < most {
				running[i] = true
				computing++
			}
		}
		rate := func(i int) float64 {
			if tasks[i].Kind.Communication() {
				return 1
			}
			return min(1, most/float64(computing))
		}
		for i := range tasks {
			if running[i] {
				next = min(next, left[i]/rate(i))
			}
		}
		for i := range tasks {
			if running[i] {
				if left[i] -= next * rate(i); left[i] < 1e-12 {
					running[i], done[i] = false, true
				}
			}
		}
		now += next
	}
	return now
}

// needsOf reports whether a task t waits for a task u of its microbatch.
func needsOf(p *pipeline.Plan, t, u pipeline.Task) bool {
	if t.Shift != u.Shift {
		return false
	}
	sends := func(kind pipeline.Kind, stage int) bool {
		return slices.ContainsFunc(p.Tasks, func(c pipeline.Task) bool { return c.Kind == kind && c.Stage == stage && c.Shift == t.Shift })
	}
	switch t.Kind {
	case F:
		return u.Kind == CF && u.Stage == t.Stage-1 || u.Kind == F && u.Stage == t.Stage-1 && !sends(CF, u.Stage)
	case B:
		return u.Kind == F && u.Stage == t.Stage || u.Kind == CB && u.Stage == t.Stage || u.Kind == B && u.Stage == t.Stage+1 && !sends(CB, t.Stage)
	case W:
		return u.Kind == B && u.Stage == t.Stage
	case CF:
		return u.Kind == F && u.Stage == t.Stage
	}
	return u.Kind == B && u.Stage == t.Stage+1
}

// sameResource reports whether two tasks of a plain plan run on one device, or on one link.
func sameResource(k pipelinetest.Case, t, u pipeline.Task) bool {
	if !t.Kind.Communication() && !u.Kind.Communication() {
		return t.Device == u.Device
	}
	if t.Kind.Communication() != u.Kind.Communication() {
		return false
	}
	at := func(c pipeline.Task) (ends [2]int) {
		for _, f := range k.Plan.Tasks {
			if f.Kind == F && f.Shift == c.Shift && (f.Stage == c.Stage || f.Stage == c.Stage+1) {
				ends[f.Stage-c.Stage] = f.Device
			}
		}
		if c.Kind == CB {
			ends[0], ends[1] = ends[1], ends[0]
		}
		if !k.Platform.Duplex && ends[0] > ends[1] {
			ends[0], ends[1] = ends[1], ends[0]
		}
		return ends
	}
	return at(t) == at(u)
}

func TestProcessorsRefused(t *testing.T) {
	t.Parallel()
	for _, most := range []float64{-1, 0.5, math.NaN(), math.Inf(1)} {
		k := sharing(random(rand.New(rand.NewPCG(1, 2))), most)
		if _, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{}); !errors.Is(err, pipeline.ErrPlatform) {
			t.Errorf("%g processors: %v", most, err)
		}
	}
}
