package train

import (
	"errors"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/strategy"
)

// smallCase is a model whose step is several times larger than the device that it is trained on.
type smallCase struct {
	model        string
	image, batch int
}

// trainOn measures, plans and trains a model on a device of memory bytes, 0 for a large one with store-all.
func trainOn(t *testing.T, devices string, c smallCase, memory int64) (*Run, *Outcome) {
	t.Helper()
	s := Spec{
		Model: c.model, Config: models.Config{Batch: c.batch, Image: c.image}, Data: "digits", Seed: 5, Devices: devices,
		Update: kernels.SGD{},
	}
	s.Open.Memory = memory
	j := opened(t, s)
	plan, limit := auto.Strategy(), memory
	if memory == 0 {
		var err error
		plan, err = planner.Lookup("store-all")
		must(t, err)
		limit, err = j.StoreAllExtent()
		must(t, err)
	}
	measured, err := j.Profile(t.Context(), Measure{Repeats: 1, Limit: limit, Check: func() error {
		return j.Feasible(t.Context(), plan, limit, strategy.Options{})
	}})
	must(t, err)
	opt := strategy.Options{HostMemory: j.Work.HostRoom(j.HostLimit(0))}
	p, err := executor.Plan(t.Context(), j.Work, measured, plan, limit, opt)
	must(t, err)
	r := &Run{Job: j, Chain: measured, Plan: p, Limit: limit, HostLimit: j.HostLimit(0), Steps: 2, Rate: Rate{Peak: 0.01}}
	out, err := r.Do(t.Context())
	must(t, err)
	return r, out
}

// expectSmall trains a model on a device that is a third of its step, and expects the bits of a large one, the predicted peak, and
// nothing beyond the device.
func expectSmall(t *testing.T, devices string, c smallCase) {
	t.Helper()
	large, want := trainOn(t, devices, c, 0)
	memory := large.Limit / 3
	if _, err := large.Job.Start(large.Job.Work.StoreAll(), executor.Options{Limit: memory}); !errors.As(err, new(*executor.LayoutError)) {
		t.Fatalf("%s: store-all on a third of its memory: %v", c.model, err)
	}
	small, got := trainOn(t, devices, c, memory)
	if small.Job.Device.Memory != memory || got.ExtentBytes > memory || got.MeasuredPeakBytes != got.PredictedPeakBytes {
		t.Errorf("%s: %d bytes, predicted %d, extent %d, on a device of %d", c.model, got.MeasuredPeakBytes, got.PredictedPeakBytes, got.ExtentBytes, small.Job.Device.Memory)
	}
	if got.WeightsSHA256 != want.WeightsSHA256 {
		t.Errorf("%s: other weights than on a large device", c.model)
	}
	tooFew := Measure{Limit: got.PredictedPeakBytes / 4, Repeats: 1, Check: func() error {
		return small.Job.Feasible(t.Context(), auto.Strategy(), got.PredictedPeakBytes/4, strategy.Options{})
	}}
	if _, err := small.Job.Profile(t.Context(), tooFew); !errors.As(err, new(*executor.TooSmallError)) {
		t.Errorf("%s in a quarter of that: %v", c.model, err)
	}
}

// Invariant 7: what is needed is what the smallest plan needs, also to measure, and a device smaller than store-all changes no bit.
func TestDevicesSmallerThanStoreAll(t *testing.T) {
	for _, c := range []smallCase{{"resnet50", 224, 16}, {"densenet121", 64, 24}, {"unet", 96, 8}} {
		if testing.Short() && c.model == "resnet50" {
			continue // one step takes a minute under the race detector
		}
		expectSmall(t, "cpu", c)
	}
}
