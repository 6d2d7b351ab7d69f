package residency

import (
	"context"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/cycle"
)

// The bytes that a layout counts at its turns are those that the judge counts in the order of the sequence, and every sequence is legal.
func TestTheLayoutCountsWhatTheJudgeCounts(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	compared := 0
	for range 150 {
		p, err := newProblem(context.Background(), trial(random))
		if err != nil {
			t.Fatal(err)
		}
		m := mutator{problem: p, random: random}
		m.listOrders()
		for k := range 20 {
			x := p.blank(m.orders[random.IntN(len(m.orders))])
			x.moves, x.forced = [itemKinds]bool{true, true, true, true}, map[gapKey]hint{}
			for range k {
				m.mutate(x)
			}
			compared += comparePeak(t, p, x)
		}
	}
	if compared < 1000 {
		t.Errorf("%d sequences were compared", compared)
	}
}

// comparePeak returns 1 where the choice fits.
func comparePeak(t *testing.T, p *problem, x *choice) int {
	t.Helper()
	l := p.lay(x)
	if l.fill().bytes > 0 {
		return 0
	}
	seq := l.emit()
	if err := p.sim.Verify(seq, p.limits); err != nil {
		t.Errorf("%v: %v", seq, err)
		return 0
	}
	r, err := p.sim.Run(seq, cycle.Limits{Memory: cycle.NoLimit, Host: cycle.NoLimit, UpdatesLast: p.limits.UpdatesLast, Steps: 100})
	if err != nil { // copies fall behind
		return 0
	}
	if _, peak := l.peak(); peak != r.InOrderPeak {
		t.Errorf("%v: %d B at the fullest turn, %d B by the judge", seq, peak, r.InOrderPeak)
	}
	return 1
}
