package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
)

// eachRandom calls check with random valid simulations until it has seen n of them.
func eachRandom(t *testing.T, n int, check func(c *chain.Chain, seq Sequence, limits Limits, r *Result)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	if testing.Short() {
		n /= 4
	}
	seen := 0
	for range 20 * n {
		c := randomChain(rng)
		seq := randomSequence(rng, c, rng.IntN(4) > 0)
		limits := randomLimits(rng, c, seq)
		limits.Link.Duplex = rng.IntN(2) == 0
		r, err := Simulate(c, seq, limits)
		if err != nil {
			continue
		}
		check(c, seq, limits, r)
		if seen++; seen == n {
			return
		}
	}
	t.Fatalf("only %d valid cases, want %d", seen, n)
}

// TestEveryOpStartsAsSoonAsItMay checks times and memory of a simulation from the definition, without its event loop. No op starts before
// the ops that it waits for have ended, and an op that starts later did not fit before.
func TestEveryOpStartsAsSoonAsItMay(t *testing.T) {
	t.Parallel()
	late := 0
	eachRandom(t, 1200, func(c *chain.Chain, seq Sequence, limits Limits, r *Result) {
		steps := resolve(t, c, seq)
		for p := range seq {
			from := earliest(seq, steps, limits.Link.Duplex, r, p)
			if r.Start[p] < from {
				t.Fatalf("%s: op %d starts at %g, what it waits for ends at %g", seq, p, r.Start[p], from)
			}
			if r.Start[p] == from {
				continue
			}
			late++
			if free := fittedAt(r, from, r.Start[p], limits.Memory-steps[p].takes); free >= 0 {
				t.Fatalf("%s: op %d starts at %g but fits at %g", seq, p, r.Start[p], free)
			}
		}
	})
	if late < 5 {
		t.Fatalf("%d ops waited for memory", late)
	}
}

func resolve(t *testing.T, c *chain.Chain, seq Sequence) []step {
	t.Helper()
	var rep replay
	if err := rep.judge(c, seq); err != nil {
		t.Fatal(err)
	}
	return rep.steps
}

// earliest returns the end of everything that op p waits for, memory apart.
func earliest(seq Sequence, steps []step, duplex bool, r *Result, p int) float64 {
	var from float64
	for q := range p {
		before := seq[q].Kind
		sameQueue := before.Transfer() == seq[p].Kind.Transfer() &&
			(!before.Transfer() || !duplex || before == seq[p].Kind)
		computeBeforeTransfer := seq[p].Kind.Transfer() && !before.Transfer()
		if sameQueue || computeBeforeTransfer || slices.Contains(steps[p].waits[:], int32(q)) {
			from = max(from, r.End[q])
		}
	}
	return from
}

// fittedAt returns an instant from which, for a while before to, at most bytes were in use; -1 when there is none.
func fittedAt(r *Result, from, to float64, bytes int64) float64 {
	for i, p := range r.Curve {
		end := to
		if i+1 < len(r.Curve) {
			end = min(to, r.Curve[i+1].Time)
		}
		if begin := max(from, p.Time); begin < end && p.Bytes <= bytes {
			return begin
		}
	}
	return -1
}

// TestCurveIsTheSumOfLifetimes recomputes the memory curve from starts and ends. Every op holds the bytes that it takes from its start, and
// at its end keeps the bytes that it leaves. An offloaded copy goes with the last of its holders.
func TestCurveIsTheSumOfLifetimes(t *testing.T) {
	t.Parallel()
	eachRandom(t, 1200, func(c *chain.Chain, seq Sequence, limits Limits, r *Result) {
		steps := resolve(t, c, seq)
		for _, instant := range r.Curve {
			want := c.InputBytes
			for p, st := range steps {
				if r.Start[p] <= instant.Time {
					want += st.takes
				}
				if r.End[p] <= instant.Time {
					want += st.leaves - st.takes
				}
				if seq[p].Kind == Offload && freed(steps, r, p) <= instant.Time {
					want -= st.bytes
				}
			}
			if got := lastAt(r.Curve, instant.Time); got != want {
				t.Fatalf("%s: %d bytes in use at %g, the ops hold %d", seq, got, instant.Time, want)
			}
		}
	})
}

// freed returns when the device copy of the offload at position p is free.
func freed(steps []step, r *Result, p int) float64 {
	at := r.End[p]
	for q, st := range steps {
		if slices.Contains(st.releases[:], int32(p)) {
			at = max(at, r.End[q])
		}
	}
	return at
}

// lastAt returns the bytes in use once everything that happens at an instant has happened.
func lastAt(curve []Point, time float64) (bytes int64) {
	for _, p := range curve {
		if p.Time <= time {
			bytes = p.Bytes
		}
	}
	return bytes
}

// TestPeakIsTheTopOfTheCurve also holds the curve under the limit and the peak at the op that is named.
func TestPeakIsTheTopOfTheCurve(t *testing.T) {
	t.Parallel()
	eachRandom(t, 800, func(c *chain.Chain, seq Sequence, limits Limits, r *Result) {
		top := slices.MaxFunc(r.Curve, func(a, b Point) int { return int(min(1, max(-1, a.Bytes-b.Bytes))) })
		if top.Bytes != r.Peak || r.Peak > limits.Memory {
			t.Fatalf("%s: peak %d, top of the curve %d, limit %d", seq, r.Peak, top.Bytes, limits.Memory)
		}
		if r.PeakOp >= 0 && r.Start[r.PeakOp] != top.Time || r.PeakOp < 0 && r.Peak != c.InputBytes {
			t.Fatalf("%s: the curve is highest at %g, the peak is laid to op %d", seq, top.Time, r.PeakOp)
		}
	})
}

// TestOwnPeakIsEnough: without transfers the unlimited peak is exactly the memory a sequence needs.
func TestOwnPeakIsEnough(t *testing.T) {
	t.Parallel()
	n := 0
	eachRandom(t, 1200, func(c *chain.Chain, seq Sequence, limits Limits, r *Result) {
		if hasTransfers(seq) {
			return
		}
		n++
		free, err := Simulate(c, seq, Limits{Memory: NoLimit})
		if err != nil {
			t.Fatal(err)
		}
		same, err := Simulate(c, seq, Limits{Memory: free.Peak})
		if err != nil || same.Makespan != free.Makespan || same.Peak != free.Peak || free.Idle != 0 {
			t.Fatalf("%s at its own peak %d: %v", seq, free.Peak, err)
		}
		if _, err := Simulate(c, seq, Limits{Memory: free.Peak - 1}); err == nil {
			t.Fatalf("%s also runs in one byte less than its peak %d", seq, free.Peak)
		}
	})
	if n < 100 {
		t.Fatalf("%d cases", n)
	}
}

// TestDuplexNeverSlower: with unlimited memory a second queue can only help, and does not matter to transfers in
// one direction.
func TestDuplexNeverSlower(t *testing.T) {
	t.Parallel()
	faster, oneWay := 0, 0
	eachRandom(t, 1200, func(c *chain.Chain, seq Sequence, limits Limits, _ *Result) {
		run := func(duplex bool) *Result {
			r, err := Simulate(c, seq, Limits{Memory: NoLimit, Link: Link{limits.Link.Bandwidth, duplex}})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		one, two := run(false), run(true)
		switch {
		case two.Makespan > one.Makespan:
			t.Fatalf("%s: %g s on a duplex link, %g s on a shared one", seq, two.Makespan, one.Makespan)
		case two.Makespan < one.Makespan:
			faster++
		}
		if !slices.ContainsFunc(seq, func(o Op) bool { return o.Kind == Prefetch }) {
			oneWay++
			if fmt.Sprint(*one) != fmt.Sprint(*two) {
				t.Fatalf("%s: offloads alone differ on a duplex link", seq)
			}
		}
	})
	if faster < 5 || oneWay < 100 {
		t.Fatalf("faster in %d cases, one way in %d", faster, oneWay)
	}
}

// TestSimulatorForgets: a simulator that is used again gives what a new one gives, and allocates nothing.
func TestSimulatorForgets(t *testing.T) {
	// Serial: it counts allocations.
	rng := rand.New(rand.NewPCG(5, 6))
	runs := 0
	for range 50 {
		c := randomChain(rng)
		s, err := NewSimulator(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			seq := randomSequence(rng, c, true)
			limits := randomLimits(rng, c, seq)
			again, err := s.Run(seq, limits)
			fresh, wantErr := Simulate(c, seq, limits)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("%s: %v, a new simulator says %v", seq, err, wantErr)
			}
			if err != nil {
				continue
			}
			runs++
			if fmt.Sprint(*again) != fmt.Sprint(*fresh) {
				t.Fatalf("%s: %v, a new simulator says %v", seq, *again, *fresh)
			}
			if allocs := testing.AllocsPerRun(1, func() { _, _ = s.Run(seq, limits) }); allocs != 0 {
				t.Fatalf("%s: %g allocations", seq, allocs)
			}
		}
	}
	if runs < 300 {
		t.Fatalf("%d runs", runs)
	}
}

// TestHostCopyIsNotOverwrittenWhileRead: on a duplex link the second O2 waits for the P2 that reads the host copy,
// although Fall1 has replaced what P2 brings long before.
func TestHostCopyIsNotOverwrittenWhileRead(t *testing.T) {
	t.Parallel()
	seq, err := Parse("Fck1 O2 Fck2 P2 Fall1 O2 P2 Fall2 B2 B1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(smallChain(), seq, Limits{Memory: NoLimit, Link: Link{Bandwidth: 0.1, Duplex: true}})
	if err != nil {
		t.Fatal(err)
	}
	if r.End[4] >= r.End[3] || r.Start[5] < r.End[3] || r.Start[6] < r.End[5] {
		t.Errorf("Fall1 ends at %g, P2 at %g, then O2 runs from %g to %g and P2 from %g",
			r.End[4], r.End[3], r.Start[5], r.End[5], r.Start[6])
	}
}
