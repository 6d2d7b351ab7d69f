// Package plantest holds what tests of several planners share: random chains, and the independent checker as a judge.
package plantest

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Chain returns a random chain of n layers, the loss included, with small whole times and sizes.
func Chain(rnd *rand.Rand, n int) *chain.Chain {
	c := &chain.Chain{Name: "random", InputBytes: 1 + rnd.Int64N(6)}
	for range n {
		out := rnd.Int64N(7)
		c.Layers = append(c.Layers, chain.Layer{
			Name: "layer", ForwardS: float64(rnd.IntN(6)), BackwardS: float64(1 + rnd.IntN(6)),
			OutputBytes: out, SavedBytes: out + rnd.Int64N(7), GradientBytes: rnd.Int64N(7),
			ForwardOverheadBytes: rnd.Int64N(3), BackwardOverheadBytes: rnd.Int64N(3),
		})
	}
	return c
}

// Near reports equality up to the rounding of sums of float64.
func Near(x, y float64) bool { return x == y || math.Abs(x-y) <= 1e-9*max(math.Abs(x), math.Abs(y)) }

// Verdict is a sequence with what the independent checker must say of it. It knows one link, not duplex.
type Verdict struct {
	Chain     *chain.Chain      `json:"chain"`
	Ops       schedule.Sequence `json:"ops"`
	Memory    int64             `json:"memory"`
	Bandwidth float64           `json:"bandwidth"`
	Makespan  float64           `json:"-"`
	Peak      int64             `json:"-"`
}

const driver = `
import json, sys
sys.path.insert(0, sys.argv[1])
import check
for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps(check.check(case["chain"], case, case["memory"], case["bandwidth"] or None)))
`

// Oracle lets the checker judge sequences, in a subtest that is skipped where the checker or python3 is missing.
func Oracle(t *testing.T, verdicts []Verdict) {
	t.Run("oracle", func(t *testing.T) {
		seen := shared.Judge[Verdict, judged](t, "check.py", driver, verdicts)
		if len(seen) == 0 {
			t.Fatal("no sequences")
		}
		for i, got := range seen {
			if want := verdicts[i]; !got.Valid || got.Peak != want.Peak || !Near(got.Makespan, want.Makespan) {
				t.Errorf("%s at %d, %g: oracle says %+v, want peak %d and makespan %v, of %v",
					want.Chain.Name, want.Memory, want.Bandwidth, got, want.Peak, want.Makespan, want.Ops)
			}
		}
		t.Logf("%d sequences accepted by the oracle", len(seen))
	})
}

// judged is a verdict of the checker.
type judged struct {
	Valid    bool    `json:"valid"`
	Error    string  `json:"error"`
	Makespan float64 `json:"makespan_s"`
	Peak     int64   `json:"peak_bytes"`
}
