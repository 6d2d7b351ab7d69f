//go:build cgo

package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"plimsoll/bench/research/peers/internal/storeall"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
)

// Losses of elements, and so their gradients, are those that PyTorch has computed, of samples and targets that NumPy has written: what
// torch_losses.py says.
func TestLossesOfElementsArePyTorchs(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(archives, "losses")
	text, err := os.ReadFile(filepath.Join(folder, "losses.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Rate   float32
		Batch  int
		Losses map[string][]float64
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Losses) != int(kernels.Criteria)-1 {
		t.Errorf("%d losses of PyTorch, want %d", len(want.Losses), kernels.Criteria-1)
	}
	set, err := data.Open("npy:"+folder, data.Options{Image: 4, Channels: 2})
	if err != nil {
		t.Fatal(err)
	}
	for name, losses := range want.Losses {
		loss, err := kernels.ParseCriterion(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.New(filepath.Join(folder, "model.pt2"), models.Config{Batch: want.Batch, Image: 4, Channels: 2, Classes: set.Classes(), Loss: loss})
		if err != nil {
			t.Fatal(err)
		}
		e, closed, err := storeall.Open(m, storeall.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sample, targets := len(e.Batch.Input)/want.Batch, set.Classes()
		for i := range want.Batch {
			err := set.(data.Targets).FillTargets(data.Train, int64(i), e.Batch.Input[i*sample:][:sample], e.Batch.Target[i*targets:][:targets])
			if err != nil {
				t.Fatal(err)
			}
		}
		for step, pytorchs := range losses {
			done, err := e.Step(want.Rate)
			if err != nil {
				t.Fatal(err)
			}
			if d := math.Abs(done.Loss-pytorchs) / pytorchs; !(d <= mostLoss) {
				t.Errorf("%s: step %d has loss %v, PyTorch's %v: %.1e apart", name, step, done.Loss, pytorchs, d)
			}
		}
		if err := closed(); err != nil {
			t.Error(err)
		}
	}
}
