package pipeline_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// tiedChain has weights of 1000 bytes that its first and its last layer read.
func tiedChain() *chain.Chain {
	c := &chain.Chain{Name: "tied", InputBytes: 10, Bandwidth: 1e9}
	for _, name := range []string{"embed", "block", "head"} {
		c.Layers = append(c.Layers, chain.Layer{Name: name, ForwardS: 1, BackwardS: 2, OutputBytes: 10, SavedBytes: 10, GradientBytes: 10, WeightBytes: 500})
	}
	c.Layers[0].WeightBytes, c.Layers[2].WeightBytes, c.Layers[2].Update.WeightsOf = 1000, 0, 1
	return c
}

// straight is one microbatch through stages of a layer each, on devices of their own, over links of 100 bytes/s.
func straight() (*pipeline.Platform, *pipeline.Plan) {
	p := pipeline.NewPlatform(3, 1<<20, 100)
	plan := &pipeline.Plan{Chain: "tied", Strategy: "test", Platform: p, Versions: pipeline.Flush, Microbatches: 1}
	plan.WeightCopies, plan.OptimizerCopies = []float64{2}, 2
	for s := range 3 {
		plan.Stages = append(plan.Stages, pipeline.Stage{First: s + 1, Last: s + 1, Devices: []int{s}})
	}
	at := 0.0
	for s := range 3 {
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: pipeline.F, Stage: s, Device: s, Start: at})
		if at++; s < 2 {
			plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: pipeline.CF, Stage: s, Device: pipeline.NoDevice, Start: at})
			at += 0.1
		}
	}
	for s := 2; s >= 0; s-- {
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: pipeline.B, Stage: s, Device: s, Start: at})
		if at += 2; s > 0 {
			plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: pipeline.CB, Stage: s - 1, Device: pipeline.NoDevice, Start: at})
			at += 0.1
		}
	}
	return p, plan
}

// The head's backward ends at 5.2 s, the step's last one at 9.4. The gradient of the head takes 10 s from there, or from the head's end, and
// then the new weights take 10 s.
func TestSharedWeightsTakeTime(t *testing.T) {
	t.Parallel()
	c := tiedChain()
	p, plan := straight()
	report, err := pipeline.Check(c, p, plan)
	if err != nil || !near(report.Makespan, 5.2+10+10) {
		t.Errorf("makespan %v, want 25.2: %v", report.Makespan, err)
	}
	if simulated, err := pipeline.Simulate(c, p, plan, pipeline.Noise{}); err != nil || !near(simulated.Makespan, 25.2) || !equal(simulated.PerDevicePeak, report.PerDevicePeak) {
		t.Errorf("simulated %+v, want 25.2 s and %v: %v", simulated, report.PerDevicePeak, err)
	}
	p.Bandwidth = 1000 // the gradient is there before the last backward ends
	if report, err := pipeline.Check(c, p, plan); err != nil || !near(report.Makespan, 9.4+1) {
		t.Errorf("makespan %v, want 10.4: %v", report.Makespan, err)
	}
	alone := tiedChain()
	alone.Layers[2].Update.WeightsOf = 0
	apart, err := pipeline.Check(alone, p, plan)
	if err != nil || !near(apart.Makespan, 9.4) {
		t.Fatalf("makespan %v, want 9.4: %v", apart.Makespan, err)
	}
	// Device 0 has a block for the gradient, device 2 weights and their gradient.
	for d, more := range []int64{1000, 0, 2000} {
		if got := report.PerDevicePeak[d] - apart.PerDevicePeak[d]; got != more {
			t.Errorf("device %d: %d bytes more, want %d", d, got, more)
		}
	}
	c.Layers[0].Update.GradientBytes = new(int64)
	if report, err := pipeline.Check(c, p, plan); err != nil || !near(report.Makespan, 9.4) {
		t.Errorf("frozen: makespan %v, want 9.4: %v", report.Makespan, err)
	}
}

// Shared weights need a link between their stages.
func TestSharedWeightsNeedALink(t *testing.T) {
	t.Parallel()
	p, plan := straight()
	p.Bandwidth, p.Pairs = 0, map[[2]int]float64{{0, 1}: 100, {1, 2}: 100}
	_, err := pipeline.Check(tiedChain(), p, plan)
	if !errors.Is(err, pipeline.ErrPlatform) || !strings.Contains(err.Error(), "stages 0 and 2 share weights of layer 1 (embed), and no link joins their devices 0 and 2") {
		t.Error(err)
	}
}

// The makespan of a random plan with replicas counts the messages of shared weights as a list of events does.
func TestRandomSharedWeights(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 9))
	compared, longer := 0, 0
	for compared < many(300, 100) {
		k := random(rnd)
		n := k.Chain.Len()
		if !k.Plan.IsFlush() || n < 2 {
			continue
		}
		owner, reader := 1+rnd.IntN(n), 1+rnd.IntN(n)
		if owner == reader || k.Chain.Layer(owner).WeightBytes == 0 {
			continue
		}
		before, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{})
		if err != nil {
			t.Fatal(err)
		}
		bytes := k.Chain.Layer(owner).WeightBytes
		k.Chain.Layer(reader).WeightBytes, k.Chain.Layer(reader).Update.WeightsOf = 0, owner
		k.Plan.Synchronization = nil
		if synchronized, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan); err == nil {
			k.Plan = synchronized
		}
		without, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{})
		if err != nil {
			if !errors.Is(err, pipeline.ErrPlatform) || !strings.Contains(err.Error(), "share weights") {
				t.Fatal(err)
			}
			continue
		}
		compared++
		want := exchanged(k.Platform, k.Plan, without.Spans, owner, reader, bytes)
		report, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if report == nil {
			t.Fatal(err)
		}
		if !near(without.Makespan, want) {
			t.Errorf("simulated %v, want %v: %+v", without.Makespan, want, k.Plan)
		}
		timed, err := pipeline.Timed(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		if report, _ := pipeline.Check(k.Chain, k.Platform, timed); !near(report.Makespan, want) {
			t.Errorf("the makespan is %v, want %v: %+v", report.Makespan, want, timed)
		}
		if want > before.Makespan {
			longer++
		}
	}
	if longer < compared/4 {
		t.Errorf("%d of %d plans take longer", longer, compared)
	}
}

// exchanged returns when all is done, of tasks with their times: messages queue at their links.
func exchanged(p *pipeline.Platform, plan *pipeline.Plan, spans []pipeline.Span, owner, reader int, bytes int64) (end float64) {
	stage := func(layer int) int {
		return slices.IndexFunc(plan.Stages, func(st pipeline.Stage) bool { return st.First <= layer && layer <= st.Last })
	}
	owners, readers := plan.Line(stage(owner)), plan.Line(stage(reader))
	type ends struct{ from, to int }
	link := func(from, to int) ends {
		if p.Duplex {
			return ends{from, to}
		}
		return ends{min(from, to), max(from, to)}
	}
	on := func(stage, shift int) int {
		i := slices.IndexFunc(plan.Tasks, func(x pipeline.Task) bool { return x.Kind == pipeline.F && x.Stage == stage && x.Shift == shift })
		return plan.Tasks[i].Device
	}
	idle, busy, summed := map[int]float64{}, map[ends]float64{}, 0.0
	for _, s := range spans {
		end = max(end, s.End)
		var way ends
		switch n := len(plan.Tasks); {
		case s.Task >= n:
			m := plan.Synchronization[s.Task-n]
			if way = link(m.From, m.To); m.Stage == stage(reader) {
				summed = max(summed, s.End)
			}
		case plan.Tasks[s.Task].Kind.Communication():
			x := plan.Tasks[s.Task]
			next := max(x.To, x.Stage+1)
			from, to := on(x.Stage, x.Shift), on(next, x.Shift)
			if x.Kind == pipeline.CB {
				from, to = to, from
			}
			way = link(from, to)
		default:
			d := plan.Tasks[s.Task].Device
			idle[d] = max(idle[d], s.End)
			continue
		}
		busy[way] = max(busy[way], s.End)
	}
	if stage(owner) == stage(reader) {
		return end
	}
	send := func(from, to int, ready float64) float64 {
		way := link(from, to)
		busy[way] = max(busy[way], ready) + p.Seconds(bytes, from, to)
		return busy[way]
	}
	judged := end
	for i, to := range owners {
		if from := readers[i%len(readers)]; !slices.Contains(readers, to) {
			judged = max(judged, send(from, to, max(idle[from], summed)))
		}
	}
	end = judged
	for i, to := range readers {
		if !slices.Contains(owners, to) {
			end = max(end, send(owners[i%len(owners)], to, judged))
		}
	}
	return end
}

// Plans without a flush whose stages share weights have a warning.
func TestSharedWeightsWantAFlush(t *testing.T) {
	t.Parallel()
	c := tiedChain()
	s, err := planner.LookupPipeline("1f1b")
	if err != nil {
		t.Fatal(err)
	}
	p := pipeline.NewPlatform(2, 1<<20, 1e9)
	plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: p})
	if err != nil {
		t.Fatal(err)
	}
	report, err := pipeline.Check(c, p, plan)
	if err != nil || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "stages 0 and 1 share weights") {
		t.Errorf("%+v, %v", report, err)
	}
}

// Replicas that would have parts of the gradients of shared weights are refused, and a strategy that chooses divides nothing then.
func TestSharedWeightsAreNotDivided(t *testing.T) {
	t.Parallel()
	c := tiedChain()
	for i := range c.Layers {
		c.Layers[i].WeightBytes *= 1 << 20
	}
	p := pipeline.NewPlatform(4, 1<<50, 1<<30)
	r := pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Microbatches: 8, Accounting: pipeline.Saved}}
	s, err := planner.LookupPipeline("auto-flush")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := s.Solve(t.Context(), r)
	if err != nil || plan.Zero != pipeline.ZeroNothing {
		t.Errorf("%+v, %v", plan, err)
	}
	alone := tiedChain()
	for i := range alone.Layers {
		alone.Layers[i].WeightBytes *= 1 << 20
		alone.Layers[i].Update.DeviceS = 1
	}
	alone.Layers[2].Update.WeightsOf = 0
	r.Chain = alone
	if plan, err := s.Solve(t.Context(), r); err != nil || plan.Zero == pipeline.ZeroNothing {
		t.Errorf("without shared weights nothing is divided: %+v, %v", plan, err)
	}
	r.Chain, r.Zero = c, pipeline.ZeroShards
	s, err = planner.LookupPipeline("chimera")
	if err != nil {
		t.Fatal(err)
	}
	r.Platform = pipeline.NewPlatform(2, 1<<50, 1<<30)
	if _, err := s.Solve(t.Context(), r); !errors.Is(err, pipeline.ErrPlan) || !strings.Contains(err.Error(), "leave \"zero\" out") {
		t.Error(err)
	}
}

// The gradient of shared weights waits for messages before it on its link.
func TestSharedWeightsQueueAtLinks(t *testing.T) {
	t.Parallel()
	c := tiedChain()
	p := pipeline.NewPlatform(2, 1<<20, 100)
	plan := &pipeline.Plan{Chain: "tied", Strategy: "test", Platform: p, Versions: pipeline.Flush, Microbatches: 1}
	plan.WeightCopies, plan.OptimizerCopies = []float64{2}, 2
	plan.Stages = []pipeline.Stage{{First: 1, Last: 2, Devices: []int{0}}, {First: 3, Last: 3, Devices: []int{1}}}
	c.Layers[1].OutputBytes, c.Layers[1].SavedBytes, c.Layers[1].GradientBytes = 1000, 1000, 1000 // messages of 10 s
	add := func(k pipeline.Kind, s, d int, at float64) {
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: k, Stage: s, Device: d, Start: at})
	}
	add(pipeline.F, 0, 0, 0)
	add(pipeline.CF, 0, pipeline.NoDevice, 2)
	add(pipeline.F, 1, 1, 12)
	add(pipeline.B, 1, 1, 13)
	add(pipeline.CB, 0, pipeline.NoDevice, 15)
	add(pipeline.B, 0, 0, 25)
	r, err := pipeline.Check(c, p, plan)
	if err != nil {
		t.Fatal(err)
	}
	// CB has the link from 15 to 25, then the head's gradient from 25 to 35, then the weights to 45.
	if !near(r.Makespan, 45) {
		t.Errorf("makespan %v, want 45", r.Makespan)
	}
}

// A tied layer may say its owner's weight_bytes.
func TestSharedWeightsMayBeRepeated(t *testing.T) {
	t.Parallel()
	c := tiedChain()
	p, plan := straight()
	a, err := pipeline.Check(c, p, plan)
	if err != nil {
		t.Fatal(err)
	}
	c.Layers[2].WeightBytes = 1000
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	b, err := pipeline.Check(c, p, plan)
	if err != nil {
		t.Fatal(err)
	}
	if !near(a.Makespan, b.Makespan) || !equal(a.PerDevicePeak, b.PerDevicePeak) {
		t.Errorf("%v %v, repeated %v %v", a.Makespan, a.PerDevicePeak, b.Makespan, b.PerDevicePeak)
	}
}

// Messages in opposite directions of a half-duplex link follow each other: layer 3 reads the weights of layer 1, layer 4 those of layer 2.
func TestSharedWeightsOnHalfDuplexLinks(t *testing.T) {
	t.Parallel()
	c := tiedChain()
	c.Layers = append(c.Layers[:2:2], c.Layers[2], c.Layers[2])
	// Stages 0 and 3 are on device 0, with layers 1 and 4; stages 1 and 2 are on device 1, with layers 2 and 3. Layer 3 reads 1; layer 4
	// reads 2.
	c.Layers[1].WeightBytes = 1000
	c.Layers[2].Update.WeightsOf, c.Layers[3].Update.WeightsOf = 1, 2
	p := pipeline.NewPlatform(2, 1<<20, 100)
	plan := &pipeline.Plan{Chain: "tied", Strategy: "test", Platform: p, Versions: pipeline.Flush, Microbatches: 1}
	plan.WeightCopies = []float64{2}
	dev := []int{0, 1, 1, 0}
	for s := range 4 {
		plan.Stages = append(plan.Stages, pipeline.Stage{First: s + 1, Last: s + 1, Devices: []int{dev[s]}})
	}
	at := 0.0
	for s := range 4 {
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: pipeline.F, Stage: s, Device: dev[s], Start: at})
		if at++; s < 3 && dev[s] != dev[s+1] {
			plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: pipeline.CF, Stage: s, Device: pipeline.NoDevice, Start: at})
			at += 0.1
		}
	}
	for s := 3; s >= 0; s-- {
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: pipeline.B, Stage: s, Device: dev[s], Start: at})
		if at += 2; s > 0 && dev[s] != dev[s-1] {
			plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: pipeline.CB, Stage: s - 1, Device: pipeline.NoDevice, Start: at})
			at += 0.1
		}
	}
	r, err := pipeline.Check(c, p, plan)
	if err != nil {
		t.Fatal(err)
	}
	// Two messages of 10 s in each of two phases share the only link: at least 40 s of messages.
	if r.Makespan < 40.4 {
		t.Errorf("half-duplex makespan %v, the link alone is busy for 40.4 s", r.Makespan)
	}
}
