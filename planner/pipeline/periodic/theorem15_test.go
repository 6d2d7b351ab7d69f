package periodic

import (
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Theorem 15: 1F1B* has the fewest live minibatches of all 1-periodic schedules, in every stage at once. All patterns of
// whole start times are tried, which is enough for whole durations and periods.
func TestTheorem15(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(15, 1))
	patterns, cases := 0, 0
	for range 500 {
		n := 1 + rng.IntN(4)
		loads := make([][2]int, n)
		c := &chain.Chain{Name: "theorem 15"}
		least, sum := 1, 0
		for s := range loads {
			loads[s] = [2]int{rng.IntN(3), rng.IntN(3)}
			least, sum = max(least, loads[s][0]+loads[s][1]), sum+loads[s][0]+loads[s][1]
			c.Layers = append(c.Layers, chain.Layer{Name: "layer", ForwardS: float64(loads[s][0]), BackwardS: float64(loads[s][1])})
		}
		if sum == 0 {
			continue
		}
		period := least + rng.IntN(2)
		best, tried := bruteLive(loads, period)
		q := pipeOf(t, c, n)
		all, ok := q.passages(float64(period), demand{})
		if !ok {
			t.Fatalf("%v: period %d refused", loads, period)
		}
		live := q.live(all, float64(period))
		for s := range live {
			if live[s] != best[s] {
				t.Fatalf("%v, period %d: %v live minibatches, brute force %v", loads, period, live, best)
			}
		}
		plan := q.plan(float64(period), all, 0)
		report, err := pipeline.Check(c, q.problem.Platform, plan)
		if err != nil {
			t.Fatal(err)
		}
		for s := range live {
			if report.NCA[s] > live[s] {
				t.Fatalf("%v, period %d: Check sees %v, want %v", loads, period, report.NCA, live)
			}
		}
		patterns, cases = patterns+tried, cases+1
	}
	if cases < 400 || patterns < 100000 {
		t.Fatalf("%d cases, %d patterns", cases, patterns)
	}
	t.Logf("%d cases, %d patterns", cases, patterns)
}

// pipeOf returns the pipe of a chain with one layer on each device and no communication time.
func pipeOf(t *testing.T, c *chain.Chain, devices int) *pipe {
	t.Helper()
	var ranges [][2]int
	for l := range devices {
		ranges = append(ranges, [2]int{l + 1, l + 1})
	}
	r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(devices, pipeline.NoLimit, pipeline.Free())}
	r.Stages = stages(ranges)
	p, err := newProblem("test", r)
	if err != nil {
		t.Fatal(err)
	}
	return newPipe(p)
}

// bruteLive returns the fewest live minibatches of each stage over all patterns, and how many patterns there are. For
// given starts modulo the period, each task is as early as its predecessor allows, which makes all delays shortest.
func bruteLive(loads [][2]int, period int) (best []int, tried int) {
	best = make([]int, len(loads))
	for s := range best {
		best[s] = 1 << 30
	}
	live := make([]int, len(loads))
	modulo := func(x int) int { return ((x % period) + period) % period }
	var place func(s, f, b, delay int)
	place = func(s, f, b, delay int) { // stage s+1 starts at f and b, and needs delay from its forward to its backward's end
		if s < 0 {
			tried++
			for x := range live {
				best[x] = min(best[x], live[x])
			}
			return
		}
		forward, backward := loads[s][0], loads[s][1]
		for x := range period {
			for y := range period {
				if !disjoint(x, forward, y, backward, period) {
					continue
				}
				d := forward + modulo(f-x-forward) + delay + modulo(y-b) + backward
				if s == len(loads)-1 {
					d = forward + modulo(y-x-forward) + backward
				}
				live[s] = max(1, (d+period-1)/period)
				place(s-1, x, y+backward, d)
			}
		}
	}
	place(len(loads)-1, 0, 0, 0)
	return best, tried
}

// disjoint reports whether two tasks of a device do not overlap, and none of no duration interrupts the other.
func disjoint(x, lengthX, y, lengthY, period int) bool {
	if x == y {
		return lengthX == 0 || lengthY == 0
	}
	fromX, fromY := (y-x+period)%period, (x-y+period)%period
	return fromX >= lengthX && fromY >= lengthY
}
