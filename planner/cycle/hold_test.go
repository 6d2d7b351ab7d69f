package cycle

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Whenever an op starts, the holds of a random plan add up to the bytes that the player has in use.
func TestHoldsAddUp(t *testing.T) {
	t.Parallel()
	total := 4000
	if testing.Short() {
		total = 800
	}
	rng := rand.New(rand.NewPCG(30, 2))
	var seen [Items]int
	compared := 0
	for range total {
		k := randomTrial(rng)
		seq, s, r := k.play(t)
		if r == nil {
			continue
		}
		holds := s.Holds()
		for i, x := range r.Starts {
			if x.End == x.Start || i+1 < len(r.Starts) && r.Starts[i+1].Start == x.Start || i > 0 && r.Starts[i-1].End == x.Start {
				continue // something else happens at this instant
			}
			sum := int64(0)
			for _, h := range holds {
				if h.From <= x.Start && x.Start < h.Until {
					sum += h.Bytes
					seen[h.Item]++
				}
			}
			compared++
			if sum != x.Used {
				t.Fatalf("%s: %v of step %d: %d bytes are held, %d are in use: %+v; %+v", k.Seq, seq[x.Position], x.Step, sum, x.Used, holds, k)
			}
		}
	}
	t.Logf("%d instants, %v", compared, seen)
	for i, n := range seen {
		if n < 100 {
			t.Errorf("%v were held %d times: a poor test", Item(i), n)
		}
	}
}

// The holds at the peak add up to the peak: the peak of the run, or the peak of the order where it is more.
func TestWhatIsHeldAtThePeak(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(30, 3))
	inOrder, timed := 0, 0
	for range 1500 {
		k := randomTrial(rng)
		seq, s, r := k.play(t)
		if r == nil {
			continue
		}
		if r.Peak > r.InOrderPeak {
			at := slices.IndexFunc(r.Starts, func(x Start) bool { return x.Step == r.PeakStep && x.Position == r.PeakOp })
			if at >= 0 && slices.ContainsFunc(r.Starts, func(x Start) bool { return x.End == x.Start && x.Start == r.Starts[at].Start }) {
				continue // bytes come and go at the instant of the peak
			}
			timed++
		} else {
			inOrder++
		}
		op, parts := s.AtPeak()
		sum := int64(0)
		for _, h := range parts {
			sum += h.Bytes
		}
		if want := max(r.Peak, r.InOrderPeak); sum != want || op >= len(seq) {
			t.Fatalf("%s: %d bytes at op %d, the peak is %d: %+v; %+v", k.Seq, sum, op, want, parts, k)
		}
	}
	if timed < 5 || inOrder < 100 {
		t.Errorf("%d peaks of the order, %d of the run", inOrder, timed)
	}
}
