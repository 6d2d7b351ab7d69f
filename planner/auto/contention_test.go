package auto

import (
	"context"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/plantest"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// The choice counts the time that copies take from ops. If ops are much slower beside copies, plans that count it are faster in the
// contended simulation than plans made as if nothing contended. They also offload less often.
func TestPlansCountOnContention(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(18, 2))
	faster, fewer, with := 0, 0, 0
	for range 24 {
		plain := plantest.Chain(rnd, 2+rnd.IntN(6))
		slow := *plain
		slow.Layers = append([]chain.Layer(nil), plain.Layers...)
		for i := range slow.Layers {
			slow.Layers[i].ForwardBeside, slow.Layers[i].BackwardBeside = &chain.Beside{2, 2, 3}, &chain.Beside{2, 2, 3}
		}
		slow.CopiesBeside = &chain.CopiesBeside{1.5, 1.5}
		p := strategy.Problem{Memory: storeAllPeak(t, plain) * 7 / 10, Link: schedule.Link{Bandwidth: 2 + 8*rnd.Float64()}}
		plan := func(c *chain.Chain) (*Report, float64) {
			p := p
			p.Chain = c
			r, err := Plan(context.Background(), p, Options{Steps: 200})
			if err != nil {
				return nil, 0
			}
			judged, err := schedule.Simulate(&slow, r.Sequence, p.Limits())
			if err != nil {
				return nil, 0
			}
			return r, judged.Makespan
		}
		unaware, u := plan(plain)
		aware, a := plan(&slow)
		if unaware == nil || aware == nil {
			continue
		}
		if with++; a > u*(1+1e-9) {
			t.Errorf("a plan that counts on contention takes %v, one that does not %v", a, u)
		}
		if aware.Makespan != a {
			t.Errorf("reported %v, simulated %v", aware.Makespan, a)
		}
		if a < u*(1-1e-9) {
			faster++
		}
		if aware.Transfer < unaware.Transfer {
			fewer++
		}
	}
	t.Log(with, faster, fewer)
	if with < 12 || faster < 4 || fewer < 3 {
		t.Errorf("%d pairs, %d faster, %d with less to transfer", with, faster, fewer)
	}
}
