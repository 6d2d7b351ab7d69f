package schedule

import (
	"errors"
	"testing"

	"plimsoll/planner/chain"
)

// smallChain has one layer and the loss.
func smallChain() *chain.Chain {
	return &chain.Chain{Name: "small", InputBytes: 4, Layers: []chain.Layer{
		{Name: "l1", ForwardS: 1, BackwardS: 2, OutputBytes: 3, SavedBytes: 5, GradientBytes: 3},
		{Name: "loss", ForwardS: 0.5, BackwardS: 0.25, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1},
	}}
}

func TestSimulateRefusesBadInput(t *testing.T) {
	t.Parallel()
	seq := Sequence{{ForwardAll, 1}, {ForwardAll, 2}, {Backward, 2}, {Backward, 1}}
	bad := smallChain()
	bad.Layers[1].ForwardS = -1
	if _, err := Simulate(bad, seq, Limits{Memory: NoLimit}); !errors.Is(err, chain.ErrFormat) {
		t.Errorf("negative time: %v", err)
	}
	moving := append(Sequence{{Offload, 1}, seq[0], {Prefetch, 1}}, seq[1:]...)
	if _, err := Simulate(smallChain(), moving, Limits{Memory: NoLimit}); !errors.Is(err, ErrNoLink) {
		t.Errorf("no link: %v", err)
	}
	if _, err := Simulate(smallChain(), moving, Limits{Memory: NoLimit, Link: Link{Bandwidth: 5e-324}}); !errors.Is(err, ErrEndless) {
		t.Errorf("endless transfer: %v", err)
	}
	var memory *MemoryError
	if _, err := Simulate(smallChain(), seq, Limits{Memory: -1}); !errors.As(err, &memory) || memory.Index != -1 {
		t.Errorf("negative limit: %v", err)
	}
}
