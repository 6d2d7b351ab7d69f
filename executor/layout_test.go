package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Invariant 2 on real models: the layout of a plan stays within 0.1 % of the live peak, so that a limit can be
// used to the last byte.
func TestLayoutsOfRealModelsReachTheirPeaks(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, name := range []string{"resnet56", "resnet50", "densenet121", "resnet110"} {
		m, err := models.New(name, models.Config{Batch: 8, Image: 32, Classes: 10})
		must(t, err)
		w, err := Compile(m, ref.New(nil), kernels.SGD{Momentum: 0.9})
		must(t, err)
		all, err := w.PeakBytes(w.StoreAll())
		must(t, err)
		for _, strat := range []string{"store-all", "rotor", "rotor-exact", "revolve", "periodic"} {
			s, err := planner.Lookup(strat)
			must(t, err)
			for _, percent := range []int64{100, 75, 50, 35, 25} {
				memory := (all - w.StaticBytes()) * percent / 100
				plan, err := s.Solve(context.Background(), strategy.Problem{Chain: costs(w.Chain()), Memory: memory}.Request())
				if err != nil {
					continue
				}
				seq := plan.Sequence()
				peak, err := w.PeakBytes(seq)
				must(t, err)
				extent := mustExtent(t, w, seq)
				if float64(extent) > 1.001*float64(peak) {
					t.Errorf("%s, %s at %d %%: the layout needs %d bytes for a peak of %d", name, strat, percent, extent, peak)
				}
				checked++
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d plans were laid out", checked)
	}
}

// The host slab is used again: two activations that are away at different times share it.
func TestHostCopiesShareMemory(t *testing.T) {
	t.Parallel()
	w := compiled(t, fourImages(t, "resnet20"))
	c := costs(w.Chain())
	sim := Sim{c, schedule.Limits{Link: schedule.Link{Bandwidth: 1e9}}}
	for text, want := range map[string]int64{
		"Fall1 O1 Fall2 Fall3 P1 O3 Fall4 Fall5 Fall6 Fall7 Fall8 Fall9 Fall10 Fall11 Fall12 B12 B11 B10 B9 B8 B7 B6 B5 B4 P3 B3 B2 B1":       c.Saved(2),
		"Fall1 O1 Fall2 O2 Fall3 Fall4 Fall5 Fall6 Fall7 Fall8 Fall9 Fall10 Fall11 Fall12 B12 B11 B10 B9 B8 B7 B6 B5 B4 B3 P2 P1 B2 B1":       c.Activation(0) + c.Saved(1),
		"Fall1 Fall2 Fall3 Fall4 Fall5 Fall6 Fall7 Fall8 Fall9 Fall10 Fall11 Fall12 B12 B11 B10 B9 B8 B7 B6 B5 B4 O2 B3 P2 B2 B1":             c.Saved(1),
		"Fall1 Fall2 O3 Fall3 P3 O2 Fall4 O3 Fall5 P2 Fall6 Fall7 Fall8 Fall9 Fall10 Fall11 Fall12 B12 B11 B10 B9 B8 B7 B6 B5 B4 P3 B3 B2 B1": c.Saved(1) + c.Saved(2),
	} {
		seq, err := schedule.Parse(text)
		must(t, err)
		at, err := w.Layout(seq, testMemory, sim)
		must(t, err)
		if at.Copies != want {
			t.Errorf("%s: %d bytes of host memory, want %d", text, at.Copies, want)
		}
	}
}

// A prefetch whose copy is replaced before it starts has no memory that anybody counts.
func TestAnUnusedPrefetchIsRefused(t *testing.T) {
	t.Parallel()
	w := compiled(t, fourImages(t, "resnet20"))
	seq, err := schedule.Parse("Fall1 Fck2 O3 O1 P3 Fall2 Fall3 Fall4 Fall5 Fall6 Fall7 Fall8 Fall9 Fall10 Fall11 Fall12 B12 B11 B10 B9 B8 B7 B6 B5 B4 B3 B2 P1 B1")
	must(t, err)
	c := costs(w.Chain())
	_, err = w.Layout(seq, testMemory, Sim{c, schedule.Limits{Link: schedule.Link{Bandwidth: float64(c.Saved(1)) / 100}}})
	var unused *UnusedPrefetchError
	if !errors.As(err, &unused) || unused.Prefetch != 4 || unused.Index != 5 {
		t.Errorf("a prefetch that starts too late: %v", err)
	}
	if _, err = w.Layout(seq, testMemory, Sim{c, schedule.Limits{Link: schedule.Link{Bandwidth: 1e12}}}); err != nil {
		t.Errorf("a prefetch in time: %v", err)
	}
}

func TestSimulationsOfOtherChainsAreRefused(t *testing.T) {
	t.Parallel()
	w := compiled(t, fourImages(t, "resnet20"))
	c := w.Chain()
	c.Layers = c.Layers[1:]
	sim := Sim{c, schedule.Limits{Link: schedule.Link{Bandwidth: 1}}}
	if _, err := w.Layout(withTransfer(w.StoreAll()), testMemory, sim); err == nil {
		t.Error("a chain of 11 layers was taken for one of 12")
	}
}

// The staged batch is among what the arena holds at the peak.
func TestTheStagedBatchIsHeld(t *testing.T) {
	t.Parallel()
	w := compiled(t, fourImages(t, "resnet20")).Stage(make([]float32, 3*256))
	_, all, err := w.AtPeak(w.StoreAll(), schedule.NoLimit, Sim{})
	must(t, err)
	sum, staged := int64(0), int64(0)
	for _, h := range all {
		sum += h.Bytes
		if h.Role == NextBatch {
			staged = h.Bytes
		}
	}
	peak, err := w.PeakBytes(w.StoreAll())
	must(t, err)
	if staged != w.StagedBytes() || staged == 0 || sum != peak {
		t.Errorf("%d of %d bytes are staged, want %d of %d", staged, sum, w.StagedBytes(), peak)
	}
}

func TestPalettesOfOtherModelsAreBugs(t *testing.T) {
	t.Parallel()
	w := compiled(t, fourImages(t, "resnet20"))
	defer func() {
		if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "BUG: a palette of 256 values") {
			t.Error(text)
		}
	}()
	w.Stage(make([]float32, 256))
}

// Branches are planned by strategies for branches.
func TestJoinsRefuse(t *testing.T) {
	t.Parallel()
	w := compiled(t, crossModal(t))
	rotor, err := planner.Lookup("rotor")
	must(t, err)
	if _, err := Plan(t.Context(), w, costs(w.Chain()), rotor, testMemory, strategy.Options{}); !errors.Is(err, strategy.ErrBranches) {
		t.Errorf("rotor: %v", err)
	}
	for name, seq := range map[string]schedule.Sequence{
		"a missing op": w.StoreAll()[1:], "a transfer": withTransfer(w.StoreAll()), "no backward": w.StoreAll()[:len(w.Layers)],
	} {
		if _, err := w.Layout(seq, testMemory, Sim{}); !errors.As(err, new(*schedule.RuleError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
