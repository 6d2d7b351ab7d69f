package cycle

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/schedule"
)

// playRun plays a run of some steps, and what belongs to its last one behind it, by the definitions. It returns when everything has ended.
func playRun(k trial, s *Simulator, steps int) (end float64, near float64) {
	primed := false
	for _, op := range s.ledger.seq {
		primed = primed || op.Prime
	}
	all := steps
	if primed {
		all++
	}
	p := newSlow(k.Chain, s, k.limits().Memory, all)
	for i := range p.left {
		op := p.op(i)
		copies := op.Kind == schedule.FetchWeights || op.Kind == schedule.WriteWeights || op.Kind == schedule.FetchState || op.Kind == schedule.WriteState
		if i < p.n && op.Prime || i >= steps*p.n && !op.Prime && !copies {
			p.left[i] = 0
		}
	}
	p.play()
	for i := range p.end {
		if p.stream(i) >= 0 {
			end = max(end, p.end[i]) // NaN: it is stuck
		}
	}
	return end, p.near
}

// Runs of 1 to 8 steps take as long as a player of the definitions says.
func TestRunsAgainstDefinitions(t *testing.T) {
	t.Parallel()
	total := 500
	if testing.Short() {
		total = 120
	}
	rng := rand.New(rand.NewPCG(30, 6))
	compared, primed, exact, longer := 0, 0, 0, 0
	for range total {
		k := randomTrial(rng)
		if rng.IntN(3) == 0 {
			contend(rng, k.Chain)
		}
		seq, s, plain := k.play(t)
		if plain == nil || plain.InOrderPeak > k.limits().Memory {
			continue
		}
		r, err := NewRun(k.Chain, seq, k.link(), k.limits())
		if err != nil {
			t.Fatalf("%s: %v", k.Seq, err)
		}
		if r.First > r.Period*(1+1e-9) && r.Last > r.Period {
			longer++
		}
		for _, op := range seq {
			if op.Prime {
				primed++
				break
			}
		}
		for steps := 1; steps <= 8; steps++ {
			want, near := playRun(k, s, steps)
			if near < 1e-6 {
				continue
			}
			got, err := r.Seconds(steps)
			if err != nil || !(math.Abs(got-want) <= 1e-5*max(1, want)) {
				t.Fatalf("%s: %d steps take %v s (%v), by the definitions %v; %+v", k.Seq, steps, got, err, want, r)
			}
			if compared++; steps <= r.steady {
				exact++
			}
		}
	}
	t.Logf("%d runs, %d of which were played to their end; %d plans with primes; %d have long ends", compared, exact, primed, longer)
	if compared < total || exact < total/10 || primed < total/5 {
		t.Error("too few runs were compared")
	}
}

// Of plans that repeat after two steps, runs that end after the first of these are exact, too.
func TestRunsThatEndBetweenRepetitions(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		seed   uint64
		memory int64
	}{{105707, 34}, {175474, 19}} {
		k := randomTrial(rand.New(rand.NewPCG(1, x.seed)))
		k.Memory, k.Host = &x.memory, nil
		seq, s, _ := k.play(t)
		r, err := NewRun(k.Chain, seq, k.link(), k.limits())
		if err != nil || r.repeats != 2 {
			t.Fatalf("%s: %+v, %v", k.Seq, r, err)
		}
		for steps := max(r.steady, 1); steps <= r.steady+2*r.repeats+1; steps++ {
			want, near := playRun(k, s, steps)
			got, err := r.Seconds(steps)
			t.Logf("%d steps: %v s, by the definitions %v; %v", steps, got, want, near)
			if err != nil || !(math.Abs(got-want) <= 1e-5*max(1, want)) {
				t.Errorf("%s: %d steps take %v s (%v), by the definitions %v; %+v", k.Seq, steps, got, err, want, r)
			}
		}
	}
}
