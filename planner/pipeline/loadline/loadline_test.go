package loadline

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/schedule"
)

func strategy(t *testing.T, name string) pipeline.Strategy {
	t.Helper()
	for _, s := range append(partition.Strategies(), Strategies()...) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no strategy %s", name)
	return pipeline.Strategy{}
}

// TestNeverWorse: with the same memory loadline is never slower than contiguous, fits whenever that does, and sometimes when it
// does not. At its own smallest memory it fits, below it does not.
func TestNeverWorse(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(12, 1))
	contiguous := strategy(t, "contiguous")
	both, faster, alone, neither := 0, 0, 0, 0
	for range 1000 {
		c := randomChain(rng, 1+rng.IntN(6))
		p := randomPlatform(rng, c)
		r := pipeline.Request{Chain: c, Platform: p}
		if rng.IntN(2) == 0 {
			r.Accounting = pipeline.Saved
		}
		if rng.IntN(3) == 0 {
			r.Versions = pipeline.Stash
		}
		mine, err := Contiguous(t.Context(), r)
		theirs, theirErr := contiguous.Solve(t.Context(), r)
		var small *pipeline.InfeasibleError
		switch {
		case err != nil && !errors.As(err, &small):
			t.Fatal(err)
		case err != nil && theirErr == nil:
			t.Fatalf("%v, contiguous has a period of %v", err, theirs.Period)
		case err != nil:
			neither++
			limits(t, r, small.Smallest)
		case theirErr != nil:
			alone++
		default:
			both++
			if mine.Period > theirs.Period*(1+1e-9) {
				t.Errorf("period %v, contiguous has %v", mine.Period, theirs.Period)
			}
			if mine.Period < theirs.Period*(1-1e-9) {
				faster++
			}
		}
	}
	t.Logf("%d fit both, of which loadline is faster in %d; %d loadline alone; %d neither", both, faster, alone, neither)
	if both < 500 || faster < 80 || alone < 50 || neither < 100 {
		t.Errorf("%d both, %d faster, %d alone, %d neither", both, faster, alone, neither)
	}
}

// limits: the smallest memory named works on all devices, one byte less does not.
func limits(t *testing.T, r pipeline.Request, smallest int64) {
	t.Helper()
	r.Platform = r.Platform.WithMemory(smallest)
	if _, err := Contiguous(t.Context(), r); err != nil {
		t.Errorf("with the smallest memory, %d: %v", smallest, err)
	}
	if smallest == 0 {
		return
	}
	r.Platform = r.Platform.WithMemory(smallest - 1)
	if _, err := Contiguous(t.Context(), r); !errors.Is(err, pipeline.ErrInfeasible) {
		t.Errorf("with one byte less than the smallest memory, %d: %v", smallest, err)
	}
}

// brute knows the periods of given stages.
type brute struct{ cutter *cutter }

// sequences returns all persistent sequences of a stage s..j, by direct recursion over text.
func sequences(s, j int, turned bool) []schedule.Sequence {
	if s > j {
		return []schedule.Sequence{{}}
	}
	var out []schedule.Sequence
	op := func(k schedule.Kind, l int) schedule.Op { return schedule.Op{Kind: k, Layer: l} }
	for _, rest := range sequences(s+1, j, turned) {
		out = append(out, slices.Concat(schedule.Sequence{op(schedule.ForwardAll, s)}, rest, schedule.Sequence{op(schedule.Backward, s)}))
	}
	last := j - 1
	if !turned {
		last = j // all of it may be recomputed after the turn
	}
	forwards := schedule.Sequence{op(schedule.ForwardCheckpoint, s)}
	for x := s; x <= last; x++ {
		if x > s {
			forwards = append(forwards, op(schedule.ForwardDiscard, x))
		}
		for _, rest := range sequences(x+1, j, turned) {
			for _, redo := range sequences(s, x, true) {
				out = append(out, slices.Concat(forwards, rest, redo))
			}
		}
	}
	return out
}

// period returns the best period of given stages when each runs the sequence or, nil, none.
func (b *brute) period(stages []pipeline.Stage) float64 {
	q := b.cutter.pipe(stages)
	big := b.cutter.longest()
	if !q.fits(big) {
		return math.Inf(1)
	}
	return q.smallest(big)
}

// TestBrute: the period is the best of all cuts and all persistent sequences.
func TestBrute(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(12, 2))
	count, infeasible, withOps := 0, 0, 0
	for range 1500 {
		c := randomChain(rng, 1+rng.IntN(3))
		if pipeline.NewCosts(c).U(1, c.Len()) == 0 {
			continue // every period does
		}
		p := randomPlatform(rng, c)
		p.Devices = min(p.Devices, 2)
		p.Memory = p.Memory[:p.Devices]
		cutter, err := newCutter(t.Context(), pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Accounting: pipeline.Saved}})
		if err != nil {
			t.Fatal(err)
		}
		b := &brute{cutter}
		best := math.Inf(1)
		var all func(stages []pipeline.Stage, first, device int)
		all = func(stages []pipeline.Stage, first, device int) {
			if first > c.Len() {
				best = min(best, b.period(stages))
				return
			}
			for d := device; d < p.Devices; d++ {
				for last := first; last <= c.Len(); last++ {
					for _, ops := range append([]schedule.Sequence{nil}, sequences(first, last, false)...) {
						all(append(slices.Clone(stages), pipeline.Stage{First: first, Last: last, Devices: []int{d}, Ops: ops}), last+1, d+1)
					}
				}
			}
		}
		all(nil, 1, 0)
		plan, err := Contiguous(t.Context(), cutter.Request)
		count++
		if err != nil {
			infeasible++
			if !math.IsInf(best, 1) {
				t.Errorf("%v, the best of all has a period of %v", err, best)
			}
			continue
		}
		if plan.HasOps() {
			withOps++
		}
		if math.Abs(plan.Period-best) > 1e-9*best {
			t.Errorf("period %v, the best of all %v", plan.Period, best)
		}
	}
	t.Logf("%d instances, %d infeasible, %d with ops", count, infeasible, withOps)
	if count < 1400 || infeasible < 100 || infeasible > 1200 || withOps < 150 {
		t.Errorf("%d instances, %d infeasible", count, infeasible)
	}
}

// TestPlansRun: plans survive their file, the simulator of pipelines runs their order, and one byte less
// on a full device is refused.
func TestPlansRun(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(12, 3))
	withOps, refused := 0, 0
	for range 300 {
		c := randomChain(rng, 2+rng.IntN(5))
		p := randomPlatform(rng, c)
		plan, err := Contiguous(t.Context(), pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Accounting: pipeline.Saved}})
		if err != nil {
			continue
		}
		var text strings.Builder
		if err := plan.Encode(&text); err != nil {
			t.Fatal(err)
		}
		read, err := pipeline.Decode(strings.NewReader(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		report, err := pipeline.Check(c, p, read)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(report.PerDevicePeak, read.PerDevicePeak) || math.Abs(report.Period-read.Period) > 1e-12*read.Period {
			t.Errorf("peaks %v and period %v, the plan says %v and %v", report.PerDevicePeak, report.Period, read.PerDevicePeak, read.Period)
		}
		compareSimulation(t, c, p, read)
		for _, st := range read.Stages {
			if len(st.Ops) == 0 {
				continue
			}
			withOps++
			less := *p
			less.Memory = slices.Clone(p.Memory)
			less.Memory[st.Devices[0]] = report.PerDevicePeak[st.Devices[0]] - 1
			var invalid *pipeline.InvalidError
			if _, err := pipeline.Check(c, &less, read); errors.As(err, &invalid) && invalid.OnlyMemory() {
				refused++
			}
			less.Memory[st.Devices[0]]++
			if _, err := pipeline.Check(c, &less, read); err != nil {
				t.Errorf("with its own peak: %v", err)
			}
		}
	}
	if withOps < 80 || refused != withOps {
		t.Errorf("%d stages with ops, %d refused with one byte less", withOps, refused)
	}
}

// compareSimulation: run as soon as possible in the plan's order, the plan has no longer period, and not a shorter one
// than its largest load.
func compareSimulation(t *testing.T, c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan) {
	t.Helper()
	run, err := pipeline.Simulate(c, p.WithMemory(pipeline.NoLimit), plan, pipeline.Noise{})
	if err != nil {
		t.Fatal(err)
	}
	load := 0.0
	for _, v := range pipeline.NewCosts(c).Virtuals(plan.Stages, p) {
		busy := v.U()
		if st := plan.Stages[v.Stage]; !v.Boundary && len(st.Ops) > 0 {
			cost := mustMeasure(c, st)
			busy = cost.Forward + cost.Backward
		}
		load = max(load, busy)
	}
	if run.Period > plan.Period*(1+1e-9) || run.Period < load*(1-1e-9) {
		t.Errorf("period %v when simulated, %v of the plan, largest load %v", run.Period, plan.Period, load)
	}
}

// TestBranches: a chain with branches is refused, with ops or without.
func TestBranches(t *testing.T) {
	t.Parallel()
	seq, err := schedule.Parse("Fck1 Fall1 B1")
	if err != nil {
		t.Fatal(err)
	}
	c := &chain.Chain{Name: "c", Layers: slices.Repeat([]chain.Layer{{ForwardS: 1, BackwardS: 1}}, 3)}
	p := pipeline.NewPlatform(2, pipeline.NoLimit, pipeline.Free())
	plan := &pipeline.Plan{Chain: "c", Period: 8, Versions: pipeline.Latest,
		Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0}, Ops: seq}, {First: 2, Last: 3, Devices: []int{1}}},
		Tasks: []pipeline.Task{{Kind: pipeline.F, Stage: 0, Device: 0, Start: 0}, {Kind: pipeline.F, Stage: 1, Device: 1, Start: 1},
			{Kind: pipeline.B, Stage: 1, Device: 1, Start: 3}, {Kind: pipeline.B, Stage: 0, Device: 0, Start: 5}}}
	all := map[string]func() error{
		"solve":    func() error { _, err := solve(t.Context(), pipeline.Request{Chain: c, Platform: p}); return err },
		"check":    func() error { _, err := pipeline.Check(c, p, plan); return err },
		"simulate": func() error { _, err := pipeline.Simulate(c, p, plan, pipeline.Noise{}); return err },
	}
	for name, judge := range all {
		c.Branches = nil
		if err := judge(); err != nil {
			t.Errorf("%s: %v without branches", name, err)
		}
		c.Branches = []int{1, 1}
		if err := judge(); !errors.Is(err, pipeline.ErrBranches) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNeverWorseThanMadpipe: with the same memory loadline is never slower than madpipe and fits whenever that does.
func TestNeverWorseThanMadpipe(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(12, 4))
	both, faster, theirsBest, alone := 0, 0, 0, 0
	for range 120 {
		c := randomChain(rng, 1+rng.IntN(6))
		r := pipeline.Request{Chain: c, Platform: randomPlatform(rng, c), Options: pipeline.Options{Accounting: pipeline.Saved}}
		mine, err := solve(t.Context(), r)
		if err != nil && !errors.Is(err, pipeline.ErrInfeasible) {
			t.Fatal(err)
		}
		theirs, theirErr := MadPipe(t.Context(), r, math.Inf(1))
		if theirErr != nil {
			t.Fatal(theirErr)
		}
		switch {
		case theirs != nil && err != nil:
			t.Fatalf("%v, madpipe has a period of %v", err, theirs.Period)
		case theirs == nil && err == nil:
			alone++
		case theirs != nil:
			both++
			if mine.SecondsPerMinibatch() > theirs.SecondsPerMinibatch()*(1+1e-9) {
				t.Errorf("%v s, madpipe takes %v", mine.SecondsPerMinibatch(), theirs.SecondsPerMinibatch())
			}
			if mine.SecondsPerMinibatch() < theirs.SecondsPerMinibatch()*(1-1e-9) {
				faster++
			}
			if !mine.HasOps() && repeats(mine) {
				theirsBest++
			}
			if _, err := pipeline.Check(c, r.Platform, mine); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d fit both, of which loadline is faster in %d and takes madpipe's plan in %d; %d loadline alone", both, faster, theirsBest, alone)
	if both < 40 || faster < 5 || alone < 5 {
		t.Errorf("%d both, %d faster, %d alone", both, faster, alone)
	}
}

// repeats reports whether a device has several stages.
func repeats(plan *pipeline.Plan) bool {
	devices := map[int]bool{}
	for _, st := range plan.Stages {
		devices[st.Devices[0]] = true
	}
	return len(devices) < len(plan.Stages)
}

// TestLongChains: in chains that are too long to keep every way, loadline is still never slower than contiguous, gives the
// same plan twice, and uses ops where memory is short.
func TestLongChains(t *testing.T) {
	t.Parallel()
	contiguous := strategy(t, "contiguous")
	faster, alone := 0, 0
	for _, n := range []int{12, 24, 36} {
		c := longChain(n)
		k := pipeline.NewCosts(c)
		for _, percent := range []int64{80, 50, 35, 25} {
			p := pipeline.NewPlatform(3, k.Held(1, n, pipeline.Saved)*percent/100, 100e9)
			r := pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Accounting: pipeline.Saved}}
			mine, err := Contiguous(t.Context(), r)
			if errors.Is(err, pipeline.ErrInfeasible) {
				if _, err := contiguous.Solve(t.Context(), r); err == nil {
					t.Errorf("n=%d, %d %%: contiguous fits, loadline does not", n, percent)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			again, err := Contiguous(t.Context(), r)
			if err != nil || !same(t, mine, again) {
				t.Errorf("n=%d, %d %%: another plan the second time, %v", n, percent, err)
			}
			theirs, err := contiguous.Solve(t.Context(), r)
			switch {
			case err != nil:
				alone++
			case mine.Period > theirs.Period*(1+1e-9):
				t.Errorf("n=%d, %d %%: period %v, contiguous has %v", n, percent, mine.Period, theirs.Period)
			case mine.Period < theirs.Period*(1-1e-9):
				faster++
			}
		}
	}
	t.Logf("faster in %d, alone in %d of 12", faster, alone)
	if faster+alone < 4 {
		t.Errorf("faster in %d, alone in %d of 12", faster, alone)
	}
}

func same(t *testing.T, x, y *pipeline.Plan) bool {
	t.Helper()
	var a, b strings.Builder
	if err := errors.Join(x.Encode(&a), y.Encode(&b)); err != nil {
		t.Fatal(err)
	}
	return a.String() == b.String()
}
