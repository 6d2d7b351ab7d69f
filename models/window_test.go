package models_test

import (
	"errors"
	"testing"

	"plimsoll/kernels/ref"
	"plimsoll/models"
)

// In a model of branches, a window ends with its branch, and a twin has its own weights. The layer that joins branches reads their ends one
// after the other.
func TestWindowsOfBranches(t *testing.T) {
	t.Parallel()
	m := build(t, "siamese", models.Config{Batch: 2, Image: 32, Classes: 2})
	programs := compiled(t, m)
	for from, end := range map[int]int{1: 9, 9: 9, 10: 18, 18: 18, 19: 21, 21: 21} {
		if got := m.WindowEnd(from); got != end {
			t.Errorf("a window from layer %d ends with layer %d, want %d", from, got, end)
		}
		w, of, err := m.Window(ref.New(nil), programs, from, end)
		must(t, err)
		if w.Branches != nil || of[0].SavedBytes != programs[from-1].SavedBytes || of[0].ParamBytes > 0 != (len(w.Layers[0].Params()) > 0) {
			t.Errorf("layers %d to %d: %+v", from, end, of[0])
		}
	}
	if _, _, err := m.Window(ref.New(nil), programs, 9, 10); !errors.Is(err, models.ErrGraph) {
		t.Errorf("a window of two branches: %v", err)
	}
	w, of, err := m.Window(ref.New(nil), programs, 19, 19)
	must(t, err)
	end := m.Layers[8].Desc(m.Layers[8].Output())
	if w.Input.Storage() != 2*end.Storage() {
		t.Errorf("the input is %v, of ends %v", w.Input, end)
	}
	seen := map[int64]bool{}
	for _, s := range append(of[0].Save.Steps, of[0].Back.Steps...) {
		for _, r := range append(s.Refs.X, s.Refs.DX...) {
			if r.Block == models.Input || r.Block == models.GradInput {
				seen[r.Offset] = true
				if r.Branch != 0 {
					t.Errorf("%+v is not in the one input", r)
				}
			}
		}
	}
	if !seen[0] || !seen[end.Storage()] {
		t.Errorf("the ends lie at %v", seen)
	}
}
