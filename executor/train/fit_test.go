package train

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// fits reports whether one of a kind's strategies has a plan of the model at a size.
func fits(t *testing.T, s Spec, k strategy.Kind, limit int64, opt strategy.Options) bool {
	t.Helper()
	j, err := Open(s)
	if err != nil {
		return false // no such model
	}
	for _, by := range k.Strategies {
		_, err := executor.Plan(t.Context(), j.Work, j.Work.Unmeasured(), by, limit, opt)
		if err == nil {
			return true
		}
		if !errors.As(err, new(*executor.TooSmallError)) && !errors.As(err, new(*schedule.HostMemoryError)) {
			t.Fatal(err)
		}
	}
	return false
}

// compiles returns the first image from so many pixels on, in steps, that the model takes.
func compiles(s Spec, image, step int) int {
	for s.Config.Image = image; ; s.Config.Image += step {
		if _, err := Open(s); err == nil {
			return s.Config.Image
		}
	}
}

// The answers of fit hold: a plan exists at the smallest limit, at the largest batch and image, and at none beyond.
// Only this test finds a largest image, or a largest batch under a limit of host memory, that is off by one step.
func TestFit(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, c := range []struct {
		model        string
		image, batch int
		share        int64 // of store-all's arena, in percent
		host         int64 // bytes; 0: no limit
	}{
		{"resnet20", 32, 16, 40, 0},
		{"unet-2-4", 32, 8, 60, 3 << 20},
		{"resnet32", 16, 8, 80, 1 << 20},
		{"mlp", 32, 8, 90, 0},
		{"siamese", 32, 8, 70, 0},
		{"unet-1-4", 96, 4, 60, 8 << 20},
		{"inception_v3", 75, 2, 60, 64 << 20},
	} {
		t.Run(fmt.Sprintf("%s within %d%%", c.model, c.share), func(t *testing.T) {
			s := Spec{
				Model: c.model, Config: models.Config{Batch: c.batch, Image: c.image}, Data: "digits", Seed: 1, Devices: "cpu",
				Update: kernels.SGD{Momentum: 0.9},
			}
			j := opened(t, s)
			all, err := j.StoreAllExtent()
			must(t, err)
			q := FitRequest{Kinds: planner.Kinds(j.Work.Chain()), Limit: all * c.share / 100, Options: strategy.Options{HostMemory: c.host}}
			f, err := j.Fit(t.Context(), q)
			must(t, err)
			if f.StoreAllBytes != all || f.LimitBytes != q.Limit || len(f.Kinds) != len(q.Kinds) {
				t.Fatalf("%+v", f)
			}
			for i, k := range q.Kinds {
				got, joins := f.Kinds[i], j.Work.Model.Branches != nil // whose search does not know its smallest limit for sure
				if !fits(t, s, k, got.SmallestBytes, strategy.Options{}) || !joins && fits(t, s, k, got.SmallestBytes-kernels.Alignment, strategy.Options{}) {
					t.Errorf("%s: %d bytes are not the smallest limit", k.Name, got.SmallestBytes)
				}
				at := func(batch, image int) bool {
					sized := s
					sized.Config.Batch, sized.Config.Image = batch, image
					return fits(t, sized, k, q.Limit, q.Options)
				}
				if n := got.LargestBatch; n > 0 && !at(n, c.image) || at(n+1, c.image) {
					t.Errorf("%s: %d is not the largest batch", k.Name, n)
				}
				if n := *got.LargestImage; n > 0 && !at(c.batch, n) || at(c.batch, compiles(s, n+f.ImageStep, f.ImageStep)) {
					t.Errorf("%s: %d is not the largest image", k.Name, n)
				}
				checked++
			}
		})
	}
	if checked != 6*4+1 {
		t.Errorf("%d kinds", checked)
	}
}

// Where layouts stick out by little, a strategy is not asked again for as long as it would answer the same.
func TestAPlanAsksAStrategyFewTimes(t *testing.T) {
	t.Parallel()
	s, err := planner.Lookup("rotor-exact")
	must(t, err)
	j := opened(t, Spec{Model: "unet", Config: models.Config{Batch: 1024, Image: 32}, Data: "digits", Devices: "cpu", Update: kernels.SGD{}})
	least, err := j.Smallest(t.Context(), planner.KindOf(s))
	must(t, err)
	asked, solve := 0, s.Solve
	s.Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
		asked++
		return solve(ctx, r)
	}
	small := (*executor.TooSmallError)(nil)
	if _, err := executor.Plan(t.Context(), j.Work, j.Work.Unmeasured(), s, least-kernels.Alignment, strategy.Options{}); !errors.As(err, &small) {
		t.Errorf("below the smallest limit: %v", err)
	}
	if asked > 20 {
		t.Errorf("asked %d times", asked)
	}
}
