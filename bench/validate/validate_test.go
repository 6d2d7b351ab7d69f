package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/bench/report"
	"plimsoll/bench/timeline"
	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/internal/folder"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/models/data"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testCase is a small job on virtual devices, with drawn times.
func testCase(t testing.TB, devices, microbatches int, bandwidth float64, names ...string) Case {
	t.Helper()
	s := train.Spec{
		Model: "tiny", Config: models.Config{Batch: 2 * microbatches, Image: 16}, Data: "digits", Seed: 3, Kernels: library.Options{Threads: 1},
		Devices: fmt.Sprintf("cpu*%d", devices), Microbatches: microbatches, Update: kernels.SGD{Momentum: 0.9},
	}
	s.Open.PeerBandwidth = bandwidth
	j, err := train.Open(s)
	must(t, err)
	if bandwidth == 0 {
		bandwidth = pipeline.Free()
	}
	c := Case{Job: j, Chain: Drawn(j.Work.Chain(), 1), Draw: 1, Platform: pipeline.NewPlatform(devices, pipeline.NoLimit, bandwidth)}
	for _, name := range names {
		s, err := planner.LookupPipeline(name)
		must(t, err)
		c.Strategies = append(c.Strategies, s)
	}
	return c
}

func testGrid(cases ...Case) *Fleet {
	return &Fleet{
		Cases: cases, Limits: []units.Size{{Share: 1}}, Steps: 2, Minibatches: 8, Rate: train.Rate{Peak: 0.02},
	}
}

var (
	asynchronous = []string{"1f1b*", "madpipe", "eager", "contiguous", "list"}
	flushing     = []string{"gpipe", "1f1b-flush", "zb-h1", "zb-h2", "zb-v"}
)

// simulated runs a row's plan in the planner's simulator, which knows neither streams nor this package.
func simulated(t testing.TB, row *Row, periods int) ([]pipe.Timing, *pipeline.Outcome) {
	t.Helper()
	o, err := pipeline.Simulate(row.line.Flat.Chain, row.line.Flat.Platform, row.line.Flat.Plan, pipeline.Noise{Periods: periods})
	must(t, err)
	var tasks []pipe.Timing
	for _, s := range o.Spans {
		x := row.line.Flat.Plan.Tasks[s.Task]
		tasks = append(tasks, pipe.Timing{Device: x.Device, Kind: x.Kind, Stage: x.Stage, Minibatch: s.Minibatch, Start: s.Start, End: s.End})
	}
	return tasks, o
}

func near(a, b, within float64) bool {
	return math.Abs(a-b) <= within*max(math.Abs(a), math.Abs(b), 1e-9)
}

// Figures from the times of a run that the planner's simulator made are the simulator's.
func TestFiguresAreTheSimulators(t *testing.T) {
	t.Parallel()
	plans := 0
	for _, devices := range []int{2, 3, 4} {
		c := testCase(t, devices, 2*devices, 2e6, slices.Concat(asynchronous, flushing)...)
		for seed := range uint64(4) {
			c.Chain, c.Draw = Drawn(c.Chain, seed+1), seed+1
			g := testGrid(c)
			for _, s := range c.Strategies {
				row, err := g.planOne(t.Context(), &c, s, g.Limits[0])
				if err != nil {
					continue // too few layers for so many stages
				}
				plans++
				if row.Kind == "flush" {
					tasks, o := simulated(t, row, 0)
					row.steps([][]pipe.Timing{tasks, tasks, tasks})
					if !near(row.MeasuredS, o.Makespan, 1e-9) || row.MeasuredS > row.PredictedS*(1+1e-9) || !near(1-row.MeasuredBubble, 1-o.Bubble, 1e-6) {
						t.Errorf("%s on %d: step %v, bubble %v; simulated %v, %v", s.Name, devices, row.MeasuredS, row.MeasuredBubble, o.Makespan, o.Bubble)
					}
					continue
				}
				n := row.run(60, 1) / row.Minibatches
				tasks, o := simulated(t, row, n)
				row.steady(tasks, n-2*row.line.Flat.Depth)
				if !near(row.MeasuredS, o.Period, 0.01) || !near(1-row.MeasuredBubble, 1-o.Bubble, 0.02) || !near(row.Ratio, row.MeasuredS/row.PredictedS, 1e-9) {
					t.Errorf("%s on %d: period %v, bubble %v; simulated %v, %v", s.Name, devices, row.MeasuredS, row.MeasuredBubble, o.Period, o.Bubble)
				}
			}
		}
	}
	if plans < 80 {
		t.Errorf("%d plans only", plans)
	}
}

// The picture of a run that keeps to the plan's times is the picture of the plan.
func TestPicturesOfAPerfectRunAreThePlans(t *testing.T) {
	t.Parallel()
	pictures, tasks, curves := 0, 0, 0
	for _, devices := range []int{2, 4} {
		c := testCase(t, devices, 2*devices, 2e6, "1f1b*", "madpipe", "gpipe", "zb-h1")
		g := testGrid(c)
		for _, s := range c.Strategies {
			row, err := g.planOne(t.Context(), &c, s, g.Limits[0])
			must(t, err)
			spans, err := pipeline.Planned(row.line.Flat.Chain, row.line.Flat.Platform, row.line.Flat.Plan, max(1, 3*row.line.Flat.Depth+timeline.ShownPeriods))
			must(t, err)
			for _, s := range spans {
				x := row.line.Flat.Plan.Tasks[s.Task]
				row.line.Ran.Tasks = append(row.line.Ran.Tasks, pipe.Timing{Device: x.Device, Kind: x.Kind, Stage: x.Stage, Minibatch: s.Minibatch, Start: s.Start, End: s.End})
			}
			want, err := row.line.Planned()
			must(t, err)
			got, err := row.line.Run()
			must(t, err)
			if len(got.Lanes) != len(want.Lanes) {
				t.Fatalf("%s: %d lanes, want %d", s.Name, len(got.Lanes), len(want.Lanes))
			}
			for i, lane := range want.Lanes {
				if !slices.EqualFunc(got.Lanes[i].Slices, lane.Slices, func(a, b pipeline.Slice) bool {
					return a.Name() == b.Name() && math.Abs(a.Start-b.Start) < 1e-9 && math.Abs(a.End-b.End) < 1e-9
				}) || got.Lanes[i].Name != lane.Name {
					t.Errorf("%s, %s: %v, want %v", s.Name, lane.Name, got.Lanes[i].Slices, lane.Slices)
				}
				tasks += len(lane.Slices)
			}
			trace, err := row.line.Trace()
			must(t, err)
			must(t, trace.Validate())
			if len(trace.Processes) != 2*len(want.Lanes) {
				t.Errorf("%s: %d processes", s.Name, len(trace.Processes))
			}
			curves += checkMemories(t, row)
			pictures++
		}
	}
	if pictures != 8 || tasks < 200 || curves != 24 {
		t.Errorf("%d pictures with %d tasks, %d curves", pictures, tasks, curves)
	}
}

// checkMemories checks the devices' memory in the picture of a run that keeps to its plan. The planned and the measured memory are one
// curve. With a flush, the curve reaches the peak of a step to the byte; without one, it never exceeds the peak of a period.
func checkMemories(t *testing.T, row *Row) (curves int) {
	t.Helper()
	picture, err := row.line.Picture("<a picture>", row.LimitBytes)
	must(t, err)
	if len(picture.Panels) != 2 || picture.Panels[0].Name != "planned" || picture.Panels[1].Name != "measured" {
		t.Errorf("panels %+v", picture.Panels)
	}
	for d, c := range picture.Charts {
		planned, ran := c.Series[0].Points, c.Series[1].Points
		if !slices.EqualFunc(planned, ran, func(a, b report.Point) bool { return math.Abs(a.X-b.X) < 1e-9 && a.Y == b.Y }) {
			t.Errorf("%s, device %d: planned %v, ran %v", row.Strategy, d, planned, ran)
		}
		top, least := int64(0), int64(math.MaxInt64)
		for _, p := range planned {
			top, least = max(top, int64(p.Y)), min(least, int64(p.Y))
		}
		m := row.pipe.Needs[d]
		if top > m.Peak || top != m.Peak && row.pipe.IsFlush() || least < m.Static+m.Messages || top == least {
			t.Errorf("%s, device %d: from %d to %d bytes, the peak is %d, of which %d static", row.Strategy, d, least, top, m.Peak, m.Static)
		}
		if peak := c.Peak; peak.Bytes() > m.Peak || peak.Bytes() != m.Peak && row.pipe.IsFlush() || peak.Bytes() < top {
			t.Errorf("%s, device %d: at %s %d bytes are held, the peak is %d, the highest that is drawn %d", row.Strategy, d, peak.At, peak.Bytes(), m.Peak, top)
		}
		curves++
	}
	return curves
}

func TestPeriodPassesOverStalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		instant func(i int) float64
		want    float64
		within  float64
	}{
		"steady":      {func(i int) float64 { return 5 + 3*float64(i) }, 3, 1e-12},
		"rhythm of 2": {func(i int) float64 { return 4*float64(i) + float64(i%2) }, 4, 0.03},
		"a stall":     {func(i int) float64 { return 2*float64(i) + map[bool]float64{true: 50}[i > 20] }, 2, 1e-12},
	} {
		var instants []float64
		for i := range 24 {
			instants = append(instants, c.instant(i))
		}
		if got, samples := period(instants); !near(got, c.want, c.within) || samples != 12 {
			t.Errorf("%s: %v of %d, want %v", name, got, samples, c.want)
		}
	}
	if got, samples := period([]float64{1, 4}); got != 3 || samples != 1 {
		t.Errorf("two instants: %v of %d", got, samples)
	}
}

func TestSumsOfSchedules(t *testing.T) {
	t.Parallel()
	c := testCase(t, 2, 4, 0)
	g := testGrid(c)
	for name, want := range map[string]sums{
		"gpipe": descending, "1f1b-flush": ascending, "interleaved": ascending, "zb-h1": ascending, "chimera": noSums, "1f1b*": noSums, "pipedream": noSums,
	} {
		s, err := planner.LookupPipeline(name)
		must(t, err)
		row, err := g.planOne(t.Context(), &c, s, g.Limits[0])
		must(t, err)
		if got := sumsOf(row.pipe.Plan); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	row, err := g.planOne(t.Context(), &c, must1(planner.LookupPipeline("1f1b-flush")), g.Limits[0])
	must(t, err)
	plan := row.pipe.Plan
	back := func(microbatch int) *pipeline.Task {
		return &plan.Tasks[slices.IndexFunc(plan.Tasks, func(x pipeline.Task) bool {
			return x.Kind == pipeline.B && x.Stage == 1 && x.Shift == microbatch
		})]
	}
	x, y := back(0), back(2)
	x.Shift, y.Shift = y.Shift, x.Shift
	if got := sumsOf(plan); got != noSums {
		t.Errorf("a shuffled stage: %q", got)
	}
}

// A split backward adds up in the order of its halves for the weights.
func TestSumsOfSplitSchedules(t *testing.T) {
	t.Parallel()
	c := testCase(t, 2, 4, 0, "zb-h1")
	row, err := testGrid(c).planOne(t.Context(), &c, c.Strategies[0], units.Size{Share: 1})
	must(t, err)
	plan := row.pipe.Plan
	for kind, want := range map[pipeline.Kind]sums{pipeline.B: ascending, pipeline.W: noSums} {
		find := func(microbatch int) *pipeline.Task {
			return &plan.Tasks[slices.IndexFunc(plan.Tasks, func(x pipeline.Task) bool {
				return x.Kind == kind && x.Stage == 0 && x.Shift == microbatch
			})]
		}
		x, y := find(1), find(3)
		x.Shift, y.Shift = y.Shift, x.Shift
		if got := sumsOf(plan); got != want {
			t.Errorf("%v of two microbatches exchanged: %q, want %q", kind, got, want)
		}
		x.Shift, y.Shift = y.Shift, x.Shift
	}
}

// Minibatches that fill or drain the pipeline are no part of the steady state.
func TestSteadyState(t *testing.T) {
	t.Parallel()
	c := testCase(t, 2, 1, 0, "1f1b*")
	row, err := testGrid(c).planOne(t.Context(), &c, c.Strategies[0], units.Size{Share: 1})
	must(t, err)
	row.line.Flat.Depth = 3
	var tasks []pipe.Timing
	var at float64
	for m := range 16 {
		length := 1.0
		if m < 3 || m >= 13 {
			length = 100
		}
		tasks = append(tasks, pipe.Timing{Device: m % 2, Kind: pipeline.F, Minibatch: m, Start: at, End: at + length})
		at += length
	}
	row.steady(tasks, 10)
	if row.line.Ran.From != 300 || row.line.Ran.To != 310 || row.MeasuredS != 1 || !near(row.MeasuredBubble, 0.5, 1e-9) || row.Samples != 6 {
		t.Errorf("from %v to %v; a period is %v of %d, bubble %v", row.line.Ran.From, row.line.Ran.To, row.MeasuredS, row.Samples, row.MeasuredBubble)
	}
}

// An album serves the first batches of the training data, and then again.
func TestAlbum(t *testing.T) {
	t.Parallel()
	c := testCase(t, 2, 2, 0)
	a, err := newAlbum(c.Job)
	must(t, err)
	b, err := data.NewBatcher(c.Job.Set, data.Train, c.Job.Config.Batch, c.Job.Seed)
	must(t, err)
	seen := map[string]bool{}
	for m := range 2 * batches {
		images, labels := make([]float32, len(a.images[0])), make([]int32, c.Job.Config.Batch)
		wantImages, wantLabels := slices.Clone(images), slices.Clone(labels)
		must(t, a.Images(m, images))
		must(t, a.Labels(m, labels))
		_, err := b.Fill(int64(m%batches), wantImages, wantLabels)
		must(t, err)
		if !slices.Equal(images, wantImages) || !slices.Equal(labels, wantLabels) {
			t.Errorf("batch %d is another one", m)
		}
		seen[fmt.Sprint(images, labels)] = true
	}
	if len(seen) != batches {
		t.Errorf("%d different batches", len(seen))
	}
}

func must1(s pipeline.Strategy, err error) pipeline.Strategy {
	if err != nil {
		panic(err)
	}
	return s
}

// With kernels: every byte and every bit is as predicted, and the report says so.
func TestKernels(t *testing.T) {
	t.Parallel()
	g := testGrid(testCase(t, 2, 1, 0, "1f1b*", "eager"), testCase(t, 2, 4, 0, "gpipe", "1f1b-flush", "zb-h1", "chimera"))
	progress := 0
	g.Progress, g.Audit = func(done, total int) { progress += total - done }, true
	r, err := g.Run(t.Context())
	must(t, err)
	if failures := r.Failures(); len(failures) > 0 || len(r.Rows) != 6 || len(r.Skipped) > 0 {
		t.Fatalf("%d rows, skipped %v: %v", len(r.Rows), r.Skipped, failures)
	}
	if progress != 5+4+3+2+1 {
		t.Errorf("progress adds up to %d", progress)
	}
	identical, devices, audited := 0, 0, 0
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Identical != nil {
			identical++
		}
		for _, d := range row.PerDevice {
			if d.TouchedBytes > 0 {
				devices++
			}
			if d.MeasuredPeakBytes > 0 && row.Kind == "flush" {
				audited++
			}
		}
		if !(row.MeasuredS > 0) || row.MeasuredBubble < 0 || row.MeasuredBubble >= 1 {
			t.Errorf("%+v", row)
		}
	}
	if identical != 3 || devices != 12 || audited != 8 {
		t.Errorf("%d rows compared to the bit, %d devices to the byte, the peaks of %d", identical, devices, audited)
	}
	var text strings.Builder
	r.Rows[0].Shared = &train.SharedProcessors{Devices: 2, Processors: 1, Kind: "core"} // as on a machine of one core
	must(t, r.Print(&text, true))
	for _, want := range []string{"cpu*2 on 1 core", "devices share processors", "12 of 12 devices were written up to the predicted byte", "3 of 3 steps with a flush"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "simulated time)") || len(r.Duels) != 0 {
		t.Errorf("it was no simulation: %s", text.String())
	}
}

// In simulated time, the report says so everywhere, and runs take the time of their plans.
func TestSimulatedTime(t *testing.T) {
	t.Parallel()
	g := testGrid(testCase(t, 2, 1, 20e6, "1f1b*", "eager"), testCase(t, 2, 2, 20e6, "1f1b-flush"))
	g.Simulated, g.Minibatches, g.Steps = true, 4, 1
	r, err := g.Run(t.Context())
	must(t, err)
	slowest := 0.0 // where a machine stalls, what waited ends at once
	for i := range r.Rows {
		row := &r.Rows[i]
		slowest = max(slowest, row.Ratio)
		if row.Ratio <= 0 || row.Identical != nil || row.PerDevice[0].TouchedBytes != 0 || row.Draw != 1 {
			t.Errorf("%s: planned %v, measured %v: %+v", row.Strategy, row.PredictedS, row.MeasuredS, row)
		}
	}
	if slowest < 0.8 {
		t.Errorf("no run took the time of its plan: %v", r.Rows)
	}
	if len(r.Rows) != 3 || len(r.Duels) != 2 || r.Duels[0].Points != 1 {
		t.Errorf("%d rows, duels %v", len(r.Rows), r.Duels)
	}
	dir := filepath.Join(t.TempDir(), "out")
	must(t, r.WriteFolder(folder.At(dir)))
	for _, name := range []string{"index.html", "tables.md", "trace.json", "validate.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		if !strings.Contains(strings.ToLower(string(text)), "simulated time") {
			t.Errorf("%s does not say what its times are", name)
		}
	}
	var back Report
	text, err := os.ReadFile(filepath.Join(dir, "validate.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &back))
	if !back.Simulated || len(back.Rows) != 3 {
		t.Errorf("%+v", back)
	}
}

// Failures names each broken promise.
func TestFailuresAreNamed(t *testing.T) {
	t.Parallel()
	no := false
	r := &Report{Rows: []Row{
		{Strategy: "gpipe", Devices: "cpu*2", Limit: "100%", Identical: &no, Difference: "weight of fc.bias"},
		{Strategy: "1f1b*", Devices: "cpu*2", Limit: "100%", PerDevice: []Device{{Name: "cpu*2/1", ExtentBytes: 4096, TouchedBytes: 4097}}},
		{Strategy: "eager", PerDevice: []Device{{ExtentBytes: 4096, TouchedBytes: 4096}, {ExtentBytes: 4096}}},
		{Strategy: "zb-h1", PerDevice: []Device{{Name: "cpu*2/0", PredictedPeakBytes: 64, MeasuredPeakBytes: 64}, {Name: "cpu*2/1", PredictedPeakBytes: 64, MeasuredPeakBytes: 128}}},
	}}
	failures := r.Failures()
	if len(failures) != 3 || !strings.Contains(failures[2], "the measured peak of cpu*2/1 is 128 bytes, predicted 64") || !strings.Contains(failures[0], "weight of fc.bias") || !strings.Contains(failures[1], "cpu*2/1 was written up to byte 4097, predicted 4096") {
		t.Errorf("%q", failures)
	}
	for touched, want := range map[int64]bool{4096: true, 4096 - 2*kernels.Alignment + 1: true, 4096 - 2*kernels.Alignment: false, 4097: false} {
		if d := (&Device{ExtentBytes: 4096, TouchedBytes: touched}); d.Exact() != want {
			t.Errorf("written up to %d of 4096: exact is %v", touched, !want)
		}
	}
}

// A bit of one weight, and a byte behind the predicted end, are seen.
func TestPlantedDifferencesAreSeen(t *testing.T) {
	t.Parallel()
	c := testCase(t, 2, 2, 0, "1f1b-flush")
	g := testGrid(c)
	row, err := g.planOne(t.Context(), &c, c.Strategies[0], g.Limits[0])
	must(t, err)
	known, err := newReferences(g, &c)
	must(t, err)
	spec := c.Job.Spec
	must(t, onDevices(&spec, func(on []executor.Target) error {
		opt := g.options(c.Job, known.feed)
		for _, m := range row.pipe.Needs {
			opt.Limits = append(opt.Limits, m.Extent+beyond)
		}
		opt.Timed = &pipe.Timed{}
		x, err := pipe.New(c.Job.Work, on, row.pipe.Costs, row.pipe.Plan, opt)
		must(t, err)
		must(t, row.paint(on))
		must(t, g.drive(t.Context(), x, row))
		must(t, known.compare(t.Context(), row, x))
		must(t, row.look(t.Context(), on, x, known.feed))
		if !*row.Identical || !row.PerDevice[0].Exact() || !row.PerDevice[1].Exact() {
			t.Errorf("before anything is planted: %v, %+v", row.Difference, row.PerDevice)
		}
		weight := x.Tensors()[len(x.Tensors())/2]
		values := make([]float32, weight.Desc.Elements())
		must(t, x.Read(weight, values))
		values[0] = math.Float32frombits(math.Float32bits(values[0]) ^ 1)
		must(t, x.Write(weight, values))
		must(t, known.compare(t.Context(), row, x))
		if want := weight.Role + " of " + weight.Name; *row.Identical || row.Difference != want {
			t.Errorf("difference %q, want %q", row.Difference, want)
		}
		end := row.pipe.Needs[1].Extent
		must(t, on[1].Device.(runtime.Inspector).Fill(runtime.Span{Offset: end + 5, Bytes: 1}, 7))
		must(t, row.look(t.Context(), on, x, known.feed))
		if !row.PerDevice[0].Exact() || row.PerDevice[1].Exact() || row.PerDevice[1].TouchedBytes != end+6 {
			t.Errorf("%+v", row.PerDevice)
		}
		return nil
	}))
}

func TestDrawnTimes(t *testing.T) {
	t.Parallel()
	c := testCase(t, 2, 1, 0).Job.Work.Chain()
	before, err := json.Marshal(c)
	must(t, err)
	seen := map[string]bool{}
	for seed := range uint64(20) {
		x, y := Drawn(c, seed), Drawn(c, seed)
		must(t, x.Validate())
		var times []float64
		for l := range x.Layers {
			p, q := &x.Layers[l], &y.Layers[l]
			if p.ForwardS != q.ForwardS || p.BackwardS != q.BackwardS || p.SavedBytes != c.Layers[l].SavedBytes {
				t.Errorf("seed %d, layer %d: %+v and %+v", seed, l+1, p, q)
			}
			if p.ForwardS < 1e-3 || p.ForwardS > 8e-3 || p.BackwardS < 2e-3 || p.BackwardS > 16e-3 || *p.BackwardInputS+*p.BackwardWeightS != p.BackwardS {
				t.Errorf("seed %d, layer %d: %+v", seed, l+1, p)
			}
			times = append(times, p.ForwardS, p.BackwardS)
		}
		seen[fmt.Sprint(times)] = true
	}
	after, err := json.Marshal(c)
	must(t, err)
	if len(seen) != 20 || !bytes.Equal(before, after) {
		t.Errorf("%d different chains of 20 seeds", len(seen))
	}
}

func TestGridsThatCannotRun(t *testing.T) {
	t.Parallel()
	c := testCase(t, 3, 6, 0, "chimera")
	if _, err := testGrid(c).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no strategy has a plan; chimera on cpu*3") {
		t.Errorf("error %v", err)
	}
	c.Strategies = append(c.Strategies, must1(planner.LookupPipeline("1f1b-flush")))
	r, err := testGrid(c).Run(t.Context())
	must(t, err)
	if len(r.Rows) != 1 || len(r.Skipped) != 1 || r.Skipped[0].Strategy != "chimera" || r.Skipped[0].Reason == "" {
		t.Errorf("%d rows, skipped %+v", len(r.Rows), r.Skipped)
	}
	g := testGrid(c)
	g.Rate.Peak = 1e30
	if _, err := g.Run(t.Context()); !errors.Is(err, ErrDiverged) {
		t.Errorf("with a rate of 1e30: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := testGrid(c).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// Strategies are compared where both ran, by the image.
func TestDuels(t *testing.T) {
	t.Parallel()
	job := func(batch int) *Case {
		return &Case{Job: &train.Job{Spec: train.Spec{Config: models.Config{Batch: batch}}}}
	}
	row := func(name, devices string, batch, minibatches int, planned, measured float64) Row {
		return Row{Strategy: name, Devices: devices, Minibatches: minibatches, RowTimes: RowTimes{PredictedS: planned, MeasuredS: measured}, from: job(batch)}
	}
	got := duels([]Row{
		row("a", "cpu*2", 8, 1, 1, 1), row("b", "cpu*2", 2, 4, 2, 1.5), row("c", "cpu*2", 8, 2, 1.9, 3),
		row("a", "cpu*4", 8, 1, 1, 2), row("b", "cpu*4", 2, 4, 1.5, 1.9), row("c", "cpu*8", 8, 1, 1, 1),
		row("a", "cpu*8", 8, 1, 1.005, 1),
	})
	want := []Duel{{A: "a", B: "b", Points: 2, PlannedFaster: 2, MeasuredFaster: 1}, {A: "a", B: "c", Points: 2, PlannedSlower: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
