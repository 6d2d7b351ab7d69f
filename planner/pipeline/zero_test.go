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
// half of all each round of gradients, and of these about half the weights.
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
			k.Plan.Zero = pipeline.ZeroGradients + pipeline.Zero(rnd.IntN(2))
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
	if of[pipeline.ZeroNothing] < len(all)/20 || of[pipeline.ZeroShards] < len(all)/10 || of[pipeline.ZeroGradients] < len(all)/5 || of[pipeline.ZeroWeights] < len(all)/5 {
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
		if errors.Is(err, pipeline.ErrPlan) && k.Plan.Zero >= pipeline.ZeroGradients && strings.Contains(err.Error(), "do not take turns") {
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
		if refused[rule] < len(all)/100 || accepted[pipeline.ZeroNothing] < len(all)/50 || accepted[pipeline.ZeroGradients] < len(all)/20 || accepted[pipeline.ZeroWeights] < len(all)/20 || unusable == 0 {
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
	if p.Zero == pipeline.ZeroWeights && rnd.IntN(2) == 0 {
		changeWeights(rnd, x)
		return
	}
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
		p.Zero = (p.Zero + 1 + pipeline.Zero(rnd.IntN(3))) % 4
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

// changeWeights changes one message of weights of a plan that divides them, or some messages.
func changeWeights(rnd *rand.Rand, x *pipelinetest.Case) {
	p := x.Plan
	var gathers []int
	for i, m := range p.Synchronization {
		if m.Kind == pipeline.Gather {
			gathers = append(gathers, i)
		}
	}
	i := gathers[rnd.IntN(len(gathers))]
	m := &p.Synchronization[i]
	line := p.Line(m.Stage)
	switch rnd.IntN(13) {
	case 0:
		p.Synchronization = slices.Delete(p.Synchronization, i, i+1)
	case 1:
		p.Synchronization = append(p.Synchronization, *m)
	case 2: // for another task, most often in the middle of a turn
		again := *m
		again.Shift, again.Before = rnd.IntN(p.Microbatches), pipeline.F+pipeline.Kind(rnd.IntN(2))
		p.Synchronization = append(p.Synchronization, again)
	case 3:
		m.Shift = rnd.IntN(p.Microbatches)
	case 4: // F is 1, W and CF follow B
		m.Before = pipeline.Kind(rnd.IntN(5))
	case 5:
		m.From = line[rnd.IntN(len(line))]
	case 6:
		m.To = line[rnd.IntN(len(line))]
	case 7:
		m.Part = 1 + rnd.IntN(len(line))
	case 8: // of a reduce
		p.Synchronization[rnd.IntN(len(p.Synchronization))].Before = pipeline.F
	case 9:
		divideBucket(rnd, x, m.Stage)
	case 10: // layers that are not those of the bucket
		st := p.Stages[m.Stage]
		m.First, m.Last = st.First+rnd.IntN(2), st.Last-rnd.IntN(2)
	case 11: // just before the turn
		for _, y := range p.Tasks {
			if y.Kind == m.Before && y.Stage == m.Stage && y.Shift == m.Shift {
				st := p.Stages[m.Stage]
				bytes := pipeline.NewCosts(x.Chain).Weights(st.First, st.Last)
				m.Start = max(0, y.Start-x.Platform.Seconds(pipeline.PartBytes(bytes, m.Part, len(line)), m.From, m.To)+float64(rnd.IntN(3)-1)/64)
			}
		}
	default:
		m.Start = max(0, m.Start+float64(rnd.IntN(9)-4)/8)
	}
}

// divideBucket makes two buckets of one of a stage: in all its rounds and messages, or in about half of them.
func divideBucket(rnd *rand.Rand, x *pipelinetest.Case, stage int) {
	p, all := x.Plan, rnd.IntN(3) > 0
	var out []pipeline.Synchronization
	for _, m := range p.Synchronization {
		if m.Stage != stage || m.First == m.Last || !all && rnd.IntN(2) == 0 {
			out = append(out, m)
			continue
		}
		second := m
		m.Last = m.First
		second.First++
		out = append(out, m, second)
	}
	p.Synchronization = out
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
		{"field zero is 4: 0 divides nothing", func(k *pipelinetest.Case) { k.Plan.Zero = 4 }},
		{`field "zero" is 3: devices [0 1 2] of stage 0 do not take turns, so that every 3 microbatches are one for each`, func(k *pipelinetest.Case) {
			k.Plan.Zero, k.Plan.Microbatches = pipeline.ZeroWeights, 4
			k.Plan.Tasks = append(k.Plan.Tasks, pipeline.Task{Kind: F, Start: 9, Shift: 3}, pipeline.Task{Kind: B, Start: 10, Shift: 3})
		}},
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

// A message of weights that is for no turn, or that says nothing of its turn, is refused. The error names the field, its value and the remedy.
func TestRefusedWeights(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		reason string
		change func(p *pipeline.Plan, reduce, gather *pipeline.Synchronization)
	}{
		{`field "before" is missing: it names the first task, F or B, of the turn that the weights are for`, func(_ *pipeline.Plan, _, m *pipeline.Synchronization) { m.Before = 0 }},
		{`field "before" is W: it names the first task, F or B, of the turn that the weights are for`, func(_ *pipeline.Plan, _, m *pipeline.Synchronization) { m.Before = pipeline.W }},
		{`field "before" is F: it is for a gather of weights, with "zero" of 3`, func(_ *pipeline.Plan, m, _ *pipeline.Synchronization) { m.Before = F }},
		{`field "before" is F: it is for a gather of weights, with "zero" of 3`, func(p *pipeline.Plan, _, m *pipeline.Synchronization) {
			p.Zero, m.Shift = pipeline.ZeroGradients, p.Microbatches-1
		}},
		{`field "to" is 1: F of microbatch 0 is on device 0`, func(_ *pipeline.Plan, _, m *pipeline.Synchronization) { m.From, m.To, m.Part = 2, 1, 3 }},
		{`field "from" is 1: device 2 owns part 3`, func(_ *pipeline.Plan, _, m *pipeline.Synchronization) { m.From, m.Part = 1, 3 }},
		{`field "part" is 4: the stage's 3 devices that work own parts 1 to 3`, func(_ *pipeline.Plan, _, m *pipeline.Synchronization) { m.Part = 4 }},
		{`field "stage" is 7: stages with weights on several devices that work are [0]`, func(_ *pipeline.Plan, _, m *pipeline.Synchronization) { m.Stage = 7 }},
		{`microbatches are 0 to 2`, func(_ *pipeline.Plan, _, m *pipeline.Synchronization) { m.Shift = 3 }},
		{`the device has the weights then, from the task before`, func(p *pipeline.Plan, _, m *pipeline.Synchronization) {
			again := *m
			again.Before = B
			p.Synchronization = append(p.Synchronization, again)
		}},
		{`part 2 of the weights comes 2 times before F of microbatch 0`, func(p *pipeline.Plan, _, m *pipeline.Synchronization) {
			p.Synchronization = append(p.Synchronization, *m)
		}},
		{`part 2 of the weights does not come before F of microbatch 0`, func(p *pipeline.Plan, _, m *pipeline.Synchronization) {
			p.Synchronization = slices.DeleteFunc(p.Synchronization, func(y pipeline.Synchronization) bool { return y.String() == m.String() })
		}},
		{`the bucket of the stage has layers 1 to 3`, func(_ *pipeline.Plan, _, m *pipeline.Synchronization) { m.Last = 1 }},
		{`it has several buckets: with "zero" of 3 give it one`, func(p *pipeline.Plan, _, _ *pipeline.Synchronization) {
			for _, m := range slices.Clone(p.Synchronization) {
				if m.Kind == pipeline.Reduce {
					m.First = 2
					p.Synchronization = append(p.Synchronization, m)
				}
			}
			for i := range p.Synchronization {
				if m := &p.Synchronization[i]; m.First == 1 {
					m.Last = 1
				}
			}
		}},
	} {
		k := threeReplicas()
		k.Plan.Zero = pipeline.ZeroWeights
		for i := range k.Plan.Tasks { // time for weights to come
			k.Plan.Tasks[i].Start += 100
		}
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		find := func(kind pipeline.SynchronizationKind) *pipeline.Synchronization {
			return &plan.Synchronization[slices.IndexFunc(plan.Synchronization, func(m pipeline.Synchronization) bool {
				return m.Kind == kind && (kind == pipeline.Reduce || m.To == 0 && m.Part == 2)
			})]
		}
		x.change(plan, find(pipeline.Reduce), find(pipeline.Gather))
		if _, err := pipeline.Check(k.Chain, k.Platform, plan); !errors.Is(err, pipeline.ErrInvalid) || !strings.Contains(err.Error(), x.reason) {
			t.Errorf("%v, want %q", err, x.reason)
		}
	}
}

// Fields of divided plans survive a file; files without them are as before.
func TestZeroInFiles(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	of := map[pipeline.Zero]int{}
	for _, k := range divided(t, rand.New(rand.NewPCG(16, 13)), 20) {
		b.Reset()
		if err := k.Plan.Encode(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		read, err := pipeline.Decode(&b)
		if err != nil || !reflect.DeepEqual(read.Synchronization, k.Plan.Synchronization) || read.Zero != k.Plan.Zero || read.HostState != k.Plan.HostState || read.OptimizerCopies != k.Plan.OptimizerCopies {
			t.Errorf("read %+v, %v", read, err)
		}
		if of[k.Plan.Zero]++; strings.Contains(text, `"before"`) != (k.Plan.Zero == pipeline.ZeroWeights) {
			t.Errorf("zero of %d: %s", k.Plan.Zero, text)
		}
		for wrong, reason := range map[string]string{`"W"`: `before is "W": is neither F nor B`, `"x"`: `before is "x": is neither F nor B`, `1`: "before"} {
			changed := strings.Replace(text, `"before": "F"`, `"before": `+wrong, 1)
			if _, err := pipeline.Decode(strings.NewReader(changed)); changed != text && (err == nil || !strings.Contains(err.Error(), reason)) {
				t.Errorf("before %s: %v", wrong, err)
			}
		}
	}
	if of[pipeline.ZeroGradients] == 0 || of[pipeline.ZeroWeights] == 0 {
		t.Errorf("plans by what they divide: %v", of)
	}
	b.Reset()
	if err := threeReplicas().Plan.Encode(&b); err != nil || strings.Contains(b.String(), "zero") || strings.Contains(b.String(), `"part"`) || strings.Contains(b.String(), `"before"`) {
		t.Errorf("%v, %s", err, b.String())
	}
}
