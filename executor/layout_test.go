package executor

import (
	"context"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/planner"
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
				extent := mustExtent(t, rig{Workload: w}, seq)
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
