package multichain

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Every small join at every number of slots against an exhaustive search over memory states: the same makespan, the
// same smallest number of slots, a schedule that keeps the rules.
func TestAgainstExhaustiveSearch(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	solved, refused := 0, 0
	for _, lengths := range [][]int{{1}, {4}, {6}, {0, 3}, {1, 1}, {1, 3}, {2, 2}, {2, 3}, {3, 3}, {2, 4}, {0, 0}, {1, 1, 2}, {2, 2, 2}, {0, 1, 3}} {
		for keep := range 1 << len(lengths) {
			j := multiEmpty(lengths...)
			for i := range lengths {
				j.Keep[i] = keep>>i&1 == 1
			}
			j.Forward, j.Backward, j.Loss = float64(1+rng.IntN(3)), float64(rng.IntN(3)), float64(rng.IntN(3))
			for slots := range 3 + 2*len(lengths) + 2 {
				best := search(j, slots)
				s, err := Solve(j, slots)
				if refusal, ok := errors.AsType[*InfeasibleError](err); ok {
					if !math.IsInf(best, 1) || refusal.Smallest <= slots || math.IsInf(search(j, refusal.Smallest), 1) || !math.IsInf(search(j, refusal.Smallest-1), 1) {
						t.Fatalf("%+v with %d slots: %v, the search finds %v", j, slots, err, best)
					}
					refused++
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := replayed(t, j, s, slots); got != best {
					t.Fatalf("%+v with %d slots: %v takes %v, the optimum is %v", j, slots, s, got, best)
				}
				solved++
			}
		}
	}
	if solved < 250 || refused < 100 {
		t.Errorf("only %d solved and %d refused", solved, refused)
	}
}

// replayed returns the makespan of a schedule that keeps the rules within the slots.
func replayed(t *testing.T, j Join, s Schedule, slots int) float64 {
	t.Helper()
	makespan, peak, err := replay(j, s)
	if err != nil || peak > slots {
		t.Fatalf("%+v with %d slots: %v: peak %d, %v", j, slots, s, peak, err)
	}
	return makespan
}

// The closed forms of the thesis. With a slot for every activation, the makespan equals the one without recomputation (1.4). One branch
// alone takes Revolve's chain plus the last forward and the loss (1.1.5).
func TestClosedForms(t *testing.T) {
	t.Parallel()
	for _, lengths := range [][]int{{3, 15}, {4, 20}, {6, 6, 6}, {18}} { // cross-modal, siamese with a triplet loss, a chain
		total := 0
		for _, l := range lengths {
			total += l
		}
		for _, j := range []Join{multiDelta(lengths...), multiEmpty(lengths...)} {
			s, err := Solve(j, total+len(lengths))
			if err != nil {
				t.Fatal(err)
			}
			if got := replayed(t, j, s, total+len(lengths)); got != float64(2*total+1) {
				t.Errorf("%v with a slot for each activation: %v, want %d", lengths, got, 2*total+1)
			}
		}
	}
	for l := 1; l <= 40; l++ {
		s, err := Solve(multiDelta(l), 3)
		if err != nil {
			t.Fatal(err)
		}
		// Theorem 1, equation 1.2, for l-1 layers.
		if got, want := replayed(t, multiDelta(l), s, 3), float64((l-1)*l/2+l+2); got != want {
			t.Errorf("%d layers in 3 slots: %v, want %v", l, got, want)
		}
	}
}

// Dropping gradients never hurts, and neither do more slots.
func TestMonotone(t *testing.T) {
	t.Parallel()
	cases := 0
	for _, lengths := range [][]int{{5, 9}, {4, 10, 12}, {7, 7}} {
		last := map[string]float64{"δ": math.Inf(1), "∅": math.Inf(1)}
		for slots := multiDelta(lengths...).Smallest(); slots < 16; slots++ {
			now := map[string]float64{}
			for name, j := range map[string]Join{"δ": multiDelta(lengths...), "∅": multiEmpty(lengths...)} {
				s, err := Solve(j, slots)
				if err != nil {
					t.Fatal(err)
				}
				now[name] = replayed(t, j, s, slots)
				cases++
			}
			if now["∅"] > now["δ"] || now["δ"] > last["δ"] || now["∅"] > last["∅"] {
				t.Errorf("%v with %d slots: %v, with one less %v", lengths, slots, now, last)
			}
			last = now
		}
	}
	if cases < 40 {
		t.Errorf("only %d cases", cases)
	}
}

func TestBadJoins(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		join Join
		want error
	}{
		{Join{}, ErrJoin},
		{multiDelta(3, -1), ErrJoin},
		{Join{Lengths: []int{1}, Keep: []bool{true, true}}, ErrJoin},
		{Join{Lengths: []int{1}, Forward: math.NaN()}, ErrJoin},
		{multiDelta(1, 1, 1, 1, 1, 1, 1, 1, 1), ErrJoin},
		{multiDelta(500, 500, 500), ErrTooLarge},
	} {
		if _, err := Solve(k.join, 100); !errors.Is(err, k.want) {
			t.Errorf("%+v: %v", k.join, err)
		}
	}
}

// A schedule with any one step left out, or the wrong one in its place, is refused or does less.
func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	j := multiDelta(2, 3)
	s, err := Solve(j, 6)
	if err != nil {
		t.Fatal(err)
	}
	whole := replayed(t, j, s, 6)
	refused := 0
	for i := range s {
		short := append(append(Schedule{}, s[:i]...), s[i+1:]...)
		if makespan, _, err := replay(j, short); err != nil {
			refused++
		} else if makespan > whole {
			t.Errorf("without step %d: %v", i, makespan)
		}
	}
	if refused < len(s)/2 {
		t.Errorf("only %d of %d shortened schedules were refused", refused, len(s))
	}
	for _, bad := range []Op{{Forward, 5, 1}, {Kind(9), 0, 0}, {Backward, 0, 1}, {Drop, 0, 0}, {Forward, 0, 2}} {
		if _, _, err := replay(j, Schedule{bad}); err == nil {
			t.Errorf("%v was taken", bad.Branch)
		}
	}
}

// search runs Dijkstra's algorithm over memory states. A state says which a_l are stored, which gradient each branch has, and whether the
// loss has run. A second copy of an a_l is of use only for its next forward, which here may leave its input.
func search(j Join, slots int) float64 {
	if slots < len(j.Lengths) {
		return math.Inf(1)
	}
	start := node{gradient: [3]int8{none, none, none}}
	for i := range j.Lengths {
		start.stored[i] = 1
	}
	best := map[node]float64{start: 0}
	queue := &nodes{{start, 0}}
	for queue.Len() > 0 {
		at := heap.Pop(queue).(reached)
		if at.cost > best[at.node] {
			continue
		}
		if at.final(j) {
			return at.cost
		}
		at.neighbours(j, slots, func(n node, cost float64) {
			if old, ok := best[n]; !ok || at.cost+cost < old {
				best[n] = at.cost + cost
				heap.Push(queue, reached{n, at.cost + cost})
			}
		})
	}
	return math.Inf(1)
}

type node struct {
	stored   [3]uint16 // bit l: a_l
	gradient [3]int8
	lost     bool
}

func (n node) slots() int {
	used := 0
	for i := range n.stored {
		for b := n.stored[i]; b > 0; b &= b - 1 {
			used++
		}
		if n.lost && n.gradient[i] != none {
			used++
		}
	}
	return used
}

func (n node) final(j Join) bool {
	for i := range j.Lengths {
		if !n.lost || n.gradient[i] > 0 || n.gradient[i] == none && j.Keep[i] {
			return false
		}
	}
	return true
}

func (n node) neighbours(j Join, slots int, visit func(node, float64)) {
	fits := func(m node, cost float64) {
		if m.slots() <= slots {
			visit(m, cost)
		}
	}
	ready := !n.lost
	for i, length := range j.Lengths {
		for l := 0; l <= length; l++ {
			if n.stored[i]>>l&1 == 0 {
				continue
			}
			m := n
			m.stored[i] &^= 1 << l
			if l < length {
				m.stored[i] |= 1 << (l + 1)
				fits(m, j.Forward)
				m.stored[i] |= 1 << l
				fits(m, j.Forward)
			}
			if n.lost && int(n.gradient[i]) == l+1 {
				m = n
				m.stored[i] &^= 1 << l
				m.gradient[i]--
				fits(m, j.Backward)
			}
		}
		if n.lost && n.gradient[i] == 0 && !j.Keep[i] {
			m := n
			m.gradient[i] = none
			fits(m, 0)
		}
		ready = ready && n.stored[i]>>length&1 == 1
	}
	if ready {
		m := n
		m.lost = true
		for i, length := range j.Lengths {
			m.stored[i] &^= 1 << length
			m.gradient[i] = int8(length)
		}
		fits(m, j.Loss)
		// The outputs may stay beside the gradients, as copies.
		for i, length := range j.Lengths {
			if length > 0 {
				k := m
				k.stored[i] |= 1 << length
				fits(k, j.Loss)
			}
		}
	}
}

type reached struct {
	node
	cost float64
}

type nodes []reached

func (q nodes) Len() int           { return len(q) }
func (q nodes) Less(i, k int) bool { return q[i].cost < q[k].cost }
func (q nodes) Swap(i, k int)      { q[i], q[k] = q[k], q[i] }
func (q *nodes) Push(x any)        { *q = append(*q, x.(reached)) }
func (q *nodes) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func ExampleSolve() {
	s, err := Solve(multiEmpty(1, 2), 5)
	fmt.Println(s, err)
	// Output: S0(0) F1(0) S0(1) F1(1) S1(1) F2(1) Loss B2(1) B1(1) D(1) B1(0) D(0) <nil>
}
