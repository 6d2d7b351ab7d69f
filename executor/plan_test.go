package executor

import (
	"context"
	"errors"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// A strategy whose layouts always stick out is asked again for less and less: a few dozen times, not once for every byte.
func TestDraftsAskAFewTimes(t *testing.T) {
	t.Parallel()
	w := compiled(t, fourImages(t, "resnet20"))
	limit := mustExtent(t, w, w.StoreAll()) - 1
	const smallest = 1
	asked, last := 0, limit
	stubborn := pipeline.Strategy{Name: "stubborn", Solve: func(_ context.Context, q pipeline.Request) (*pipeline.Plan, error) {
		memory := q.Platform.Memory[0]
		if asked++; memory < smallest {
			return nil, &pipeline.InfeasibleError{Strategy: "stubborn", Memory: memory, Smallest: smallest}
		}
		if memory >= last {
			t.Errorf("asked for %d bytes after %d", memory, last)
		}
		last = memory
		return pipeline.NewSequence(q.Chain.Name, "stubborn", w.StoreAll(), q.Platform.Limits(0)), nil
	}}
	_, err := Plan(t.Context(), w, costs(w.Chain()), stubborn, limit, strategy.Options{})
	if small := (*TooSmallError)(nil); !errors.As(err, &small) || small.Smallest <= limit {
		t.Errorf("%v", err)
	}
	if asked > 64 {
		t.Errorf("asked %d times", asked)
	}
	t.Logf("asked %d times for up to %d bytes", asked, limit)
}
