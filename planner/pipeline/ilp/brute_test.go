package ilp

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// brute finds the smallest whole period of any allocation to two devices and any whole start times: with communications, and
// gradients larger than activations, which the vectors do not have. It shares no code with the package.
type brute struct {
	c      *chain.Chain
	memory int64
	beta   int64
	on     []int
	steps  []bruteStep
	at     []int
}

// bruteStep is a task (layer > 0) or a communication, on a resource: device 0 or 1, or link 2.
type bruteStep struct{ layer, resource, length int }

// best returns the smallest period; 0 when nothing fits.
func (b *brute) best() int {
	n := b.c.Len()
	total := 0
	for l := 1; l <= n; l++ {
		total += int(b.c.Layer(l).ForwardS+b.c.Layer(l).BackwardS) + int((b.c.Activation(l)+b.c.Gradient(l))/b.beta)
	}
	alone := false // one minibatch at a time fits on some allocation
	for set := range 1 << (n - 1) {
		b.allocate(set)
		now := 0
		for i, s := range b.steps {
			b.at[i], now = now, now+s.length
		}
		alone = alone || b.fits(total)
	}
	for period := 1; alone && period <= total; period++ {
		for set := range 1 << (n - 1) {
			if b.allocate(set); b.load() <= period && b.place(0, period) {
				return period
			}
		}
	}
	return 0
}

// allocate puts layer 1 on device 0 and the others where a set of bits says.
func (b *brute) allocate(set int) {
	b.on = []int{0, 0}
	for l := 2; l <= b.c.Len(); l++ {
		b.on = append(b.on, set>>(l-2)&1)
	}
	b.path()
	b.at = make([]int, len(b.steps))
}

// load returns how long the busiest resource works in a period.
func (b *brute) load() int {
	var sum [3]int
	for _, s := range b.steps {
		sum[s.resource] += s.length
	}
	return slices.Max(sum[:])
}

// path lists what a minibatch passes.
func (b *brute) path() {
	b.steps = nil
	n := b.c.Len()
	for l := 1; l <= n; l++ {
		b.steps = append(b.steps, bruteStep{l, b.on[l], int(b.c.Layer(l).ForwardS)})
		if length := int(b.c.Activation(l) / b.beta); l < n && b.on[l] != b.on[l+1] && length > 0 {
			b.steps = append(b.steps, bruteStep{0, 2, length})
		}
	}
	for l := n; l >= 1; l-- {
		b.steps = append(b.steps, bruteStep{l, b.on[l], int(b.c.Layer(l).BackwardS)})
		if l > 1 {
			if length := int(b.c.Gradient(l-1) / b.beta); b.on[l] != b.on[l-1] && length > 0 {
				b.steps = append(b.steps, bruteStep{0, 2, length})
			}
		}
	}
}

// place tries all start times of the steps from i on.
func (b *brute) place(i, period int) bool {
	if i == len(b.steps) {
		return b.fits(period)
	}
	if b.steps[i].length > period {
		return false
	}
	for at := range period {
		if i == 0 && at > 0 {
			return false
		}
		if b.at[i] = at; b.free(i, period) && b.place(i+1, period) {
			return true
		}
	}
	return false
}

// free reports whether step i meets none before it on its resource.
func (b *brute) free(i, period int) bool {
	for j := range i {
		if b.steps[j].resource != b.steps[i].resource {
			continue
		}
		after, before := ((b.at[i]-b.at[j])%period+period)%period, ((b.at[j]-b.at[i])%period+period)%period
		if after < b.steps[j].length || before < b.steps[i].length {
			return false
		}
	}
	return true
}

// fits counts the bytes of both devices at every instant of a period.
func (b *brute) fits(period int) bool {
	n := b.c.Len()
	begin, end := make([]int, 2*n+1), make([]int, 2*n+1) // of F_l at l, of B_l at n+l
	now, tasks := 0, 0
	for i, s := range b.steps {
		start := b.at[i]
		for start < now {
			start += period
		}
		now = start + s.length
		if s.layer > 0 {
			at := s.layer
			if tasks >= n {
				at += n
			}
			begin[at], end[at] = start, now
			tasks++
		}
	}
	for d := range 2 {
		static := int64(0)
		for l := 1; l <= n; l++ {
			if b.on[l] == d {
				static += 3 * b.c.Layer(l).WeightBytes
			}
			if l < n && b.on[l] != b.on[l+1] {
				static += b.c.Activation(l) + b.c.Gradient(l)
			}
		}
		for t := range period {
			sum := static
			hold := func(from, to int, bytes int64) {
				for x := t - 20*period; x <= t+20*period; x += period {
					if from <= x && x < to {
						sum += bytes
					}
				}
			}
			for l := 1; l <= n; l++ {
				if b.on[l] != d {
					continue
				}
				hold(begin[l], end[n+l], b.c.Activation(l-1))
				if l < n && b.on[l+1] == d {
					hold(end[l], begin[l+1], b.c.Activation(l))
					hold(end[n+l+1], begin[n+l], b.c.Gradient(l))
				}
			}
			if sum > b.memory {
				return false
			}
		}
	}
	return true
}

func TestILPAgainstBruteForce(t *testing.T) {
	t.Parallel()
	need(t)
	count := 120
	if testing.Short() {
		count = 40
	}
	rng := rand.New(rand.NewPCG(6, 6))
	var cases []pipelinetest.Case
	refused, shared, bound := 0, 0, 0
	for range count {
		c := &chain.Chain{Name: "brute", InputBytes: 2 * rng.Int64N(3)}
		n := 2 + max(0, rng.IntN(4)-2)
		quiet := 1 + rng.IntN(n) // the boundary that sends nothing: it would take too long
		for l := 1; l <= n; l++ {
			layer := chain.Layer{Name: "layer", ForwardS: 1, BackwardS: float64(1 + rng.IntN(2)), WeightBytes: rng.Int64N(3)}
			if l != quiet {
				layer.OutputBytes, layer.GradientBytes = 2, 2*rng.Int64N(3)
			}
			layer.SavedBytes = layer.OutputBytes
			c.Layers = append(c.Layers, layer)
		}
		b := &brute{c: c, memory: 8 + rng.Int64N(16), beta: 2}
		want := float64(b.best())
		r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(2, b.memory, float64(b.beta))}
		plan, err := solve(context.Background(), r)
		if want == 0 {
			if !errors.Is(err, pipeline.ErrInfeasible) {
				t.Errorf("%+v with %d bytes: %v, %v; nothing fits", c, b.memory, plan, err)
			}
			refused++
			continue
		}
		if err != nil || plan.Period > want*(1+1e-9) || plan.Period <= want-1 {
			t.Errorf("%+v with %d bytes: %v, %v; want %v", c, b.memory, plan, err, want)
			continue
		}
		if best, err := with(t, "contiguous", r); err != nil || plan.Period < best.Period*(1-1e-9) {
			shared++
		}
		if plan.Period > searchOf(t, r).fastest()*(1+1e-9) {
			bound++
		}
		cases = append(cases, pipelinetest.Case{Chain: c, Platform: r.Platform, Plan: plan})
	}
	if len(cases)+refused != count || refused < count/20 || bound < count/4 || shared == 0 {
		t.Fatalf("%d plans, %d refused, %d bound by more than loads, %d better than contiguous", len(cases), refused, bound, shared)
	}
	t.Logf("%d plans, %d refused, %d bound by more than loads, %d better than contiguous", len(cases), refused, bound, shared)
	pipelinetest.Accept(t, cases)
}
