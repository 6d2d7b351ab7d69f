package cycle

import (
	"math/rand/v2"
	"testing"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// A simulated run, replayed, has no time that the rules do not explain. Every compute op starts when the one before has ended, its operands
// have arrived and its memory fits. Ops and waits fill the period.
func TestReplayExplainsSimulations(t *testing.T) {
	t.Parallel()
	total := 1500
	if testing.Short() {
		total = 300
	}
	rng := rand.New(rand.NewPCG(30, 3))
	replayed, moved, waited, hosted := 0, 0, 0, 0
	for range total {
		k := randomTrial(rng)
		unexplained := 2 * time.Nanosecond // as times are rounded
		if rng.IntN(3) == 0 {
			contend(rng, k.Chain)
			unexplained = time.Microsecond // as ops that end nearly together end together
		}
		_, s, r := k.play(t)
		if r == nil {
			continue
		}
		replayed++
		w := s.Steady()
		sum := time.Duration(0)
		for i, x := range s.Replay(r.Spans(), w) {
			if x.Inside {
				sum += x.End - x.Start
			}
			if x.Waits {
				sum += x.Wait.Transfer + x.Wait.Memory + x.Wait.Other
			}
			if x.Wait.Other > unexplained {
				t.Fatalf("%s: op %d, %v, waited %+v", k.Seq, i, x.Op, x.Wait)
			}
			if x.Wait.Transfer > 0 {
				moved++
			}
			if x.Wait.Memory > 0 {
				waited++
			}
			if x.After >= 0 && s.ledger.seq[x.After%len(s.ledger.seq)].Kind == schedule.HostUpdate {
				hosted++
			}
		}
		if sum != w.Length() {
			t.Fatalf("%s: ops and waits take %v of %v", k.Seq, sum, w.Length())
		}
	}
	t.Logf("%d plans; %d waits for transfers, %d for memory; %d ops behind an update on the host", replayed, moved, waited, hosted)
	if replayed < total/4 || moved < total/10 || waited < total/50 || hosted < total/10 {
		t.Error("too little was replayed")
	}
}

// A copy or a host update that waits for no memory starts when what it followed has ended, or the compute op before it.
func TestWhatCopiesFollow(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(30, 4))
	followed := 0
	for range 300 {
		k := randomTrial(rng)
		k.Memory = nil
		_, s, r := k.play(t)
		if r == nil {
			continue
		}
		all := s.Replay(r.Spans(), s.Steady())
		last := time.Duration(-1)
		for i, x := range all {
			if x.Stream == Compute && x.Ran {
				last = x.End
			}
			if !x.Ran || x.Stream == Compute || i < 2*len(s.ledger.seq) && s.Steady().Step == 0 {
				continue // a first step has what is not listed before it
			}
			if x.After >= 0 {
				followed++
				if all[x.After].End != x.Start {
					t.Fatalf("%s: op %d, %v, starts at %v, and followed %v, which ends at %v", k.Seq, i, x.Op, x.Start, all[x.After].Op, all[x.After].End)
				}
			} else if i >= len(s.ledger.seq) && x.Start > last && last >= 0 {
				t.Fatalf("%s: op %d, %v, starts at %v, the compute op before it ends at %v", k.Seq, i, x.Op, x.Start, last)
			}
		}
	}
	if followed < 200 {
		t.Errorf("%d ops followed another", followed)
	}
}

// Windows are steps whose compute ops are all there; those that fill the queues of copies are left out as long as there are others.
func TestWindows(t *testing.T) {
	t.Parallel()
	seq, err := Parse("Fall1 Fall2 B2 B1 U1")
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSimulator(network(chain.Layer{WeightBytes: 4}, chain.Layer{}), Link{1, 1, true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(seq, Limits{Memory: NoLimit, Host: NoLimit}); err != nil {
		t.Fatal(err)
	}
	var all []Span
	for step := range 5 {
		for p := range seq {
			at := time.Duration(10*step + p)
			all = append(all, Span{step, p, schedule.Span{Start: at, End: at + 1}})
		}
	}
	for _, x := range []struct {
		spans              []Span
		begin, steps       int
		first, last, found int
	}{
		{all, 0, 1, 0, 3, 4}, {all, 2, 1, 2, 3, 2}, {all, 9, 1, 0, 3, 4}, {all[2:], 0, 1, 1, 3, 3}, {all, 0, 2, 0, 2, 3}, {all, 0, 5, 0, 0, 0}, {nil, 0, 1, 0, 0, 0},
	} {
		got := s.Windows(x.spans, x.begin, x.steps)
		if len(got) != x.found || x.found > 0 && (got[0].Step != x.first || got[len(got)-1].Step != x.last || got[0].Length() != time.Duration(10*x.steps)) {
			t.Errorf("windows of %d steps from %d: %+v, want %d from %d to %d", x.steps, x.begin, got, x.found, x.first, x.last)
		}
	}
}
