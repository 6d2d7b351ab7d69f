package train

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/strategy"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tiny(batch int) Spec {
	return Spec{
		Model: "tiny", Config: models.Config{Batch: batch, Image: 16}, Data: "digits", Seed: 3, Devices: "cpu",
		Update: kernels.SGD{Momentum: 0.9},
	}
}

func opened(t testing.TB, s Spec) *Job {
	t.Helper()
	j, err := Open(s)
	must(t, err)
	return j
}

// planned returns a run along a plan with recomputation.
func planned(t testing.TB, j *Job, steps int) *Run {
	t.Helper()
	c, err := j.Profile(t.Context(), Measure{Repeats: 1})
	must(t, err)
	s, err := planner.Lookup("revolve")
	must(t, err)
	limit, err := j.StoreAllExtent()
	must(t, err)
	limit += limit / 8 // recomputing everything takes a little more of small models
	p, err := executor.Plan(t.Context(), j.Work, c, s, limit, strategy.Options{})
	must(t, err)
	return &Run{Job: j, Chain: c, Plan: j.SequenceOf(c, p, limit), Steps: steps, Rate: Rate{Peak: 0.05}}
}

func TestRate(t *testing.T) {
	t.Parallel()
	r := Rate{Peak: 0.4, Warmup: 4, Decay: Cosine, Steps: 24}
	for step, want := range map[int]float64{0: 0.1, 1: 0.2, 3: 0.4, 4: 0.4, 14: 0.2, 9: 0.2 * (1 + math.Sqrt2/2)} {
		if got := r.At(step); math.Abs(float64(got)-want) > 1e-7 {
			t.Errorf("cosine, step %d: %v, want %v", step, got, want)
		}
	}
	for step := 5; step < 24; step++ {
		if r.At(step) >= r.At(step-1) || r.At(step) <= 0 {
			t.Errorf("step %d: %v after %v", step, r.At(step), r.At(step-1))
		}
	}
	falls := Rate{Peak: 0.4, Warmup: 4, Decay: Step, Every: 10, Gamma: 0.5}
	for step, want := range map[int]float32{0: 0.1, 3: 0.4, 9: 0.4, 10: 0.2, 19: 0.2, 20: 0.1, 45: 0.025} {
		if got := falls.At(step); got != want {
			t.Errorf("step, step %d: %v, want %v", step, got, want)
		}
	}
	if r := (Rate{Peak: 0.4}); r.At(0) != 0.4 || r.At(1000) != 0.4 {
		t.Error("a constant rate is not constant")
	}
}

// The words of a rate, which checkpoints keep, tell rates apart, and do not depend on what the rate does not.
func TestRateString(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for i, r := range []Rate{
		{Peak: 0.1}, {Peak: 0.2}, {Peak: 0.1, Warmup: 5}, {Peak: 0.1, Decay: Step, Every: 3, Gamma: 0.1},
		{Peak: 0.1, Decay: Step, Every: 4, Gamma: 0.1}, {Peak: 0.1, Decay: Step, Every: 3, Gamma: 0.5},
		{Peak: 0.1, Decay: Cosine, Steps: 10}, {Peak: 0.1, Decay: Cosine, Steps: 20}, {Peak: 0.1, Decay: Cosine, Steps: 20, Warmup: 2},
	} {
		if other, taken := seen[r.String()]; taken {
			t.Errorf("rates %d and %d are both %q", other, i, r)
		}
		seen[r.String()] = i
	}
	if a, b := (Rate{Peak: 0.1, Steps: 5}), (Rate{Peak: 0.1, Steps: 9, Gamma: 3}); a.String() != b.String() {
		t.Errorf("%q and %q", a, b)
	}
}

func TestSpecsThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Spec){
		"--classes is 4, but data set digits has 10": func(s *Spec) { s.Config.Classes = 4 },
		"2 devices, and a job runs on one":           func(s *Spec) { s.Devices = "cpu*2" },
		"no kernels for this device":                 func(s *Spec) { s.Devices = "null" },
		"unknown model":                              func(s *Spec) { s.Model = "none" },
		"unknown data set":                           func(s *Spec) { s.Data = "none" },
		"batch":                                      func(s *Spec) { s.Config.Batch = 0 },
	} {
		s := tiny(4)
		change(&s)
		if _, err := Open(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Every held-out sample counts once, also when the last batch is not full; the batch size changes no prediction.
func TestEvaluationCountsEverySampleOnce(t *testing.T) {
	t.Parallel()
	want := -1
	for _, batch := range []int{1, 7, 32, 500} {
		j := opened(t, tiny(batch))
		all, err := j.StoreAll()
		must(t, err)
		r, err := j.Start(all, pipe.Options{})
		must(t, err)
		score, err := r.Evaluate(t.Context())
		must(t, errors.Join(err, r.Close()))
		if score.Samples != int(j.Set.TestLen()) {
			t.Errorf("batch %d: %d samples of %d", batch, score.Samples, j.Set.TestLen())
		}
		if want < 0 {
			want = score.Correct
		}
		if score.Correct != want || math.Abs(score.Accuracy()-float64(want)/360) > 1e-12 {
			t.Errorf("batch %d: %d correct, %v; one by one %d", batch, score.Correct, score.Accuracy(), want)
		}
	}
}

func TestArgmax(t *testing.T) {
	t.Parallel()
	for want, x := range map[int][]float32{0: {3}, 1: {-5, -1, -1}, 2: {0, 1, 2}} {
		if got := argmax(x); got != want {
			t.Errorf("argmax(%v) = %d", x, got)
		}
	}
}

// The loss of a sample is that of its definition, and finite where its exponentials are not.
func TestScore(t *testing.T) {
	t.Parallel()
	var s Score
	s.add(predict([]float32{1, 1}, 0), 0)
	s.add(predict([]float32{0, float32(math.Log(3))}, 1), 1)
	s.add(predict([]float32{1e4, 0, 0}, 1), 1)
	want := math.Log(2) + math.Log(4.0/3) + 1e4
	if s.Correct != 2 || s.Samples != 3 || math.Abs(s.Loss-want) > 1e-6 || math.Abs(s.MeanLoss()-want/3) > 1e-6 {
		t.Errorf("%+v, want a loss of %v", s, want)
	}
}

// A run learns, and what it reports is what happened.
func TestRun(t *testing.T) {
	t.Parallel()
	r := planned(t, opened(t, tiny(16)), 60)
	var records []Record
	r.Record = func(rec Record) error { records = append(records, rec); return nil }
	out, err := r.Do(t.Context())
	must(t, err)
	if len(records) != 60 || records[59].Loss != out.Loss || records[59].Step != 59 {
		t.Errorf("%d records, the last %+v", len(records), records[len(records)-1])
	}
	if out.Accuracy < 0.4 || out.Loss > records[0].Loss {
		t.Errorf("it does not learn: accuracy %v, loss %v after %v", out.Accuracy, out.Loss, records[0].Loss)
	}
	if out.MeasuredPeakBytes != out.PredictedPeakBytes || out.ExtentBytes > r.Plan.Limit {
		t.Errorf("peak %d, predicted %d, extent %d of %d", out.MeasuredPeakBytes, out.PredictedPeakBytes, out.ExtentBytes, r.Plan.Limit)
	}
	if d := out.Drift; d == nil || !(d.Factor > 0) || !(d.PredictedS > 0) || d.Ops > float64(len(r.Plan.Sequence())) || d.Interval[0] > d.Interval[1] || d.Error >= 1 {
		t.Errorf("drift %+v", d)
	}
	if len(out.Measured.Intervals) != len(r.Plan.Sequence()) || out.Measured.Whole != out.MeasuredS || len(out.Measured.Live) != len(r.Plan.Sequence()) || out.MeasuredS <= 0 || out.ImagesPerS <= 0 {
		t.Errorf("measured %+v", out.Measured)
	}
	again, err := r.Do(t.Context())
	must(t, err)
	if again.WeightsSHA256 != out.WeightsSHA256 || len(out.WeightsSHA256) != 64 {
		t.Errorf("weights %s, then %s", out.WeightsSHA256, again.WeightsSHA256)
	}
}

// A run that is asked to stop ends with its step, and so does one whose log fails.
func TestRunStops(t *testing.T) {
	t.Parallel()
	r := planned(t, opened(t, tiny(4)), 50)
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	r.Record = func(Record) error {
		if steps++; steps == 3 {
			cancel()
		}
		return nil
	}
	if _, err := r.Do(ctx); !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "after 3 of 50") || steps != 3 {
		t.Errorf("%v after %d steps", err, steps)
	}
	full := errors.New("disk full")
	r.Record = func(Record) error { return full }
	if _, err := r.Do(t.Context()); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
}

// The cache answers for the same measurement only, and a damaged entry is measured again.
// Only this test finds a measurement that is taken for another batch, optimizer or number of threads or repeats.
func TestCache(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "cache")
	ask := func(s Spec, m Measure) (*chain.Chain, bool) {
		t.Helper()
		c, hit, err := ChainCache{folder}.Measure(t.Context(), opened(t, s), m)
		must(t, err)
		return c, hit
	}
	m := Measure{Repeats: 1}
	first, hit := ask(tiny(4), m)
	if hit || executor.UpdateSeconds(first) <= 0 || first.Device == "" {
		t.Errorf("hit %v, update %v, device %q", hit, executor.UpdateSeconds(first), first.Device)
	}
	if second, hit := ask(tiny(4), m); !hit || second.Layers[0].ForwardS != first.Layers[0].ForwardS {
		t.Error("the same job is measured twice")
	}
	for name, change := range map[string]func(*Spec, *Measure){
		"batch":     func(s *Spec, _ *Measure) { s.Config.Batch = 5 },
		"image":     func(s *Spec, _ *Measure) { s.Config.Image = 20 },
		"model":     func(s *Spec, _ *Measure) { s.Model = "mlp" },
		"optimizer": func(s *Spec, _ *Measure) { s.Update = kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8} },
		"threads":   func(s *Spec, _ *Measure) { s.Kernels.Threads = 1 },
		"repeats":   func(_ *Spec, m *Measure) { m.Repeats = 2 },
		"end":       func(_ *Spec, m *Measure) { m.Enough = time.Minute },
	} {
		if testing.Short() && (name == "image" || name == "model" || name == "end") {
			continue
		}
		s, m := tiny(4), m
		change(&s, &m)
		if _, hit := ask(s, m); hit {
			t.Errorf("another %s is answered from the cache", name)
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "tiny-*.json"))
	must(t, err)
	for _, f := range files {
		must(t, os.WriteFile(f, []byte("{"), 0o644))
	}
	if _, hit := ask(tiny(4), m); hit {
		t.Error("a damaged file is taken")
	}
	if _, hit := ask(tiny(4), m); !hit {
		t.Error("a damaged file is not replaced")
	}
}

// A measurement in windows is not taken where the whole model has room, but one of the whole model is everywhere.
func TestCacheOfWindows(t *testing.T) {
	t.Parallel()
	s := tiny(4)
	extent, err := opened(t, s).StoreAllExtent()
	must(t, err)
	ask := func(folder string, memory int64) bool {
		t.Helper()
		s.Open.Memory = memory
		j := opened(t, s)
		_, hit, err := ChainCache{folder}.Measure(t.Context(), j, Measure{Repeats: 1})
		must(t, err)
		if _, err := (ChainCache{folder}).Kept(j, Measure{Repeats: 1}); err != nil {
			t.Errorf("with %d bytes: %v", memory, err)
		}
		return hit
	}
	small, large := extent-1, extent+1<<20
	folder := t.TempDir()
	if first, again, whole, third := ask(folder, small), ask(folder, small), ask(folder, large), ask(folder, large); first || !again || whole || !third {
		t.Errorf("in windows %v, again %v; whole %v, again %v", first, again, whole, third)
	}
	folder = t.TempDir()
	if first, again := ask(folder, large), ask(folder, small); first || !again {
		t.Errorf("whole %v, in less memory %v", first, again)
	}
}

// A chain of other sizes is refused, and the layer and the field are named.
func TestChainOfAnotherModel(t *testing.T) {
	t.Parallel()
	j := opened(t, tiny(4))
	path := filepath.Join(t.TempDir(), "c.json")
	cases := map[string]func(*chain.Chain){
		"layers":                           func(c *chain.Chain) { c.Layers = c.Layers[1:] },
		"input_bytes":                      func(c *chain.Chain) { c.InputBytes++ },
		"layer 2 (dense): output_bytes":    func(c *chain.Chain) { c.Layers[1].OutputBytes-- },
		"layer 1 (stem): saved_bytes":      func(c *chain.Chain) { c.Layers[0].SavedBytes++ },
		"layer 1 (stem): gradient_bytes":   func(c *chain.Chain) { c.Layers[0].GradientBytes++ },
		"layer 3 (block): forward_over":    func(c *chain.Chain) { c.Layers[2].ForwardOverheadBytes++ },
		"layer 3 (block): backward_over":   func(c *chain.Chain) { c.Layers[2].BackwardOverheadBytes++ },
		"layer 3 (block): discard_overhea": func(c *chain.Chain) { c.Layers[2].DiscardOverheadBytes = new(int64) },
		"layer 5 (fc): weight_bytes":       func(c *chain.Chain) { c.Layers[4].WeightBytes++ },
	}
	for want, change := range cases {
		c := j.Work.Chain()
		change(c)
		must(t, c.Write(path))
		if _, err := j.ReadChain(path); !errors.Is(err, ErrOtherModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	must(t, j.Work.Chain().Write(path))
	if _, err := j.ReadChain(path); err != nil {
		t.Errorf("the model's own chain: %v", err)
	}
}
