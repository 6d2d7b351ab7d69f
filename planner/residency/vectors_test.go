package residency

import (
	"context"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"plimsoll/planner/bound"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// instance is a request of a small chain with the least period of a stated space.
type instance struct {
	Name     string          `json:"name"`
	Chain    json.RawMessage `json:"chain"`
	Memory   int64           `json:"memory"`
	Host     *int64          `json:"host_memory"`
	Up, Down float64
	Duplex   bool    `json:"duplex"`
	Clip     bool    `json:"clip"`
	Period   *string `json:"period_s"` // nil: nothing of the space fits
	Seq      string  `json:"seq"`
}

// readVectors reads the least periods of package cycle's tests.
func readVectors(t testing.TB) []instance {
	t.Helper()
	var f struct{ Cases []instance }
	data, err := os.ReadFile(filepath.Join("..", "cycle", "testdata", "state_small.json"))
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.Cases
}

func (v *instance) request(t testing.TB) Request {
	t.Helper()
	c := new(chain.Chain)
	if err := json.Unmarshal(v.Chain, c); err != nil {
		t.Fatal(err)
	}
	r := Request{Chain: c, Link: cycle.Link{ToDevice: v.Up, ToHost: v.Down, Duplex: v.Duplex},
		Limits: cycle.Limits{Memory: v.Memory, Host: cycle.NoLimit, UpdatesLast: v.Clip}}
	if v.Host != nil {
		r.Limits.Host = *v.Host
	}
	return r
}

func (v *instance) least() float64 {
	r, _ := new(big.Rat).SetString(*v.Period)
	f, _ := r.Float64()
	return f
}

// The plans of auto are as fast as the least periods of 48 chains, or faster. Least periods are from a space without recomputation and
// offloading; the bound is below them. Each faster plan uses a means outside that space.
func TestAutoBesideLeastPeriods(t *testing.T) {
	t.Parallel()
	sum, equal, faster, cases, gap := 0.0, 0, 0, 0, 0.0
	for _, v := range readVectors(t) {
		r := v.request(t)
		plan, err := Solve(context.Background(), r)
		if v.Period == nil {
			continue // of that space none fits
		}
		cases++
		if err != nil {
			t.Errorf("%s: %v; known: %s %s", v.Name, err, *v.Period, v.Seq)
			continue
		}
		ratio := plan.Result.Period / v.least()
		sum += ratio
		switch {
		case ratio < 1-1e-9:
			faster++
			wantOtherMeans(t, v.Name, plan.Sequence)
		case ratio <= 1+1e-9:
			equal++
		default:
			t.Logf("%s: %.4f of the least, %v; known: %s", v.Name, ratio, plan.Sequence, v.Seq)
		}
		gap += wantBound(t, v.Name, r, min(plan.Result.Period, v.least()))
	}
	t.Logf("%d cases: %d as fast, %d faster, mean ratio %.4f; mean gap to the bound %.1f %%",
		cases, equal, faster, sum/float64(cases), 100*gap/float64(cases))
	if cases != 43 || equal+faster < 41 || sum > 1.01*float64(cases) {
		t.Errorf("%d of %d cases are as fast as the least period, or faster; mean ratio %.4f", equal+faster, cases, sum/float64(cases))
	}
}

// wantOtherMeans wants a plan that recomputes, offloads an activation, or moves the gradient of a device update.
func wantOtherMeans(t *testing.T, name string, seq cycle.Sequence) {
	t.Helper()
	for _, op := range seq {
		switch op.Kind {
		case schedule.ForwardCheckpoint, schedule.ForwardDiscard, schedule.Offload, schedule.FetchGradient:
			return
		}
	}
	t.Errorf("%s: %v is faster than the least period of its space", name, seq)
}

// wantBound wants a bound that is not above a period; it returns the gap.
func wantBound(t *testing.T, name string, r Request, period float64) float64 {
	t.Helper()
	low, err := Bound(r)
	if err != nil {
		t.Fatal(err)
	}
	if low > period {
		t.Errorf("%s: the bound %g is above a period, %g", name, low, period)
	}
	return bound.Gap(period, low)
}
