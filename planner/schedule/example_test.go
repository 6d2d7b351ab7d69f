package schedule_test

import (
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Anybody's sequence can be judged: it keeps the rules of docs/concepts.md or the error names the op, and it takes so much time and
// memory.
func ExampleSimulate() {
	layer := chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 100, SavedBytes: 300, GradientBytes: 100}
	c := &chain.Chain{InputBytes: 100, Layers: []chain.Layer{layer, layer, {Name: "loss", OutputBytes: 10, SavedBytes: 10}}}
	for _, text := range []string{"Fall1 Fall2 Fall3 B3 B2 B1", "Fck1 Fall2 Fall3 B3 B2 Fall1 B1", "Fall1 Fall2 B2 B1"} {
		seq, err := schedule.Parse(text)
		if err != nil {
			panic(err)
		}
		r, err := schedule.Simulate(c, seq, schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%g s, %d bytes at %v\n", r.Makespan, r.Peak, seq[r.PeakOp])
	}
	// Output:
	// 6 s, 900 bytes at B2
	// 7 s, 700 bytes at B2
	// op 2 (backward 2): δ_2 is not in memory, δ_3 is
}
