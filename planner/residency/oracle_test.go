package residency

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
)

// oracleDriver judges one plan a line with oracle/check_state.py, which implements the same sections of the design independently.
const oracleDriver = `
import json, sys
sys.path.insert(0, sys.argv[1])
import check_state
for line in sys.stdin:
    case = json.loads(line)
    out = check_state.check(case["chain"], case["seq"], case["memory"], None, case["up"], case["down"], case["duplex"], case["clip"])
    print(json.dumps(dict(valid=out["valid"], error=out["error"], period=float(out["period"] or 0),
        in_order=out.get("in_order_peak_bytes", 0))))
`

// given is a plan as the oracle reads it.
type given struct {
	Chain  *chain.Chain `json:"chain"`
	Seq    string       `json:"seq"`
	Memory int64        `json:"memory"`
	Up     float64      `json:"up"`
	Down   float64      `json:"down"`
	Duplex bool         `json:"duplex"`
	Clip   bool         `json:"clip"`
}

type verdict struct {
	Valid   bool    `json:"valid"`
	Error   string  `json:"error"`
	Period  float64 `json:"period"`
	InOrder int64   `json:"in_order"`
}

// An independent judge accepts the plans of auto, with the same period, within the limit in order too. Chains with tied or frozen layers
// are left out: its rules for them are others.
func TestTheOracleAcceptsThePlans(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 12))
	judgedPlans := 100
	if testing.Short() {
		judgedPlans = 20
	}
	var plans []given
	var periods []float64
	for len(plans) < judgedPlans {
		r := trial(random)
		if slices.ContainsFunc(r.Chain.Layers, func(l chain.Layer) bool {
			return l.Update.WeightsOf > 0 || l.WeightBytes > 0 && l.WeightGradient() == 0
		}) {
			continue
		}
		r.Evaluations = 300
		plan, err := Solve(context.Background(), r)
		if err != nil {
			continue
		}
		plans = append(plans, given{Chain: r.Chain, Seq: plan.Sequence.String(), Memory: r.Limits.Memory,
			Up: r.Link.ToDevice, Down: r.Link.ToHost, Duplex: r.Link.Duplex, Clip: r.Limits.UpdatesLast})
		periods = append(periods, plan.Result.Period)
	}
	for i, v := range shared.Judge[given, verdict](t, "check_state.py", oracleDriver, plans) {
		x := &plans[i]
		if !v.Valid || math.Abs(v.Period-periods[i]) > 1e-9*periods[i] || v.InOrder > x.Memory {
			t.Errorf("%s: %+v, period %g, limit %d", x.Seq, v, periods[i], x.Memory)
		}
	}
}
