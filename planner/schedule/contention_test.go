package schedule

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
)

// slow is an oracle of contended simulation: fractions in place of floats, and at every instant everything is asked again from the
// definition. An op has its waits and the memory that it takes from resolve.
type slow struct {
	c          *chain.Chain
	seq        Sequence
	limits     Limits
	steps      []step
	now        *big.Rat
	left       []*big.Rat // seconds alone, from now on
	start, end []*big.Rat // nil: not yet
	closest    float64    // of two instants that differ
	changes    int
}

func newSlow(t *testing.T, c *chain.Chain, seq Sequence, limits Limits) *slow {
	s := &slow{c: c, seq: seq, limits: limits, steps: resolve(t, c, seq), now: new(big.Rat), closest: math.Inf(1)}
	s.start, s.end = make([]*big.Rat, len(seq)), make([]*big.Rat, len(seq))
	for p, st := range s.steps {
		x := rational(st.seconds)
		if seq[p].Kind.Transfer() {
			x.Quo(rational(float64(st.bytes)), rational(limits.Link.Bandwidth))
		}
		s.left = append(s.left, x)
	}
	return s
}

func rational(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }

func (s *slow) queue(p int) int {
	switch k := s.seq[p].Kind; {
	case !k.Transfer():
		return 0
	case s.limits.Link.Duplex && k == Prefetch:
		return 2
	}
	return 1
}

// runs lists what runs, by position.
func (s *slow) runs() (all []int) {
	for p := range s.seq {
		if s.start[p] != nil && s.end[p] == nil {
			all = append(all, p)
		}
	}
	return all
}

// used adds up the memory in use, from a_0 on.
func (s *slow) used() int64 {
	sum := s.c.InputBytes
	for p, st := range s.steps {
		if s.start[p] != nil {
			sum += st.takes
		}
		if s.end[p] != nil {
			sum += st.leaves - st.takes
		}
		if s.seq[p].Kind == Offload && s.gone(p) {
			sum -= st.bytes
		}
	}
	return sum
}

// gone reports whether an offload and all that read what it moves have ended.
func (s *slow) gone(offload int) bool {
	for p, st := range s.steps {
		if (p == offload || slices.Contains(st.releases[:], int32(offload))) && s.end[p] == nil {
			return false
		}
	}
	return true
}

func (s *slow) may(p int) bool {
	if s.start[p] != nil {
		return false
	}
	for q := range p {
		if s.end[q] == nil && (s.queue(q) == s.queue(p) || s.queue(q) == 0) {
			return false
		}
	}
	for _, w := range s.steps[p].waits {
		if w != none && s.end[w] == nil {
			return false
		}
	}
	return s.used()+s.steps[p].takes <= s.limits.Memory
}

// share is the part of its time for which a copy over a link that is slower than the measured one has what it shares with ops.
func (s *slow) share() float64 {
	if s.limits.Link.Bandwidth >= s.c.Bandwidth {
		return 1
	}
	return s.limits.Link.Bandwidth / s.c.Bandwidth
}

// slower returns the slowdown of an op or a copy by the definition. The running copies slow an op for as long as they have the resource
// that they share with it. A running op slows a copy only by the time beyond the share that the link leaves unused.
func (s *slow) slower(p int) float64 {
	times, share := s.slowerMeasured(p), s.share()
	switch {
	case share == 1:
		return times
	case s.seq[p].Kind.Transfer():
		return math.Max(times*share, 1)
	}
	return 1 / (share/times + 1 - share)
}

// slowerMeasured is that over the link that was measured.
func (s *slow) slowerMeasured(p int) float64 {
	var computes, toHost, toDevice bool
	for _, q := range s.runs() {
		computes = computes || !s.seq[q].Kind.Transfer()
		toHost = toHost || s.seq[q].Kind == Offload
		toDevice = toDevice || s.seq[q].Kind == Prefetch
	}
	layer := s.c.Layer(s.seq[p].Layer)
	beside := layer.ForwardBeside
	switch kind := s.seq[p].Kind; {
	case kind.Transfer() && (!computes || s.c.CopiesBeside == nil):
		return 1
	case kind == Offload:
		return s.c.CopiesBeside[0]
	case kind == Prefetch:
		return s.c.CopiesBeside[1]
	case kind == Backward:
		beside = layer.BackwardBeside
	}
	switch {
	case beside == nil || !toHost && !toDevice:
		return 1
	case toHost && toDevice:
		return beside[2]
	case toHost:
		return beside[0]
	}
	return beside[1]
}

// run plays the sequence; false when it waits for ever.
func (s *slow) run() bool {
	for {
		for _, p := range s.runs() {
			if s.left[p].Sign() == 0 {
				s.end[p] = new(big.Rat).Set(s.now)
			}
		}
		for p := 0; p < len(s.seq); p++ {
			if s.may(p) {
				s.start[p] = new(big.Rat).Set(s.now)
				p = -1 // from the beginning
			}
		}
		running := s.runs()
		if len(running) == 0 {
			return !slices.Contains(s.start, nil)
		}
		s.pass(running)
	}
}

// pass lets the time pass until the first of what runs ends.
func (s *slow) pass(running []int) {
	var next *big.Rat
	var ends []*big.Rat
	for _, p := range running {
		x := new(big.Rat).Mul(s.left[p], rational(s.slower(p)))
		if ends = append(ends, x); next == nil || x.Cmp(next) < 0 {
			next = x
		}
		if s.slower(p) > 1 {
			s.changes++
		}
	}
	for _, x := range ends {
		if d, _ := new(big.Rat).Sub(x, next).Float64(); d > 0 {
			s.closest = min(s.closest, d)
		}
	}
	for _, p := range running {
		done := new(big.Rat).Quo(next, rational(s.slower(p)))
		s.left[p] = new(big.Rat).Sub(s.left[p], done)
	}
	s.now = new(big.Rat).Add(s.now, next)
}

// contended gives a chain factors: powers of two, with which floats are exact and ties frequent, or any, with times that leave no ties.
func contended(rng *rand.Rand, c *chain.Chain, exact bool) {
	factor := func() float64 { return []float64{1, 1, 2, 4}[rng.IntN(4)] }
	if !exact {
		factor = func() float64 { return 1 + float64(rng.IntN(2))*2*rng.Float64() }
	}
	beside := func() *chain.Beside {
		if rng.IntN(6) == 0 {
			return nil
		}
		return &chain.Beside{factor(), factor(), factor()}
	}
	if rng.IntN(4) > 0 {
		c.CopiesBeside = &chain.CopiesBeside{factor(), factor()}
	}
	for i := range c.Layers {
		l := &c.Layers[i]
		l.ForwardBeside, l.BackwardBeside = beside(), beside()
		if !exact {
			l.ForwardS, l.BackwardS = 5*rng.Float64(), 5*rng.Float64()
		} else {
			l.ForwardS, l.BackwardS = math.Round(l.ForwardS), math.Round(l.BackwardS)
		}
	}
}

// TestContentionAgainstFractions: random sequences, links and limits, valid or stuck, with random factors, have every start and end of the
// oracle. Where factors are powers of two, the times are equal to the bit.
func TestContentionAgainstFractions(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(18, 1))
	total := 6000
	if testing.Short() {
		total = 1500
	}
	count := map[string]int{}
	for range total {
		c := randomChain(rng)
		exact := rng.IntN(2) == 0
		contended(rng, c, exact)
		seq := randomSequence(rng, c, true)
		limits := randomLimits(rng, c, seq)
		limits.Link.Duplex = rng.IntN(2) == 0
		if exact {
			limits.Link.Bandwidth = c.Bandwidth * []float64{0.25, 0.5, 1, 2}[rng.IntN(4)]
			c.Bandwidth = min(c.Bandwidth, limits.Link.Bandwidth) // else factors are no powers of two
		}
		if Verify(c, seq) != nil || len(seq) > 60 || limits.Link.Bandwidth == 0 || limits.Memory < c.InputBytes {
			continue
		}
		r, err := Simulate(c, seq, limits)
		s := newSlow(t, c, seq, limits)
		ran := s.run()
		count[s.compare(t, r, err, ran, exact)]++
		if s.changes > 0 {
			count["slower"]++
			if s.share() < 1 {
				count["slower link"]++
			}
		}
	}
	t.Log(count)
	for kind, least := range map[string]int{"exact": total / 8, "near": total / 8, "stuck": total / 50, "slower": total / 8, "slower link": total / 80} {
		if count[kind] < least {
			t.Errorf("%d cases %q, want at least %d", count[kind], kind, least)
		}
	}
}

// compare holds a simulation against the oracle.
func (s *slow) compare(t *testing.T, r *Result, err error, ran, exact bool) string {
	t.Helper()
	if s.closest < 1e-9 && !exact {
		return "too close"
	}
	if ran != (err == nil) {
		t.Fatalf("%s: simulated %v, the oracle ran: %v", s.seq, err, ran)
	}
	if !ran {
		return "stuck"
	}
	busy, makespan := 0.0, 0.0
	for p := range s.seq {
		from, _ := s.start[p].Float64()
		to, _ := s.end[p].Float64()
		if exact && (r.Start[p] != from || r.End[p] != to) || !near(r.Start[p], from) || !near(r.End[p], to) {
			t.Fatalf("%s: op %d from %g to %g, the oracle says %g to %g", s.seq, p, r.Start[p], r.End[p], from, to)
		}
		if !s.seq[p].Kind.Transfer() {
			busy += to - from
			makespan = to
		}
	}
	if !near(r.Makespan, makespan) || !near(r.Idle, makespan-busy) {
		t.Fatalf("%s: makespan %g, idle %g, the oracle says %g and %g", s.seq, r.Makespan, r.Idle, makespan, makespan-busy)
	}
	if exact {
		return "exact"
	}
	return "near"
}

// A transfer that never ends is said to be one, whatever slows it.
func TestContentionOfEndlessTransfers(t *testing.T) {
	t.Parallel()
	c := smallChain()
	for i := range c.Layers {
		c.Layers[i].ForwardBeside, c.Layers[i].BackwardBeside = &chain.Beside{2, 3, 4}, &chain.Beside{2, 3, 4}
	}
	c.CopiesBeside = &chain.CopiesBeside{1.5, 2}
	seq, err := Parse("O1 Fall1 Fall2 B2 P1 B1")
	if err != nil {
		t.Fatal(err)
	}
	for _, duplex := range []bool{false, true} {
		if _, err := Simulate(c, seq, Limits{Memory: NoLimit, Link: Link{5e-324, duplex}}); !errors.Is(err, ErrEndless) {
			t.Errorf("duplex %v: %v", duplex, err)
		}
	}
}

// TestContentionOfOneIsNone: with factors of 1, and in sequences without transfers whatever the factors, results are to the bit what
// they are without.
func TestContentionOfOneIsNone(t *testing.T) {
	t.Parallel()
	with, without := 0, 0
	eachRandom(t, 1200, func(c *chain.Chain, seq Sequence, limits Limits, r *Result) {
		factors := chain.Beside{1, 1, 1}
		if without++; hasTransfers(seq) {
			with, without = with+1, without-1
		} else {
			factors = chain.Beside{2, 3, 5}
		}
		for i := range c.Layers {
			c.Layers[i].ForwardBeside, c.Layers[i].BackwardBeside = &factors, &factors
		}
		c.CopiesBeside = &chain.CopiesBeside{1, 1}
		same, err := Simulate(c, seq, limits)
		if err != nil || same.Makespan != r.Makespan || same.Idle != r.Idle || same.Peak != r.Peak ||
			!slices.Equal(same.Start, r.Start) || !slices.Equal(same.End, r.End) || !slices.Equal(same.Order, r.Order) || !slices.Equal(same.Curve, r.Curve) {
			t.Fatalf("%s: %+v (%v), before %+v", seq, same, err, r)
		}
	})
	if with < 50 || without < 50 {
		t.Errorf("%d cases with transfers, %d without", with, without)
	}
}
