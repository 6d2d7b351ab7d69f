package train

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint"
	"plimsoll/planner/pipeline"
)

// correctedRun is pipeRun with corrections.
func correctedRun(t *testing.T, strategy string, devices, microbatches, steps int, also Corrections, versions pipeline.Versions) *Run {
	t.Helper()
	j := piped(t, devices, microbatches, 8)
	q := request(t, strategy, devices)
	q.Corrections, q.Options.Versions = also, versions
	if q.Strategy.Type == pipeline.Flushing {
		q.Options.Microbatches = microbatches
	}
	c := timed(j)
	p, err := j.PlanPipe(t.Context(), c, q)
	must(t, err)
	r := &Run{Job: j, Chain: c, Plan: p, Steps: steps, Rate: Rate{Peak: 0.05, Warmup: 3}}
	r.Whole()
	return r
}

// With deferred statistics a run ends the same on any number of devices, resumed or not; it trains the same weights as one
// without, and evaluates otherwise.
func TestDeferredBatchNormOnAnyNumberOfDevices(t *testing.T) {
	t.Parallel()
	const steps, microbatches = 5, 4
	run := func(devices int, also Corrections) *Run {
		r := correctedRun(t, "1f1b-flush", devices, microbatches, steps, also, "")
		r.EvalEvery = 3
		return r
	}
	deferred := Corrections{DeferredBatchNorm: true}
	plain, want := done(t, run(2, Corrections{})), done(t, run(1, deferred))
	first := run(4, deferred)
	first.Steps, first.Saves = 3, Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 3}
	done(t, first)
	again := run(2, deferred)
	again.Saves = first.Saves
	resumeLatest(t, again, 3)
	again.Saves = Saves{}
	for _, got := range []*Outcome{done(t, run(3, deferred)), done(t, again)} {
		if got.WeightsSHA256 != want.WeightsSHA256 {
			t.Errorf("weights and statistics %s, want %s", got.WeightsSHA256, want.WeightsSHA256)
		}
	}
	if plain.WeightsSHA256 == want.WeightsSHA256 || plain.History.Evals[0].Loss == want.History.Evals[0].Loss {
		t.Error("deferring changes nothing")
	}
	for i, s := range plain.History.Steps {
		if s.Loss != want.History.Steps[i].Loss {
			t.Errorf("step %d: loss %v, want %v", i, want.History.Steps[i].Loss, s.Loss)
		}
	}
	c, _, err := first.Saves.Dir.Latest()
	must(t, err)
	defer func() { must(t, c.Close()) }()
	notes, err := run(2, Corrections{}).Resume(c)
	must(t, err)
	if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, `deferred_batchnorm was "true"`) }) {
		t.Errorf("notes %v", notes)
	}
}

// PipeMare's corrections are part of what is trained.
func TestPipeMareRuns(t *testing.T) {
	t.Parallel()
	run := func(also Corrections) string {
		return done(t, correctedRun(t, "1f1b*", 3, 1, 12, also, pipeline.Latest)).WeightsSHA256
	}
	seen := map[string]bool{}
	for _, also := range []Corrections{{}, {PipeMare: 8}, {PipeMareDecay: 0.135}, {PipeMare: 8, PipeMareDecay: 0.135}} {
		one := run(also)
		if again := run(also); again != one {
			t.Errorf("%+v: weights %s and %s", also, one, again)
		}
		seen[one] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d different weights of 4 kinds of corrections", len(seen))
	}
}
