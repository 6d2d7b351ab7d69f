package periodic

import (
	"errors"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// TestBranches: no periodic strategy plans a chain whose layers do not follow one another.
func TestBranches(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "y", InputBytes: 1, Branches: []int{1, 1}, Layers: []chain.Layer{{Name: "a", ForwardS: 1}, {Name: "b", ForwardS: 1}, {Name: "loss"}}}
	for _, s := range Strategies() {
		_, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(2, pipeline.NoLimit, 1)})
		if !errors.Is(err, pipeline.ErrBranches) {
			t.Errorf("%s: %v, want %v", s.Name, err, pipeline.ErrBranches)
		}
	}
}
