package pipeline_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/schedule"
)

// flushed returns a random plan with a flush, whose replicas take turns or not.
func flushed(rnd *rand.Rand) pipelinetest.Case {
	k := random(rnd)
	for !k.Plan.IsFlush() {
		k = random(rnd)
	}
	if rnd.IntN(2) == 0 {
		k.Plan = pipelinetest.InTurns(rnd, k.Chain, k.Platform)
	}
	if len(k.Plan.WeightCopies) > 1 {
		k.Plan.WeightCopies = nil
	}
	return k
}

// within returns which stages of a plan have the layers of each stage of another one.
func within(t *testing.T, whole, divided *pipeline.Plan) (parts [][]int) {
	t.Helper()
	next := 0
	for _, st := range whole.Stages {
		var of []int
		for first := st.First; first <= st.Last; next++ {
			if next == len(divided.Stages) {
				t.Fatalf("stages %+v, of %+v", divided.Stages, whole.Stages)
			}
			x := divided.Stages[next]
			if x.First != first || x.Last < first || x.Last > st.Last || !equal(x.Devices, st.Devices) {
				t.Fatalf("stage %+v is no part of %+v", x, st)
			}
			of, first = append(of, next), x.Last+1
		}
		parts = append(parts, of)
	}
	if next != len(divided.Stages) {
		t.Fatalf("stages %+v, of %+v", divided.Stages, whole.Stages)
	}
	return parts
}

// lasts returns how long a task of a stage takes.
func lasts(k pipelinetest.Case, p *pipeline.Plan, of pipeline.Task) (sum float64) {
	costs, st := pipeline.NewCosts(k.Chain), p.Stages[of.Stage]
	switch {
	case of.Kind == F:
		return costs.Forward(st.First, st.Last)
	case of.Kind == W:
		return costs.BackwardWeight(st.First, st.Last)
	case p.Split()[of.Stage]:
		return costs.BackwardInput(st.First, st.Last)
	}
	return costs.Backward(st.First, st.Last)
}

// inPlace fails unless tasks of parts of a stage fill the time of its task, in the order in which they need each other.
func inPlace(t *testing.T, k pipelinetest.Case, divided *pipeline.Plan, whole pipeline.Task, parts []int) {
	t.Helper()
	var all []pipeline.Task
	for _, x := range divided.Tasks {
		if x.Kind == whole.Kind && x.Shift == whole.Shift && slices.Contains(parts, x.Stage) {
			all = append(all, x)
		}
	}
	if whole.Kind.Communication() {
		whole.Stage = parts[len(parts)-1]
		if !reflect.DeepEqual(all, []pipeline.Task{whole}) {
			t.Fatalf("messages %+v, want %+v", all, whole)
		}
		return
	}
	slices.SortStableFunc(all, func(x, y pipeline.Task) int { return cmp.Or(cmp.Compare(x.Start, y.Start), x.Stage-y.Stage) })
	if whole.Kind != F {
		slices.SortStableFunc(all, func(x, y pipeline.Task) int { return cmp.Or(cmp.Compare(x.Start, y.Start), y.Stage-x.Stage) })
		parts = slices.Clone(parts)
		slices.Reverse(parts)
	}
	at := whole.Start
	for i, x := range all {
		if len(all) != len(parts) || x.Stage != parts[i] || x.Device != whole.Device || !near(x.Start, at) {
			t.Fatalf("tasks %+v, of %+v in stages %v", all, whole, parts)
		}
		at += lasts(k, divided, x)
	}
	if end := whole.Start + lasts(k, k.Plan, whole); len(all) == 0 || !near(at, end) {
		t.Fatalf("tasks %+v end at %g, of %+v, which ends at %g", all, at, whole, end)
	}
}

// Stages with replicas become several, which have all layers. Tasks keep their times, whether backwards are split or not, and all is valid as
// before, with the same makespan. Weights are about equal. Only this test finds a task of a part at another time or in the wrong order.
func TestWithStagesKeepsTimes(t *testing.T) {
	t.Parallel()
	rnd, divided, split := rand.New(rand.NewPCG(16, 14)), 0, 0
	bandwidths := map[float64]int{}
	for range many(500, 150) {
		k := flushed(rnd)
		before, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		for most := 1; most <= 4; most++ {
			p := pipeline.DivideStages(k.Chain, k.Plan, most)
			tasks := 0
			for s, parts := range within(t, k.Plan, p) {
				st := k.Plan.Stages[s]
				if len(parts) > most || len(st.Devices) == 1 && len(parts) > 1 {
					t.Fatalf("%+v is %d stages, want up to %d", st, len(parts), most)
				}
				about(t, k, p, st, parts, most)
				for _, task := range k.Plan.Tasks {
					if task.Stage != s {
						continue
					}
					inPlace(t, k, p, task, parts)
					if tasks++; !task.Kind.Communication() {
						tasks += len(parts) - 1
					}
					if len(parts) > 1 {
						divided++
						bandwidths[k.Platform.Bandwidth]++
						if task.Kind == W {
							split++
						}
					}
				}
			}
			after, err := pipeline.Check(k.Chain, k.Platform, p)
			if err != nil || !near(after.Makespan, before.Makespan) || len(p.Tasks) != tasks {
				t.Fatalf("%d tasks, want %d, %v, makespan %g, was %g: %+v of %+v", len(p.Tasks), tasks, err, after.Makespan, before.Makespan, p, k.Plan)
			}
		}
	}
	if divided == 0 || split == 0 || len(bandwidths) < 4 {
		t.Errorf("%d tasks of divided stages, %d of them split, by bandwidth %v", divided, split, bandwidths)
	}
}

// about fails unless a stage is divided into about equal weights: no part has more than its share and one layer.
func about(t *testing.T, k pipelinetest.Case, p *pipeline.Plan, st pipeline.Stage, parts []int, most int) {
	t.Helper()
	costs, largest := pipeline.NewCosts(k.Chain), int64(0)
	for l := st.First; l <= st.Last; l++ {
		largest = max(largest, costs.Summed(l, l))
	}
	for _, s := range parts {
		w := costs.Summed(p.Stages[s].First, p.Stages[s].Last)
		if share := costs.Summed(st.First, st.Last) / int64(most); len(st.Devices) > 1 && w > share+largest || len(parts) > 1 && w == 0 {
			t.Fatalf("stage %+v has %d bytes of weights, of %d in %d parts: %+v", p.Stages[s], w, costs.Summed(st.First, st.Last), most, k.Chain.Layers)
		}
	}
}

// Plans whose stages are divided pass gradients by the rules, for the independent judge too.
func TestWithStagesPassesGradients(t *testing.T) {
	t.Parallel()
	var all []pipelinetest.Case
	for rnd := rand.New(rand.NewPCG(16, 15)); len(all) < many(200, 40); {
		k := random(rnd)
		if k.Plan = pipelinetest.InTurns(rnd, k.Chain, k.Platform); rnd.IntN(2) == 0 {
			larger(k)
		}
		p := pipeline.DivideStages(k.Chain, k.Plan, 2+rnd.IntN(3))
		if p.Zero = pipeline.ZeroGradients; len(p.Stages) == len(k.Plan.Stages) {
			continue
		}
		out, err := pipeline.Synchronize(k.Chain, k.Platform, p)
		if err != nil {
			t.Fatal(err)
		}
		k.Plan = out
		all = append(all, k)
		report, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		neverLater(t, k, report)
	}
	pipelinetest.Accept(t, all)
}

// Stages with ops stay whole beside others. So do all stages of plans without a flush, with times, with portals, or with copies of weights for each
// stage. Messages between replicas go, since they have the numbers of the stages before.
func TestWithStagesLeavesStagesWhole(t *testing.T) {
	t.Parallel()
	k := threeReplicas()
	if p := pipeline.DivideStages(k.Chain, k.Plan, 2); len(p.Stages) != 2 || p.Synchronization != nil || len(k.Plan.Synchronization) == 0 {
		t.Errorf("%+v", p)
	}
	var ops schedule.Sequence
	for l := 1; l <= 3; l++ {
		ops = append(ops, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
	}
	for l := 3; l > 0; l-- {
		ops = append(ops, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	for name, change := range map[string]func(p *pipeline.Plan){
		"ops":       func(p *pipeline.Plan) { p.Stages[0].Ops = ops },
		"one part":  func(p *pipeline.Plan) { p.Stages[0].Devices = p.Stages[0].Devices[:1] },
		"no flush":  func(p *pipeline.Plan) { p.Versions, p.Period, p.MinibatchesPerPeriod = pipeline.Latest, 20, 3 },
		"times":     func(p *pipeline.Plan) { p.Timings = make([]*pipeline.Timing, len(p.Tasks)) },
		"portals":   func(p *pipeline.Plan) { p.Portals = []pipeline.Portal{{From: 0, To: 2, Bytes: 1}} },
		"of stages": func(p *pipeline.Plan) { p.WeightCopies = []float64{2, 2} },
	} {
		k := copied(threeReplicas())
		change(k.Plan)
		k.Plan.Synchronization = nil
		if p := pipeline.DivideStages(k.Chain, k.Plan, 2); !reflect.DeepEqual(p.Stages, k.Plan.Stages) || !reflect.DeepEqual(p.Tasks, k.Plan.Tasks) {
			t.Errorf("%s: %+v, want %+v", name, p, k.Plan)
		}
	}
	ofOps := copied(threeReplicas())
	ofOps.Plan.Stages[0].Ops, ofOps.Plan.Synchronization = ops, nil
	if _, err := pipeline.Check(ofOps.Chain, ofOps.Platform, pipeline.DivideStages(ofOps.Chain, ofOps.Plan, 3)); err != nil {
		t.Error(err)
	}
}

// Finish divides stages until devices need little less memory by it. If a plan fits with some number of stages, Finish finds one that fits. The
// number may need little less memory than a smaller one, or more on another device.
func TestFinishDividesStages(t *testing.T) {
	t.Parallel()
	rnd, divided := rand.New(rand.NewPCG(16, 16)), 0
	for divided < many(300, 100) {
		k := random(rnd)
		k.Plan = pipelinetest.InTurns(rnd, k.Chain, k.Platform)
		k.Plan.Zero = pipeline.ZeroGradients
		larger(k)
		most := 0
		for _, st := range k.Plan.Stages {
			most = max(most, st.Len())
		}
		if len(pipeline.DivideStages(k.Chain, k.Plan, most).Stages) == len(k.Plan.Stages) {
			continue
		}
		divided++
		parts := min(1<<rnd.IntN(3), most)
		p, err := pipeline.Synchronize(k.Chain, k.Platform, pipeline.DivideStages(k.Chain, k.Plan, parts))
		if err != nil {
			t.Fatal(err)
		}
		r, err := pipeline.Check(k.Chain, k.Platform, p)
		if err != nil {
			t.Fatal(err)
		}
		request := pipeline.Request{Chain: k.Chain, Platform: k.Platform}
		free, err := pipeline.Finish("test", request, copied(k).Plan)
		if err != nil || float64(free.Peak()) > 1.01*float64(slices.Max(r.PerDevicePeak)) {
			t.Fatalf("%v, %d bytes, and with stages in %d parts %v", err, free.Peak(), parts, r.PerDevicePeak)
		}
		k.Platform.Memory = r.PerDevicePeak
		out, err := pipeline.Finish("test", request, k.Plan)
		if err != nil {
			t.Fatalf("%v, and with stages in %d parts it fits", err, parts)
		}
		if _, err := pipeline.Check(k.Chain, k.Platform, out); err != nil {
			t.Fatal(err)
		}
	}
}

// Things that take buffers in turn get as many as a search through all numbers says. With one less, some would have to wait.
func TestTurns(t *testing.T) {
	t.Parallel()
	rnd, of := rand.New(rand.NewPCG(16, 17)), map[int]int{}
	for range 2000 {
		n := rnd.IntN(9)
		begin, end := make([]int, n), make([]int, n)
		for i := range begin {
			begin[i] = rnd.IntN(12)
		}
		slices.Sort(begin)
		for i := range end {
			end[i] = begin[i] + rnd.IntN(6)
		}
		want := 0
		for waits := n > 0; waits; {
			want++
			waits = false
			for i := want; i < n; i++ {
				waits = waits || begin[i] < end[i-want]
			}
		}
		of[want]++
		if got := pipeline.Turns(n, func(i, later int) bool { return begin[later] < end[i] }); got != want {
			t.Fatalf("%d buffers from %v to %v, want %d", got, begin, end, want)
		}
	}
	if len(of) < 5 {
		t.Errorf("numbers of buffers: %v", of)
	}
}

// passing is two devices that take turns, with two microbatches each, of one layer of 12 MiB. Forwards take 1 s, and backwards from 1 s to 2 s and
// from 3 s to 4 s. On links of two directions reduces of 6 MiB leave when these end.
func passing(bandwidth float64) pipelinetest.Case {
	k := threeReplicas()
	k.Chain.Layers, k.Chain.InputBytes = k.Chain.Layers[:1], 0
	k.Chain.Layers[0] = layer(1, 1, 0, 12<<20)
	k.Platform = pipeline.NewPlatform(2, pipeline.NoLimit, bandwidth)
	k.Platform.Duplex = true
	k.Plan = &pipeline.Plan{Versions: pipeline.Flush, Microbatches: 4, Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0, 1}}}}
	k.Plan.Zero = pipeline.ZeroGradients
	for r := range 4 {
		at := float64(2 * (r / 2))
		k.Plan.Tasks = append(k.Plan.Tasks, pipeline.Task{Kind: F, Device: r % 2, Start: at, Shift: r}, pipeline.Task{Kind: B, Device: r % 2, Start: at + 1, Shift: r})
	}
	return k
}

// Gradients that have left when the next ones are made leave their buffer to these; others do not. Copies of weights below two have no gradients.
func TestBuffersForGradients(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, x := range []struct {
		bandwidth, makespan, copies float64
		weights                     int64
	}{
		{6 * mib, 6, 0, 12 + 6 + 12},
		{5 * mib, 6.4, 0, 12 + 6 + 2*12},
		{5 * mib, 6.4, 3.5, 30 + 6 + 2*12},
		{5 * mib, 6.4, 1.5, 18},
	} {
		k := passing(x.bandwidth)
		if x.copies > 0 {
			k.Plan.WeightCopies = []float64{x.copies}
		}
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pipeline.Check(k.Chain, k.Platform, plan)
		if err != nil || !equal(r.PerDeviceWeights, []int64{x.weights * mib, x.weights * mib}) || !equal(r.PerDeviceBuffers, []int64{6 * mib, 6 * mib}) || math.Abs(r.Makespan-x.makespan) > 1e-6 {
			t.Errorf("%+v: %v, %+v", x, err, r)
		}
	}
}

// A backward that takes no time comes before one that starts when it does. Two stages on both devices have backwards of 0 s and 1 s, which start at
// 4 s, and at 5 s and 6 s. The later stage's gradients at 4 s leave until 4.25 s and the others until 5.5 s, so two buffers are enough.
func TestBuffersForGradientsOfOneInstant(t *testing.T) {
	t.Parallel()
	k := passing(4)
	k.Chain.Layers[0].WeightBytes = 4
	k.Chain.Layers = append(k.Chain.Layers, layer(1, 0, 0, 1))
	k.Plan.Stages = append(k.Plan.Stages, pipeline.Stage{First: 2, Last: 2, Devices: []int{0, 1}})
	k.Plan.Tasks = nil
	for r := range 4 {
		for i, start := range [][]float64{{0, 1, 4, 4}, {2, 3, 5, 6}}[r/2] {
			k.Plan.Tasks = append(k.Plan.Tasks, pipeline.Task{Kind: []pipeline.Kind{F, F, B, B}[i], Stage: []int{0, 1, 1, 0}[i], Device: r % 2, Start: start, Shift: r})
		}
	}
	plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pipeline.Check(k.Chain, k.Platform, plan)
	if err != nil || !equal(r.PerDeviceWeights, []int64{5 + 2 + 2*4, 5 + 3 + 2*4}) {
		t.Errorf("%v, %+v", err, r)
	}
	pipelinetest.Accept(t, []pipelinetest.Case{{Chain: k.Chain, Platform: k.Platform, Plan: plan}})
}

// Every round has all reduces of the same buckets, and none but the last one has gathers.
func TestRoundsOfGradients(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		reason string
		change func(p *pipeline.Plan)
	}{
		"no reduce": {"stage 0 for microbatch 1: a part of layers 1 to 1 is missing", func(p *pipeline.Plan) {
			p.Synchronization = slices.DeleteFunc(p.Synchronization, func(m pipeline.Synchronization) bool { return m.Shift == 1 && m.From == 0 })
		}},
		"no round": {"stage 0 for microbatch 1: layer 1 (layer) is in no bucket", func(p *pipeline.Plan) {
			p.Synchronization = slices.DeleteFunc(p.Synchronization, func(m pipeline.Synchronization) bool { return m.Shift == 1 })
		}},
		"gather": {`field "shift" is 1: new weights follow the last microbatch, 3`, func(p *pipeline.Plan) {
			for _, m := range p.Synchronization {
				if m.Shift = 1; m.Kind == pipeline.Gather {
					p.Synchronization = append(p.Synchronization, m)
				}
			}
		}},
		"within a round": {`field "shift" is 2: a round of the stage is 2 of them and ends with 3`, func(p *pipeline.Plan) { p.Synchronization[0].Shift = 2 }},
		"other buckets": {"stage 0: the buckets of microbatch 3 are not those of microbatch 1: give all rounds the same", func(p *pipeline.Plan) {
			for i := range p.Synchronization {
				if m := &p.Synchronization[i]; m.Shift == 1 {
					m.Last = 2
				}
			}
		}},
	} {
		k := passing(6 << 20)
		k.Chain.Layers = append(k.Chain.Layers, layer(0, 0, 0, 0))
		k.Plan.Stages[0].Last = 2
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		x.change(plan)
		_, err = pipeline.Check(k.Chain, k.Platform, plan)
		invalid, ok := errors.AsType[*pipeline.InvalidError](err)
		if !ok || !slices.ContainsFunc(invalid.Violations, func(v pipeline.Violation) bool {
			return v.Rule == pipeline.RuleSynchronization && strings.Contains(v.Reason, x.reason)
		}) {
			t.Errorf("%s: %v, want %q", name, err, x.reason)
		}
	}
}
