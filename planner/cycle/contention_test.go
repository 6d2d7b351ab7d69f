package cycle

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// slow plays steps of a contended plan by the definitions alone: at every instant everything is asked again. The ledger, which the oracle
// judges, gives the waits of an op and the memory that it takes and frees.
type slow struct {
	c      *chain.Chain
	link   Link
	limit  int64
	l      *ledger
	n      int // ops of a step
	now    float64
	begin  []float64 // by instance; NaN: not yet
	end    []float64
	left   []float64 // seconds alone
	near   float64   // the least time between two instants that differ
	slowed int
}

func playSlowly(c *chain.Chain, s *Simulator, limit int64, steps int) *slow {
	p := newSlow(c, s, limit, steps)
	p.play()
	return p
}

// newSlow prepares the player of some steps.
func newSlow(c *chain.Chain, s *Simulator, limit int64, steps int) *slow {
	p := &slow{c: c, link: s.link, limit: limit, l: &s.ledger, n: len(s.ledger.seq), near: math.Inf(1)}
	for range steps * p.n {
		p.begin, p.end, p.left = append(p.begin, math.NaN()), append(p.end, math.NaN()), append(p.left, 0)
	}
	for i := range p.left {
		p.left[i] = s.costs.clock.seconds(p.l.tasks[i%p.n].ticks)
	}
	return p
}

func (p *slow) op(i int) Op { return p.l.seq[i%p.n] }

func (p *slow) stream(i int) int {
	s, runs := StreamOf(p.op(i).Kind)
	switch {
	case !runs:
		return -1
	case s == ToHost && !p.link.Duplex:
		return int(ToDevice)
	}
	return int(s)
}

func (p *slow) begun(i int) bool { return !math.IsNaN(p.begin[i]) }
func (p *slow) ended(i int) bool { return !math.IsNaN(p.end[i]) }

// over reports whether an op that a task of a step names has ended.
func (p *slow) over(step int, r ref) bool {
	i := (step-1)*p.n + int(r)
	return r == none || i < 0 || p.ended(i)
}

func (p *slow) used() int64 {
	sum, _ := p.l.residentBytes()
	for i := range p.begin {
		t := &p.l.tasks[i%p.n]
		if p.begun(i) {
			sum += t.takes
		}
		if p.ended(i) {
			sum += t.leaves
		}
	}
	for step := range len(p.begin) / p.n {
		for _, f := range p.l.frees {
			if p.over(step, f.holds[0]) && p.over(step, f.holds[1]) && p.over(step, f.holds[2]) {
				sum -= f.bytes
			}
		}
	}
	return sum
}

func (p *slow) may(i int) bool {
	if p.stream(i) < 0 || p.begun(i) {
		return false
	}
	for k := range i {
		if s := p.stream(k); s >= 0 && !p.ended(k) && (s == p.stream(i) || s == int(Compute)) {
			return false
		}
	}
	t := &p.l.tasks[i%p.n]
	for _, r := range p.l.waits[t.waits:t.waitsEnd] {
		if !p.over(i/p.n, r) {
			return false
		}
	}
	return t.takes == 0 || p.used()+t.takes <= p.limit
}

func (p *slow) running() (all []int) {
	for i := range p.begin {
		if p.begun(i) && !p.ended(i) {
			all = append(all, i)
		}
	}
	return all
}

func (p *slow) play() {
	const instant = 1e-9
	for {
		for again := true; again; {
			again = false
			for _, i := range p.running() {
				if p.left[i] < instant {
					p.end[i], again = p.now, true
				}
			}
			for i := range p.begin {
				if p.may(i) {
					p.begin[i], again = p.now, true
					break
				}
			}
		}
		all := p.running()
		if len(all) == 0 {
			return
		}
		next := math.Inf(1)
		for _, i := range all {
			next = min(next, p.left[i]*p.slower(i, all))
		}
		for _, i := range all {
			f := p.slower(i, all)
			if d := p.left[i]*f - next; d > instant {
				p.near = min(p.near, d)
			}
			if f > 1 {
				p.slowed++
			}
			p.left[i] -= next / f
		}
		p.now += next
	}
}

// slower is the definition of what an op loses to all that runs.
func (p *slow) slower(i int, all []int) float64 {
	var op, host, down, up bool
	for _, k := range all {
		if k != i {
			kind := p.op(k).Kind
			op = op || p.stream(k) == int(Compute)
			host = host || kind == schedule.HostUpdate
			copies := p.stream(k) == int(ToDevice) || p.stream(k) == int(ToHost)
			down, up = down || copies && way(kind) == chain.ToHost, up || copies && way(kind) == chain.ToDevice
		}
	}
	beside := func(b *chain.Beside) float64 {
		switch bandwidth := [...]float64{p.link.ToHost, p.link.ToDevice, max(p.link.ToHost, p.link.ToDevice)}; {
		case b == nil:
			return 1
		case down && up:
			return p.share(b[2], bandwidth[2])
		case down:
			return p.share(b[0], bandwidth[0])
		case up:
			return p.share(b[1], bandwidth[1])
		}
		return 1
	}
	times := func(runs bool, f *float64) float64 {
		if runs && f != nil {
			return *f
		}
		return 1
	}
	layer := p.c.Layer(p.op(i).Layer)
	switch kind := p.op(i).Kind; kind {
	case schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.ForwardDiscard:
		return beside(layer.ForwardBeside) - 1 + times(host, p.c.OpsBesideHostUpdates)
	case schedule.Backward:
		return beside(layer.BackwardBeside) - 1 + times(host, p.c.OpsBesideHostUpdates)
	case schedule.Update:
		return beside(p.c.Beside()) - 1 + times(host, p.c.OpsBesideHostUpdates)
	case schedule.HostUpdate:
		return beside(p.c.HostUpdatesBeside) - 1 + times(op, p.c.HostUpdatesBesideOps)
	default:
		f := 1.0
		if b := p.c.CopiesBeside; b != nil && op {
			f += b[way(kind)] - 1
		}
		if b := p.c.CopiesBesideHostUpdates; b != nil && host {
			f += b[way(kind)] - 1
		}
		bandwidth := [...]float64{p.link.ToHost, p.link.ToDevice}[way(kind)]
		return max(1, f*min(1, bandwidth/p.c.Bandwidth))
	}
}

// share slows an op for the part of its time for which a copy over a slower link has what both want.
func (p *slow) share(times, bandwidth float64) float64 {
	part := min(1, bandwidth/p.c.Bandwidth)
	return 1 / (part/times + 1 - part)
}

// contend gives a chain factors; some are missing.
func contend(rng *rand.Rand, c *chain.Chain) {
	factor := func() float64 { return 1 + float64(rng.IntN(3))*rng.Float64() }
	beside := func() *chain.Beside {
		if rng.IntN(5) == 0 {
			return nil
		}
		return &chain.Beside{factor(), factor(), factor()}
	}
	c.Bandwidth = float64(1 + rng.IntN(4))
	c.HostUpdatesBeside = beside()
	for _, f := range []**float64{&c.OpsBesideHostUpdates, &c.HostUpdatesBesideOps} {
		if x := factor(); rng.IntN(5) > 0 {
			*f = &x
		}
	}
	for _, f := range []**chain.CopiesBeside{&c.CopiesBeside, &c.CopiesBesideHostUpdates} {
		if rng.IntN(5) > 0 {
			*f = &chain.CopiesBeside{factor(), factor()}
		}
	}
	for i := range c.Layers {
		c.Layers[i].ForwardBeside, c.Layers[i].BackwardBeside = beside(), beside()
	}
}

// Random plans of chains with random contention start, end and take bytes as a player of the definitions says, and their period is the mean
// of later steps.
func TestContentionAgainstDefinitions(t *testing.T) {
	t.Parallel()
	total := 600
	if testing.Short() {
		total = 120
	}
	rng := rand.New(rand.NewPCG(30, 1))
	compared, slowed, tied, periods := 0, 0, 0, 0
	for range total {
		k := randomTrial(rng)
		contend(rng, k.Chain)
		_, s, r := k.play(t)
		if r == nil {
			continue
		}
		const steps = 12
		p := playSlowly(k.Chain, s, k.limits().Memory, steps)
		if p.near < 1e-6 {
			tied++
			continue
		}
		compared++
		if p.slowed > 0 {
			slowed++
		}
		if !wantStarts(t, k, r, p) {
			return
		}
		first := func(step int) float64 {
			for i := step * p.n; i < len(p.begin); i++ {
				if p.stream(i) == int(Compute) {
					return p.begin[i]
				}
			}
			return math.NaN()
		}
		if later := r.WarmUp + r.Repeats; later < steps {
			periods++
			if mean := (first(later) - first(r.WarmUp)) / float64(r.Repeats); math.Abs(mean-r.Period) > 1e-4*mean {
				t.Fatalf("%s: period %g, the mean of steps is %g", k.Seq, r.Period, mean)
			}
		}
		if mean := first(steps-1) - first(steps-2); r.Repeats == 1 && r.WarmUp < steps-2 && math.Abs(mean-r.Period) > 1e-4*mean {
			t.Fatalf("%s: period %g, and a later step takes %g", k.Seq, r.Period, mean)
		}
	}
	t.Logf("%d plans, %d with something slowed, %d periods; %d with ties left out", compared, slowed, periods, tied)
	if compared < total/4 || slowed < total/8 || periods < total/4 || tied > compared/4 {
		t.Error("too few plans were compared")
	}
}

// wantStarts compares what both players started and ended.
func wantStarts(t *testing.T, k trial, r *Result, p *slow) bool {
	t.Helper()
	for _, x := range r.Starts {
		i := x.Step*p.n + x.Position
		if i >= len(p.begin) || !p.begun(i) {
			continue
		}
		if math.Abs(x.Start-p.begin[i]) > 1e-5 || p.ended(i) && x.End < r.Starts[len(r.Starts)-1].Start && math.Abs(x.End-p.end[i]) > 1e-5 {
			t.Errorf("%s: %v of step %d runs from %g to %g, by the definitions from %g to %g; %+v", k.Seq, p.op(i), x.Step, x.Start, x.End,
				p.begin[i], p.end[i], k)
			return false
		}
	}
	return true
}
