package residency

import (
	"context"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
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

func TestVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		plan, err := Solve(context.Background(), v.request(t))
		switch {
		case v.Period == nil && err != nil:
			t.Logf("%s: none, as known: %v", v.Name, err)
		case v.Period == nil:
			t.Logf("%s: found %g where none is known: %v (%s)", v.Name, plan.Result.Period, plan.Sequence, plan.Strategy)
		case err != nil:
			t.Errorf("%s: %v; known: %s %s", v.Name, err, *v.Period, v.Seq)
		default:
			t.Logf("%s: %.4f (%s) %d: %v; known: %s", v.Name, plan.Result.Period/v.least(), plan.Strategy, plan.Evaluated, plan.Sequence, v.Seq)
		}
	}
}
