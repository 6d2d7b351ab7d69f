package remat

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
)

// state is the memory of an exhaustive search: which gradient is stored, and what of every activation.
type state struct {
	gradient int
	holds    [8]content
}

type content uint8

const (
	nothing content = iota
	plain
	whole // ā_i
	kept  // a_i that has been an input of F^ck or F^all and may leave by its backward only
)

// search finds the fastest sequence of a small chain among all that keep a property, by Dijkstra's algorithm over
// states. It shares nothing with the dynamic programs and knows none of their structure.
type search struct {
	c        *chain.Chain
	memory   int64
	floating bool // R.1': F_i only while nothing of index i or more is stored; else R.1: kept activations stay
	general  bool // neither: every op that the rules allow, of use or not
	queue    stateQueue
	best     map[state]float64
}

type entry struct {
	state
	seconds float64
}

type stateQueue []entry

func (q stateQueue) Len() int           { return len(q) }
func (q stateQueue) Less(i, j int) bool { return q[i].seconds < q[j].seconds }
func (q stateQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *stateQueue) Push(x any)        { *q = append(*q, x.(entry)) }
func (q *stateQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// bruteForce returns the optimum, nil when nothing fits.
func bruteForce(c *chain.Chain, memory int64, floating bool) *float64 {
	s := &search{c: c, memory: memory, floating: floating, best: map[state]float64{}}
	return s.run()
}

func (s *search) run() *float64 {
	if s.c.InputBytes > s.memory {
		return nil
	}
	s.offer(state{s.c.Len(), [8]content{plain}}, 0)
	for s.queue.Len() > 0 {
		now := heap.Pop(&s.queue).(entry)
		if now.gradient == 0 {
			return &now.seconds
		}
		if now.seconds == s.best[now.state] {
			s.expand(now)
		}
	}
	return nil
}

func (s *search) offer(to state, seconds float64) {
	if old, ok := s.best[to]; !ok || seconds < old {
		s.best[to] = seconds
		heap.Push(&s.queue, entry{to, seconds})
	}
}

func (s *search) used(now state) int64 {
	sum := s.c.Gradient(now.gradient)
	for i := 0; i <= s.c.Len(); i++ {
		switch now.holds[i] {
		case whole:
			sum += s.c.Saved(i)
		case plain, kept:
			sum += s.c.Activation(i)
		}
	}
	return sum
}

func (s *search) expand(now entry) {
	used := s.used(now.state)
	for l := 1; l <= s.c.Len() && s.general; l++ {
		s.legal(now, l, s.memory-used)
	}
	for l := 1; l <= now.gradient && !s.general; l++ {
		if now.holds[l-1] != nothing && now.holds[l] == nothing && (!s.floating || !s.above(now.state, l)) {
			s.forwards(now, l, s.memory-used)
		}
	}
	g := now.gradient
	layer := s.c.Layer(g)
	if now.holds[g] == whole && now.holds[g-1] != nothing && used+s.c.Gradient(g-1)+layer.BackwardOverheadBytes <= s.memory {
		to := now.state
		to.gradient, to.holds[g] = g-1, nothing
		if to.holds[g-1] != whole {
			to.holds[g-1] = nothing
		}
		s.offer(to, now.seconds+layer.BackwardS)
	}
}

func (s *search) above(now state, l int) bool {
	for i := l; i <= s.c.Len(); i++ {
		if now.holds[i] != nothing {
			return true
		}
	}
	return false
}

// forwards tries the three forwards of a layer whose input is stored.
func (s *search) forwards(now entry, l int, room int64) {
	layer := s.c.Layer(l)
	keep := now.state
	if !s.floating && keep.holds[l-1] == plain {
		keep.holds[l-1] = kept
	}
	if layer.SavedBytes+layer.ForwardOverheadBytes <= room {
		to := keep
		to.holds[l] = whole
		s.offer(to, now.seconds+layer.ForwardS)
	}
	if layer.OutputBytes+layer.DiscardOverhead() > room {
		return
	}
	to := keep
	to.holds[l] = plain
	s.offer(to, now.seconds+layer.DiscardSeconds())
	if now.holds[l-1] == plain {
		to = now.state
		to.holds[l-1], to.holds[l] = nothing, plain
		s.offer(to, now.seconds+layer.DiscardSeconds())
	}
}

// legal tries the three forwards of a layer, also above the gradient and of what is stored already, which drops the result.
func (s *search) legal(now entry, l int, room int64) {
	layer, in := s.c.Layer(l), now.holds[l-1]
	if in != nothing && layer.SavedBytes+layer.ForwardOverheadBytes <= room {
		to := now.state
		to.holds[l] = whole
		s.offer(to, now.seconds+layer.ForwardS)
	}
	if in == nothing || layer.OutputBytes+layer.DiscardOverhead() > room {
		return
	}
	to := now.state
	if to.holds[l] == nothing {
		to.holds[l] = plain
	}
	s.offer(to, now.seconds+layer.DiscardSeconds())
	if in == plain {
		to.holds[l-1] = nothing
		s.offer(to, now.seconds+layer.DiscardSeconds())
	}
}

// randomChain makes a small chain with whole seconds. Gradients are no larger than outputs, as Theorem 6 needs to be
// optimal among all sequences with R.1; sizes may be 0.
func randomChain(rng *rand.Rand, n int, separate bool) *chain.Chain {
	size := func(below int64) int64 { return rng.Int64N(below) }
	c := &chain.Chain{Name: "random", InputBytes: size(9)}
	overheads := size(3) * 12
	for range n {
		out := size(9)
		layer := chain.Layer{
			ForwardS: float64(size(10)), BackwardS: float64(size(10)),
			OutputBytes: out, SavedBytes: out + size(9), GradientBytes: out - size(1+out/2),
			ForwardOverheadBytes: size(1 + overheads), BackwardOverheadBytes: size(1 + overheads),
		}
		if separate {
			seconds, overhead := size(10), size(1+2*overheads)
			f := float64(seconds)
			layer.DiscardForwardS, layer.DiscardOverheadBytes = &f, &overhead
		}
		c.Layers = append(c.Layers, layer)
	}
	return c
}

// The exact programs against the exhaustive search, at every limit from nothing to the store-all peak: the makespans
// are equal, and where one is infeasible so is the other. Half the chains have separate costs of forwards that save nothing.
func TestExactIsOptimal(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	feasible, infeasible, beaten := 0, 0, 0
	for i := range 300 {
		c := randomChain(rng, 1+rng.IntN(5), i%2 == 1)
		exact, floating := frontiers(t, c)
		for memory := int64(0); memory <= storeAllPeak(t, c); memory++ {
			for _, f := range []*Frontier{exact, floating} {
				want := bruteForce(c, memory, f == floating)
				got, err := f.makespan(memory)
				if want == nil != (err != nil) || want != nil && *want != got {
					t.Fatalf("chain %d, %s at %d: %v (%v), want %v: %+v", i, f.strategy, memory, got, err, show(want), c)
				}
				if want == nil {
					infeasible++
				} else {
					feasible++
				}
			}
		}
		for _, f := range []*Frontier{exact, floating} {
			for _, s := range f.Breakpoints() {
				best, err := floating.makespan(s.Memory)
				if err != nil || best > s.Makespan {
					t.Fatalf("chain %d: floating is worse than %s at %v: %v (%v)", i, f.strategy, s, best, err)
				}
				if best < s.Makespan {
					beaten++
				}
				(&judge{t: t}).expectStep(f, c, s)
			}
		}
	}
	t.Logf("%d feasible limits, %d infeasible; floating beats persistent at %d steps", feasible, infeasible, beaten)
	if feasible < 5000 || infeasible < 5000 || beaten < 5 {
		t.Errorf("only %d feasible and %d infeasible limits, %d steps at which floating beats persistent", feasible, infeasible, beaten)
	}
}

func frontiers(t testing.TB, c *chain.Chain) (exact, floating *Frontier) {
	t.Helper()
	exact, err := Exact(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	floating, err = Floating(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return exact, floating
}

// makespan returns the best makespan, in seconds, within a limit that includes a_0. Errors: *pipeline.InfeasibleError.
func (f *Frontier) makespan(memory int64) (float64, error) {
	ticks, ok := f.program.root().at(f.costs.beside(memory))
	if !ok {
		return 0, f.infeasible(memory)
	}
	return f.costs.seconds(ticks), nil
}
