package pipeline_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// divided returns random plans with a flush whose replicas divide sums of gradients. Most of them divide the optimizer's state, too, and about
// half of all each round of gradients.
func divided(t *testing.T, rnd *rand.Rand, plans int) (all []pipelinetest.Case) {
	t.Helper()
	for len(all) < plans {
		k := random(rnd)
		if !k.Plan.IsFlush() {
			continue
		}
		passes := rnd.IntN(2) == 0
		if passes {
			k.Plan = pipelinetest.InTurns(rnd, k.Chain, k.Platform)
		}
		k.Plan.Zero, k.Plan.OptimizerCopies, k.Plan.HostState = pipeline.ZeroShards, float64(rnd.IntN(5))/2, rnd.IntN(4) == 0
		if rnd.IntN(3) > 0 {
			larger(k)
			k.Plan.Zero = pipeline.Zero(rnd.IntN(2))
		}
		if passes {
			k.Plan.Zero = pipeline.ZeroGradients
		}
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatalf("%v: %+v", err, k.Plan)
		}
		if k.Plan = plan; slices.ContainsFunc(plan.Synchronization, func(m pipeline.Synchronization) bool { return m.Part > 0 }) {
			all = append(all, k)
		}
	}
	return all
}

// larger makes all bytes so many that weights are divided into buckets; all takes as long as before.
func larger(k pipelinetest.Case) {
	const times = 8 << 20
	k.Chain.InputBytes *= times
	for i := range k.Chain.Layers {
		l := &k.Chain.Layers[i]
		l.OutputBytes, l.SavedBytes, l.GradientBytes, l.WeightBytes = l.OutputBytes*times, l.SavedBytes*times, l.GradientBytes*times, l.WeightBytes*times
	}
	k.Platform.Bandwidth *= times
	for ends := range k.Platform.Pairs {
		k.Platform.Pairs[ends] *= times
	}
}

// many returns how many random plans a test begins with: so many, fewer with -short, or as many as PLIMSOLL_PLANS says.
func many(usual, short int) int {
	if n, err := strconv.Atoi(os.Getenv("PLIMSOLL_PLANS")); err == nil {
		return n
	}
	if testing.Short() {
		return short
	}
	return usual
}

// Plans that divide sums, the optimizer's state, and gradients, keep every rule, for the independent judge too, and run no later than planned.
// Devices hold no more of a divided state than r-th parts. Only this test finds a wrong number of buffers for gradients, or of blocks.
func TestZeroPlansAreValid(t *testing.T) {
	t.Parallel()
	all, of := divided(t, rand.New(rand.NewPCG(16, 11)), many(400, 100)), map[pipeline.Zero]int{}
	for _, k := range all {
		of[k.Plan.Zero]++
		report, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatalf("%v: %+v of %+v", err, k.Plan, k.Platform)
		}
		neverLater(t, k, report)
	}
	if of[pipeline.ZeroNothing] < len(all)/20 || of[pipeline.ZeroShards] < len(all)/10 || of[pipeline.ZeroGradients] < len(all)/3 {
		t.Errorf("plans by what they divide: %v", of)
	}
	pipelinetest.Accept(t, all)
}

// Messages of other times, ways, parts and buckets are refused or accepted by both judges, and what is accepted runs no later than it says.
func TestChangedZeroPlans(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(16, 12))
	var all []pipelinetest.Case
	for _, k := range divided(t, rnd, many(400, 80)) {
		for range 6 {
			x := copied(k)
			x.Plan.Synchronization = slices.Clone(k.Plan.Synchronization)
			changeMessages(rnd, &x)
			all = append(all, x)
		}
	}
	refused, accepted, unusable := map[pipeline.Rule]int{}, map[pipeline.Zero]int{}, 0
	for _, k := range all {
		report, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if invalid, ok := errors.AsType[*pipeline.InvalidError](err); ok {
			refused[invalid.Violations[0].Rule]++
			continue
		}
		if errors.Is(err, pipeline.ErrPlan) && k.Plan.Zero == pipeline.ZeroGradients && strings.Contains(err.Error(), "do not take turns") {
			unusable++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		accepted[k.Plan.Zero]++
		neverLater(t, k, report)
	}
	t.Logf("%v accepted, refused %v, and %d whose devices do not take turns", accepted, refused, unusable)
	for _, rule := range []pipeline.Rule{pipeline.RuleSynchronization, pipeline.RuleDependency, pipeline.RuleResource, pipeline.RuleMemory} {
		if refused[rule] < len(all)/100 || accepted[pipeline.ZeroNothing] < len(all)/50 || accepted[pipeline.ZeroGradients] < len(all)/20 || unusable == 0 {
			t.Errorf("of %d plans %v are accepted, refused %v, and %d whose devices do not take turns", len(all), accepted, refused, unusable)
		}
	}
	pipelinetest.Agree(t, all)
}

// changeMessages changes one message of a plan, or some.
func changeMessages(rnd *rand.Rand, x *pipelinetest.Case) {
	p := x.Plan
	i := rnd.IntN(len(p.Synchronization))
	m := &p.Synchronization[i]
	round := len(p.Line(m.Stage))
	earlier := max(m.Shift-round*(1+rnd.IntN(2)), m.Shift%round)
	switch rnd.IntN(20) {
	case 0:
		m.From, m.To = m.To, m.From
	case 1:
		m.From = rnd.IntN(x.Platform.Devices)
	case 2:
		m.First--
	case 3:
		m.Part += rnd.IntN(3) - 1
	case 4, 5:
		p.Zero = (p.Zero + 1 + pipeline.Zero(rnd.IntN(2))) % 3
	case 6:
		p.Synchronization = slices.DeleteFunc(p.Synchronization, func(pipeline.Synchronization) bool { return rnd.IntN(4) == 0 })
	case 7:
		m.Kind = pipeline.Reduce + pipeline.Gather - m.Kind
	case 8:
		m.From, m.Kind = rnd.IntN(x.Platform.Devices), pipeline.Gather
	case 9, 10:
		squeeze(rnd, x)
	case 11: // a missing message
		p.Synchronization = slices.Delete(p.Synchronization, i, i+1)
	case 12: // one more, for an earlier round
		again := *m
		again.Shift = earlier
		p.Synchronization = append(p.Synchronization, again)
	case 13:
		m.Shift = earlier
	case 14: // all gathers, for an earlier round, too
		for _, y := range slices.Clone(p.Synchronization) {
			if y.Shift = y.Shift - round; y.Stage == m.Stage && y.Kind == pipeline.Gather && y.Shift >= 0 {
				p.Synchronization = append(p.Synchronization, y)
			}
		}
	case 15, 16:
		merge(p, m.Stage, m.Shift)
	default:
		m.Start += float64(rnd.IntN(9)-2) / 2
	}
}

// merge puts a bucket of a round of a stage, if it has several, into the one before.
func merge(p *pipeline.Plan, stage, shift int) {
	of := func(m pipeline.Synchronization) bool { return m.Stage == stage && m.Shift == shift }
	var firsts []int
	for _, m := range p.Synchronization {
		if of(m) {
			firsts = append(firsts, m.First)
		}
	}
	if firsts = slices.Compact(slices.Sorted(slices.Values(firsts))); len(firsts) < 2 {
		return
	}
	last := 0
	p.Synchronization = slices.DeleteFunc(p.Synchronization, func(m pipeline.Synchronization) bool {
		if goes := of(m) && m.First == firsts[1]; goes {
			last = m.Last
			return true
		}
		return false
	})
	for i := range p.Synchronization {
		if m := &p.Synchronization[i]; of(*m) && m.First == firsts[0] {
			m.Last = last
		}
	}
}

// Three replicas share 12 MiB of weights in two buckets, 4 MiB and 8. On links of two directions parts take 1/3 s and 2/3 s. Reduces of the
// last layer leave when its gradient is made, at 5 s, and reduces of the first at 9 s. The new weights leave when the reduces have come.
func TestZeroDividesTheOptimizersState(t *testing.T) {
	t.Parallel()
	k := threeReplicas()
	const times = 1 << 20
	for i := range k.Chain.Layers {
		k.Chain.Layers[i].WeightBytes *= times
	}
	k.Platform.Bandwidth *= times
	k.Platform.Duplex, k.Plan.Zero, k.Plan.OptimizerCopies = true, pipeline.ZeroShards, 2
	plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pipeline.Check(k.Chain, k.Platform, plan)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{32*times - 2, 32 * times, 32*times + 2}; !equal(r.PerDeviceWeights, want) || r.Replicated[0].Buckets != 2 || math.Abs(r.Makespan-10-1.0/3) > 1e-6 {
		t.Errorf("weights %v, want %v; %+v, makespan %g", r.PerDeviceWeights, want, r.Replicated, r.Makespan)
	}
	k.Plan.Zero, k.Plan.Synchronization = pipeline.ZeroNothing, nil
	if r, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil || !equal(r.PerDeviceWeights, []int64{48 * times, 48 * times, 48 * times}) {
		t.Errorf("undivided: %+v, %v", r, err)
	}
}

// Where links join all replicas, sums go in parts if these come sooner. A third of the bytes goes each way, and back as soon as it is added
// up. Parts that are too small do not.
func TestSumsInParts(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		times    int64
		pairs    map[[2]int]float64
		parts    int
		makespan float64
	}{
		{1 << 20, nil, 3, 9 + 1.0/3 + 1.0/3}, // reduces of 1/3 s at 9 s, and gathers
		{1 << 20, map[[2]int]float64{{0, 2}: 0}, 1, 14},
		{1 << 17, nil, 1, 14},
	} {
		k := threeReplicas()
		for i := range k.Chain.Layers {
			k.Chain.Layers[i].WeightBytes *= x.times
		}
		k.Platform.Bandwidth *= float64(x.times)
		k.Platform.Duplex, k.Platform.Pairs = true, x.pairs
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pipeline.Check(k.Chain, k.Platform, plan)
		if err != nil || r.Replicated[0].Parts != x.parts || math.Abs(r.Makespan-x.makespan) > 1e-6 {
			t.Errorf("%d bytes, links %v: %+v, makespan %g, want %g; %v", x.times, x.pairs, r.Replicated, r.Makespan, x.makespan, err)
		}
	}
}

// Where parts would wait for their owner in more memory than there is, buckets go whole.
func TestWholeSumsNeedLessMemory(t *testing.T) {
	t.Parallel()
	k, mib := threeReplicas(), int64(1<<20)
	k.Chain.Layers, k.Plan.Stages[0].Last = nil, 8
	for range 8 {
		k.Chain.Layers = append(k.Chain.Layers, layer(1, 1, 1, 3*mib))
	}
	k.Plan.Tasks = nil
	for d := range 3 {
		k.Plan.Tasks = append(k.Plan.Tasks, pipeline.Task{Kind: F, Device: d, Shift: d}, pipeline.Task{Kind: B, Device: d, Start: []float64{100, 8, 8}[d], Shift: d})
	}
	k.Platform.Bandwidth, k.Platform.Duplex, k.Plan.WeightCopies = float64(mib), true, []float64{1}
	for _, x := range []struct{ room, parts int64 }{{16, 3}, {6, 1}} {
		for d := range 3 {
			k.Platform.Memory[d] = (24+x.room)*mib + 1<<10
		}
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := pipeline.Check(k.Chain, k.Platform, plan); err != nil || int64(r.Replicated[0].Parts) != x.parts {
			t.Errorf("%d MiB for blocks: %v, %+v", x.room, err, r)
		}
	}
}

// A plan that cannot be divided is refused, and the error names the field, its value and the remedy.
func TestRefusedDivisions(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		reason string
		change func(*pipelinetest.Case)
	}{
		{"field zero is 3: 0 divides nothing", func(k *pipelinetest.Case) { k.Plan.Zero = 3 }},
		{`field "zero" is 2: devices [0 1 2] of stage 0 do not take turns, so that every 3 microbatches are one for each`, func(k *pipelinetest.Case) {
			k.Plan.Zero, k.Plan.Microbatches = pipeline.ZeroGradients, 4
			k.Plan.Tasks = append(k.Plan.Tasks, pipeline.Task{Kind: F, Start: 9, Shift: 3}, pipeline.Task{Kind: B, Start: 10, Shift: 3})
		}},
		{`field "zero" is 1: weights are divided in plans with a flush, and field "weight_versions" is "stash"`, func(k *pipelinetest.Case) {
			k.Plan.Versions, k.Plan.Period, k.Plan.MinibatchesPerPeriod = pipeline.Stash, 100, 3
		}},
		{`replicas of stage 0 send to each other, and no link joins devices 0 and 2`, func(k *pipelinetest.Case) { k.Platform.Pairs = map[[2]int]float64{{0, 2}: 0} }},
	} {
		k := threeReplicas()
		k.Plan.Zero = pipeline.ZeroShards
		x.change(&k)
		if _, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan); !errors.Is(err, pipeline.ErrPlan) || !strings.Contains(err.Error(), x.reason) {
			t.Errorf("%v, want %q", err, x.reason)
		}
	}
	for _, part := range []int{-1, 4} {
		k := threeReplicas()
		for i := range k.Plan.Synchronization {
			k.Plan.Synchronization[i].Part = part
		}
		if _, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err == nil || !strings.Contains(err.Error(), "own parts 1 to 3") {
			t.Errorf("part %d: %v", part, err)
		}
	}
	k := threeReplicas()
	k.Plan.Zero, k.Plan.Synchronization = pipeline.ZeroShards, nil
	if _, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err == nil || !strings.Contains(err.Error(), "layer 1 (layer) is in no bucket") {
		t.Errorf("without messages: %v", err)
	}
}

// Fields of divided plans survive a file; files without them are as before.
func TestZeroInFiles(t *testing.T) {
	t.Parallel()
	k := divided(t, rand.New(rand.NewPCG(16, 13)), 1)[0]
	var b bytes.Buffer
	if err := k.Plan.Encode(&b); err != nil {
		t.Fatal(err)
	}
	read, err := pipeline.Decode(&b)
	if err != nil || !reflect.DeepEqual(read.Synchronization, k.Plan.Synchronization) || read.Zero != k.Plan.Zero || read.HostState != k.Plan.HostState || read.OptimizerCopies != k.Plan.OptimizerCopies {
		t.Errorf("read %+v, %v", read, err)
	}
	b.Reset()
	if err := threeReplicas().Plan.Encode(&b); err != nil || strings.Contains(b.String(), "zero") || strings.Contains(b.String(), `"part"`) {
		t.Errorf("%v, %s", err, b.String())
	}
}
