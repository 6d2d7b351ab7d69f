package train

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/kernels"
)

// TestRunsOfEarlierVersions checks that a run is not resumed where an earlier version made other steps of it, and that the refusal says
// what to do.
func TestRunsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	s := Spec{
		Model: "llama-1-16", Data: "opticks", Seed: 1, Devices: "cpu",
		Update: kernels.Muon{Momentum: 0.95, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1, MatricesOnly: true},
	}
	s.Config.Batch, s.Config.Image = 2, 8
	r := &Run{Job: opened(t, s), Steps: 4}
	if notes, err := r.File().Compare("run.json", r); err != nil || len(notes) > 0 {
		t.Errorf("the run itself: %v, %v", notes, err)
	}
	for want, change := range map[string]func(*RunFile){
		"begin a new run from its weights, with --init": func(f *RunFile) { delete(f.Settings.Extra, "windows") },
		`muon_matrices was ""`:                          func(f *RunFile) { delete(f.Settings.Extra, "muon_matrices") },
		"decay=all where it has no MatricesOnly": func(f *RunFile) {
			f.Settings.Update = kernels.Muon{Momentum: 0.95, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 1e-4}
		},
	} {
		f := r.File()
		change(f)
		if _, err := f.Compare("run.json", r); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	s.Config.DType = kernels.BFloat16
	narrow := &Run{Job: opened(t, s), Steps: 4}
	f := narrow.File()
	delete(f.Settings.Extra, "muon_products")
	if _, err := f.Compare("run.json", narrow); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), `muon_products was ""`) {
		t.Errorf("a run of Muon in bfloat16 with products in float32: %v", err)
	}
	wide := r.File()
	if _, err := wide.Compare("run.json", narrow); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), `dtype was "float32"`) || strings.Contains(err.Error(), "earlier version") {
		t.Errorf("a run of Muon in float32 that goes on in bfloat16: %v", err)
	}
	images := &Run{Job: opened(t, tiny(2)), Steps: 4}
	if f := images.File(); f.Settings.Extra["windows"] != "" || f.Settings.Extra["muon_matrices"] != "" || r.File().Settings.Extra["muon_products"] != "" {
		t.Errorf("a run on images has %v", f.Settings.Extra)
	}
}
