package pipeline_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// synchronized returns random plans with messages between their replicas.
func synchronized(t *testing.T, rnd *rand.Rand, plans int) (all []pipelinetest.Case) {
	t.Helper()
	for tries := 0; len(all) < plans; tries++ {
		k := random(rnd)
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatalf("%v: %+v", err, k.Plan)
		}
		if plan.Synchronization != nil {
			k.Plan = plan
			all = append(all, k)
		}
		if tries > 20*plans {
			t.Fatalf("%d of %d random plans have replicas", len(all), tries)
		}
	}
	return all
}

// squeeze gives a device the memory that the plan needs there, or a byte less.
func squeeze(rnd *rand.Rand, k *pipelinetest.Case) {
	report, _ := pipeline.Check(k.Chain, k.Platform, k.Plan)
	d := rnd.IntN(k.Platform.Devices)
	k.Platform.Memory[d] = max(report.PerDevicePeak[d]-int64(rnd.IntN(2)), 0)
}

// Messages of other times, other ways and other buckets, and devices of less memory, are refused, by both judges, or the plan runs no later
// than they say.
func TestChangedSynchronization(t *testing.T) {
	t.Parallel()
	plans := many(300, 60)
	rnd := rand.New(rand.NewPCG(16, 4))
	refused := map[pipeline.Rule]int{}
	accepted := 0
	var all []pipelinetest.Case
	for _, k := range synchronized(t, rnd, plans) {
		emitted := k.Plan
		for range 10 {
			plan := *emitted
			plan.Synchronization = slices.Clone(emitted.Synchronization)
			k := copied(k)
			k.Plan = &plan
			m := &plan.Synchronization[rnd.IntN(len(plan.Synchronization))]
			switch rnd.IntN(9) {
			case 0:
				m.From, m.To = m.To, m.From
			case 1:
				m.From = rnd.IntN(k.Platform.Devices)
			case 2:
				m.First--
			case 3:
				m.Shift += (rnd.IntN(3) - 1) * plan.Repeats()
			case 4:
				squeeze(rnd, &k)
			default:
				m.Start += float64(rnd.IntN(9)-2) / 2
			}
			all = append(all, k)
			report, err := pipeline.Check(k.Chain, k.Platform, &plan)
			var invalid *pipeline.InvalidError
			switch {
			case errors.As(err, &invalid):
				refused[invalid.Violations[0].Rule]++
			case err != nil:
				t.Fatal(err)
			default:
				accepted++
				neverLater(t, k, report)
			}
		}
	}
	t.Logf("%d accepted, refused %v", accepted, refused)
	for _, rule := range []pipeline.Rule{pipeline.RuleSynchronization, pipeline.RuleDependency, pipeline.RuleResource, pipeline.RuleMemory} {
		if refused[rule] < plans/10 || accepted < plans {
			t.Errorf("%d accepted, refused %v", accepted, refused)
		}
	}
	pipelinetest.Agree(t, all)
}

// An emitted plan keeps every rule, for the independent judge too, and runs no later than planned.
func TestEmittedSynchronization(t *testing.T) {
	t.Parallel()
	plans := many(300, 60)
	rnd := rand.New(rand.NewPCG(16, 1))
	flush := 0
	all := synchronized(t, rnd, plans)
	for _, k := range all {
		report, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatalf("%v: %+v of %+v", err, k.Plan, k.Platform)
		}
		if k.Plan.IsFlush() {
			flush++
		}
		neverLater(t, k, report)
	}
	if flush < plans/5 || flush > plans*4/5 {
		t.Errorf("%d of %d plans have a flush", flush, plans)
	}
	pipelinetest.Accept(t, all)
}

// tiny is a plan with few messages between its replicas, for a search through all orders.
type tiny struct {
	pipelinetest.Case
	links map[[2]int][][2]float64 // when messages of tasks use them
	least float64                 // the end of the best order so far
}

// sumWay is a bucket on its way: hops are the devices that its sum goes to and from, in order.
type sumWay struct {
	hops  [][2]int
	ready []float64 // of each hop, whatever was sent before
	bytes int64
	next  int
	at    float64 // where it has come to
}

// made returns when gradients of layers from one on are on a device, by the plan's own words.
func (k *tiny) made(s, device, first int) (at float64) {
	for _, t := range k.Plan.Tasks {
		if t.Stage != s || t.Device != device || t.Kind != B && t.Kind != W {
			continue
		}
		end := t.Start
		for l := k.Plan.Stages[s].First; l <= k.Plan.Stages[s].Last; l++ {
			layer := k.Chain.Layer(l)
			switch {
			case t.Kind == W:
				end += *layer.BackwardWeightS
			case k.Plan.Split()[s]:
				end += *layer.BackwardInputS
			case l >= first:
				end += layer.BackwardS
			}
		}
		at = max(at, end)
	}
	return at
}

// ways returns the buckets of a stage whose layers are cut behind some, counted from the first one.
func (k *tiny) ways(s int, cuts int) (all []*sumWay) {
	st, line := k.Plan.Stages[s], k.Plan.Line(s)
	first, bytes := st.First, int64(0)
	for l := st.First; l <= st.Last; l++ {
		if bytes += k.Chain.Layer(l).WeightBytes; l < st.Last && cuts>>(l-st.First)&1 == 0 {
			continue
		}
		if bytes > 0 {
			w := &sumWay{bytes: bytes}
			for i := range len(line) - 1 {
				w.hops, w.ready = append(w.hops, [2]int{line[i], line[i+1]}), append(w.ready, max(k.made(s, line[i], first), k.made(s, line[i+1], first)))
			}
			for i := len(line) - 1; i > 0; i-- {
				w.hops, w.ready = append(w.hops, [2]int{line[i], line[i-1]}), append(w.ready, 0)
			}
			all = append(all, w)
		}
		first, bytes = l+1, 0
	}
	return all
}

func (k *tiny) link(hop [2]int) [2]int {
	if !k.Platform.Duplex && hop[0] > hop[1] {
		hop[0], hop[1] = hop[1], hop[0]
	}
	return hop
}

// search tries all orders of the messages that are left, each behind those of its link so far.
func (k *tiny) search(all []*sumWay, free map[[2]int]float64, end float64) {
	left := false
	for _, w := range all {
		rest := w.at
		for i := w.next; i < len(w.hops); i++ {
			left = true
			rest = max(rest, w.ready[i]) + k.Platform.Seconds(w.bytes, w.hops[i][0], w.hops[i][1])
		}
		if rest >= k.least {
			return
		}
	}
	if !left {
		k.least = min(k.least, end)
		return
	}
	for _, w := range all {
		if w.next == len(w.hops) {
			continue
		}
		hop, was := w.hops[w.next], *w
		on, length := k.link(hop), k.Platform.Seconds(w.bytes, hop[0], hop[1])
		start := max(w.at, w.ready[w.next], free[on])
		for moved := true; moved; {
			moved = false
			for _, busy := range k.links[on] {
				if start+length > busy[0]+1e-9 && start < busy[1]-1e-9 {
					start, moved = busy[1], true
				}
			}
		}
		before := free[on]
		w.next, w.at, free[on] = w.next+1, start+length, start+length
		k.search(all, free, max(end, w.at))
		*w, free[on] = was, before
	}
}

// best returns the earliest end of the sums of all replicas, over all buckets and all orders; false when these are too many.
func (k *tiny) best(t *testing.T) (end float64, ok bool) {
	t.Helper()
	k.links, k.least = map[[2]int][][2]float64{}, math.Inf(1)
	bare := *k.Plan
	bare.Synchronization = nil
	spans, err := pipeline.Planned(k.Chain, k.Platform, &bare, 1)
	if err != nil {
		t.Fatal(err)
	}
	line, err := pipeline.NewTimeline(k.Chain, k.Platform, &bare, spans)
	if err != nil {
		t.Fatal(err)
	}
	for _, lane := range line.Lanes {
		var hop [2]int
		if lane.Link {
			if _, err := fmt.Sscanf(lane.Name, "link %d-%d", &hop[0], &hop[1]); err != nil {
				t.Fatal(err)
			}
			for _, s := range lane.Slices {
				k.links[hop] = append(k.links[hop], [2]float64{s.Start, s.End})
			}
		}
	}
	choices := [][]*sumWay{nil}
	for s, st := range k.Plan.Stages {
		if len(k.Plan.Line(s)) < 2 {
			continue
		}
		var next [][]*sumWay
		for cuts := range 1 << (st.Len() - 1) {
			for _, c := range choices {
				next = append(next, append(slices.Clone(c), k.ways(s, cuts)...))
			}
		}
		choices = next
	}
	for _, c := range choices {
		messages := 0
		for _, w := range c {
			w.next, w.at = 0, 0
			messages += len(w.hops)
		}
		if messages > 12 {
			return 0, false
		}
		k.search(c, map[[2]int]float64{}, 0)
	}
	return k.least, true
}

// Beside the best of all orders of all buckets the messages of tiny plans end never earlier, and seldom later.
func TestAgainstAllOrders(t *testing.T) {
	t.Parallel()
	plans := 400
	if testing.Short() {
		plans = 80
	}
	rnd := rand.New(rand.NewPCG(16, 2))
	tried, equal, sum, worst := 0, 0, 0.0, 1.0
	for tried < plans {
		k := tiny{Case: random(rnd)}
		if !k.Plan.IsFlush() {
			continue
		}
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		if k.Plan = plan; plan.Synchronization == nil {
			continue
		}
		best, ok := k.best(t)
		if !ok {
			continue
		}
		tried++
		ends := 0.0
		for _, m := range plan.Synchronization {
			bytes := int64(0)
			for l := m.First; l <= m.Last; l++ {
				bytes += k.Chain.Layer(l).WeightBytes
			}
			ends = max(ends, m.Start+k.Platform.Seconds(bytes, m.From, m.To))
		}
		report, err := pipeline.Check(k.Chain, k.Platform, plan)
		if err != nil {
			t.Fatal(err)
		}
		if ends < best*(1-1e-9) {
			t.Fatalf("messages end at %g, those of the best order at %g: %+v", ends, best, plan)
		}
		if ends <= best+2e-3*report.Makespan {
			equal++
		}
		sum += ends / best
		worst = max(worst, ends/best)
	}
	t.Logf("%d plans: %d end with the best order, on the mean they take %.4f of its time, at worst %.3f", tried, equal, sum/float64(tried), worst)
	if equal < tried*9/10 || sum/float64(tried) > 1.005 {
		t.Error("that is worse than it was")
	}
}

// A period is stretched only where a link has no room, seldom by much more than what its messages take together.
func TestStretchedPeriods(t *testing.T) {
	t.Parallel()
	plans := 300
	if testing.Short() {
		plans = 60
	}
	rnd := rand.New(rand.NewPCG(16, 3))
	stretched, kept, sum, worst := 0, 0, 0.0, 1.0
	for stretched < plans {
		k := random(rnd)
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Synchronization == nil || plan.IsFlush() {
			continue
		}
		if plan.Period == k.Plan.Period {
			kept++
			continue
		}
		stretched++
		spans, err := pipeline.Planned(k.Chain, k.Platform, plan, 1)
		if err != nil {
			t.Fatal(err)
		}
		line, err := pipeline.NewTimeline(k.Chain, k.Platform, plan, spans)
		if err != nil {
			t.Fatal(err)
		}
		least := k.Plan.Period
		for _, lane := range line.Lanes {
			load := 0.0
			for _, s := range lane.Slices {
				load += s.End - s.Start
			}
			least = max(least, load)
		}
		if plan.Period < least*(1-1e-9) {
			t.Fatalf("a period of %g s, a link is used for %g s: %+v", plan.Period, least, plan)
		}
		sum += plan.Period / least
		worst = max(worst, plan.Period/least)
	}
	t.Logf("%d periods are stretched, %d are not; on the mean they are %.3f of the largest load, at worst %.2f", stretched, kept, sum/float64(stretched), worst)
	if kept < stretched/10 || sum/float64(stretched) > 1.15 {
		t.Error("that is worse than it was")
	}
}

// dataParallel is 110 layers on so many devices abreast, whose sums take so many periods on a link.
func dataParallel(devices int, load float64) pipelinetest.Case {
	c := pipelinetest.Chain(rand.New(rand.NewPCG(1, 2)), 110, false)
	costs := pipeline.NewCosts(c)
	plan := &pipeline.Plan{Versions: pipeline.Stash, Period: costs.U(1, 110), MinibatchesPerPeriod: devices, Stages: []pipeline.Stage{{First: 1, Last: 110}}}
	for d := range devices {
		plan.Stages[0].Devices = append(plan.Stages[0].Devices, d)
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: F, Device: d, Shift: d}, pipeline.Task{Kind: B, Device: d, Shift: d, Start: costs.Forward(1, 110)})
	}
	return pipelinetest.Case{Chain: c, Platform: pipeline.NewPlatform(devices, pipeline.NoLimit, 2*float64(costs.Weights(1, 110))/plan.Period/load), Plan: plan}
}

// Data parallelism hides its sums where links have room. Where they have none the period is theirs, and not so tight that updates come as
// many periods later as there are devices.
func TestDataParallelism(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		devices int
		load    float64
		period  float64 // at most
		missed  int
	}{{2, 0.5, 1, 1}, {8, 0.3, 1, 1}, {2, 1.3, 1.301, 1}, {4, 1.3, 1.37, 2}, {8, 1.3, 1.44, 2}, {64, 1.3, 1.57, 4}} {
		k := dataParallel(x.devices, x.load)
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pipeline.Check(k.Chain, k.Platform, plan)
		if err != nil {
			t.Fatal(err)
		}
		if longer := r.Period / k.Plan.Period; longer > x.period || longer < max(x.load, 1)*(1-1e-9) || r.Missed[0][1] != x.missed {
			t.Errorf("%d devices, links used for %g periods: a period %g times as long, %v updates missed, %+v", x.devices, x.load, longer, r.Missed, r.Replicated)
		}
	}
}
