package multichain

import (
	"container/heap"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// The test compares plans of small joins with the best of all sequences, which an exhaustive search over memory states finds. The plans are
// never faster, are refused where none fits, and on the mean are not far behind.
func TestPlansBesideTheOptimum(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	points, optimal, missed, ratio, want := 0, 0, 0, 0.0, 120
	if testing.Short() {
		want = 40
	}
	for tries := 0; points < want; tries++ {
		if tries > 20*want {
			t.Fatalf("%d plans out of %d joins, want %d", points, tries, want)
		}
		c := randomJoin(rng, 2)
		if c.Len() > 6 {
			continue
		}
		all := simulated(t, c, storeAll(c))
		memory := all.Peak * int64(40+rng.IntN(60)) / 100
		best := optimum(c, memory)
		seq, err := Strategies()[1].Solve(t.Context(), strategy.Problem{Chain: c, Memory: memory})
		if errors.As(err, new(*pipeline.InfeasibleError)) {
			if !math.IsInf(best, 1) {
				missed++
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r := simulated(t, c, seq)
		if r.Makespan < best-1e-9 {
			t.Fatalf("%v within %d: %v takes %v, the optimum is %v", c.Branches, memory, seq, r.Makespan, best)
		}
		points++
		ratio += r.Makespan / best
		if r.Makespan < best+1e-9 {
			optimal++
		}
	}
	t.Logf("%d of %d at the optimum, %.3f of it on the mean, %d refused where something fits", optimal, points, ratio/float64(points), missed)
	if optimal < points/2 || ratio > 1.05*float64(points) || missed > points/4 {
		t.Errorf("%d of %d at the optimum, %.3f of it on the mean, %d refused where something fits", optimal, points, ratio/float64(points), missed)
	}
}

// memoryState records how each activation is stored (0 nothing, 1 plain, 2 saved), and which gradients are stored.
type memoryState struct {
	stored   [9]uint8
	gradient [9]bool
}

// judge holds the rules of a join: an independent telling of those of package schedule.
type judge struct {
	*chain.Chain
	reads [][]int // by layer
	start memoryState
}

func newJudge(c *chain.Chain) *judge {
	j := &judge{Chain: c, reads: make([][]int, c.Len()+1)}
	next, ends := 1, []int(nil)
	for k, n := range c.Branches {
		in := 0
		if k > 0 {
			in = c.Len() + k
		}
		j.start.stored[in] = 1
		for range n {
			j.reads[next] = []int{in}
			in, next = next, next+1
		}
		ends = append(ends, in)
	}
	for j.reads[next] = ends; next < c.Len(); next++ {
		j.reads[next+1] = []int{next}
	}
	j.start.gradient[c.Len()] = true
	return j
}

// size returns the bytes of an activation or of its gradient.
func (j *judge) size(i int, plain, gradient bool) int64 {
	switch {
	case i == 0 || i > j.Len():
		return j.InputBytes
	case gradient:
		return j.Gradient(i)
	case plain:
		return j.Layer(i).OutputBytes
	}
	return j.Layer(i).SavedBytes
}

func (j *judge) used(s *memoryState) (bytes int64) {
	for i := range j.Len() + len(j.Branches) {
		if s.stored[i] > 0 {
			bytes += j.size(i, s.stored[i] == 1, false)
		}
		if s.gradient[i] {
			bytes += j.size(i, false, true)
		}
	}
	return bytes
}

// forward returns the state after a forward of layer l, and the bytes that it takes.
func (j *judge) forward(s memoryState, l int, save, discard bool) (memoryState, int64, bool) {
	c := j.Layer(l)
	written, takes := uint8(1), c.OutputBytes+c.DiscardOverhead()
	if save {
		written, takes = 2, c.SavedBytes+c.ForwardOverheadBytes
	}
	for _, i := range j.reads[l] {
		if s.stored[i] == 0 || discard && s.stored[i] == 2 {
			return s, 0, false
		}
		if discard {
			s.stored[i] = 0
		}
	}
	s.stored[l] = max(s.stored[l], written)
	return s, takes, true
}

func (j *judge) backward(s memoryState, l int) (memoryState, int64, bool) {
	takes, ok := j.Layer(l).BackwardOverheadBytes, s.gradient[l] && s.stored[l] == 2
	for _, i := range j.reads[l] {
		takes += j.size(i, false, true)
		ok = ok && s.stored[i] > 0
		s.gradient[i] = i > 0 && i <= j.Len()
		if s.stored[i] == 1 {
			s.stored[i] = 0
		}
	}
	s.gradient[l], s.stored[l] = false, 0
	return s, takes, ok
}

// optimum returns the shortest makespan within memory bytes, +Inf when nothing fits.
func optimum(c *chain.Chain, memory int64) float64 {
	j := newJudge(c)
	best, queue := map[memoryState]float64{j.start: 0}, &states{{j.start, 0}}
	if j.used(&j.start) > memory {
		return math.Inf(1)
	}
	for queue.Len() > 0 {
		at := heap.Pop(queue).(visited)
		if at.seconds > best[at.memoryState] {
			continue
		}
		if at.gradient == [9]bool{} {
			return at.seconds
		}
		used := j.used(&at.memoryState)
		visit := func(s memoryState, takes int64, ok bool, seconds float64) {
			if old, known := best[s]; ok && used+takes <= memory && (!known || at.seconds+seconds < old) {
				best[s] = at.seconds + seconds
				heap.Push(queue, visited{s, best[s]})
			}
		}
		for l := 1; l <= c.Len(); l++ {
			s, takes, ok := j.backward(at.memoryState, l)
			visit(s, takes, ok, c.Layer(l).BackwardS)
			s, takes, ok = j.forward(at.memoryState, l, true, false)
			visit(s, takes, ok, c.Layer(l).ForwardS)
			for _, discard := range []bool{false, true} {
				s, takes, ok = j.forward(at.memoryState, l, false, discard)
				visit(s, takes, ok, c.Layer(l).DiscardSeconds())
			}
		}
	}
	return math.Inf(1)
}

type visited struct {
	memoryState
	seconds float64
}

type states []visited

func (q states) Len() int           { return len(q) }
func (q states) Less(i, k int) bool { return q[i].seconds < q[k].seconds }
func (q states) Swap(i, k int)      { q[i], q[k] = q[k], q[i] }
func (q *states) Push(x any)        { *q = append(*q, x.(visited)) }
func (q *states) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
