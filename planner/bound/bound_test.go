package bound

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/plantest"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
)

func seconds(t *testing.T, c *chain.Chain, memory int64, link schedule.Link) float64 {
	t.Helper()
	b, err := Seconds(c, schedule.Limits{Memory: memory, Link: link})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// expectBelow compares the bound with known optima over all sequences: with a link, and without one.
func expectBelow(t *testing.T, path string, want int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name   string
			Chain  *chain.Chain
			Limits []struct {
				Memory    int64
				Bandwidth float64  `json:"bandwidth_bytes_per_s"`
				Optimum   *float64 `json:"makespan_s"`
				Alone     *float64 `json:"remat_s"`
			}
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	points, tight, ratios := 0, 0, 0.0
	for _, c := range file.Cases {
		for _, l := range c.Limits {
			for bandwidth, optimum := range map[float64]*float64{l.Bandwidth: l.Optimum, 0: l.Alone} {
				if optimum == nil {
					continue
				}
				b := seconds(t, c.Chain, l.Memory, schedule.Link{Bandwidth: bandwidth})
				if b > *optimum*(1+1e-9) {
					t.Errorf("%s at %d, %g: bound %v, the optimum is %v", c.Name, l.Memory, bandwidth, b, *optimum)
				}
				points++
				ratios += b / *optimum
				if plantest.Near(b, *optimum) {
					tight++
				}
			}
		}
	}
	t.Logf("%d points: the bound is the optimum at %d, %.3f of it on the mean", points, tight, ratios/float64(points))
	if points < want || tight == 0 || ratios < 0.8*float64(points) {
		t.Errorf("%d points, want %d; %d of them tight, %.3f on the mean", points, want, tight, ratios/float64(points))
	}
}

func TestNoSequenceBeatsTheBound(t *testing.T) {
	t.Parallel()
	expectBelow(t, filepath.Join("..", "pofo", "testdata", "combined_small.json"), 100)
}

func TestNoSequenceBeatsTheBoundShared(t *testing.T) {
	t.Parallel()
	expectBelow(t, shared.Path(t, "vectors", "combined_small.json"), 436)
}

// slow evaluates the formula of Seconds where it stands: every instant, and a fine grid of X.
func slow(c *chain.Chain, memory int64, bandwidth float64) (best float64) {
	b := newBounder(c, schedule.Limits{Memory: memory, Link: schedule.Link{Bandwidth: bandwidth}})
	best = b.compute
	for k := 1; k <= b.n; k++ {
		for _, at := range []instant{b.forward(k), b.backward(k)} {
			best = max(best, slowAt(b, at))
		}
	}
	return best
}

func slowAt(b *bounder, i instant) float64 {
	excess := i.need + b.below[i.k] - b.memory
	if excess <= 0 {
		return 0
	}
	total, again := 0.0, 0.0
	for l := range i.k {
		total += b.removable(l, i.k)
		if l > 0 {
			again += b.removable(l, i.k)
		}
	}
	best := math.Inf(1)
	const grid = 1000
	low, high := max(0, excess-again), min(excess, total) // of X
	if b.bandwidth == 0 {
		high = 0
	}
	for g := range grid + 1 {
		x := low + (high-low)*float64(g)/grid
		if low > high {
			break
		}
		again := leastAgain(b, i.k, excess-x)
		if math.IsInf(again, 1) {
			continue
		}
		link := 0.0
		if x > 0 {
			link = x / b.bandwidth
		}
		best = min(best, max(b.compute+again, max(i.before, link)+max(i.after+again, link)))
	}
	return best
}

// leastAgain fills bytes with the layers that are cheapest by the byte, by repeated search.
func leastAgain(b *bounder, k int, bytes float64) (time float64) {
	used := make([]bool, k)
	for bytes > 1e-9 {
		pick := 0
		for l := 1; l < k; l++ {
			if !used[l] && b.removable(l, k) > 0 && (pick == 0 || b.again[l]/b.removable(l, k) < b.again[pick]/b.removable(pick, k)) {
				pick = l
			}
		}
		if pick == 0 {
			return math.Inf(1)
		}
		used[pick] = true
		part := min(1, bytes/b.removable(pick, k))
		bytes -= part * b.removable(pick, k)
		time += part * b.again[pick]
	}
	return time
}

// The minimum over X is found exactly: never above a grid's, and hardly below.
func TestMinimumAgainstGrid(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(5, 6))
	finite, above := 0, 0
	for range 300 {
		c := plantest.Chain(rnd, 2+rnd.IntN(6))
		half := 0.5 // forwards that save nothing may be faster
		if rnd.IntN(2) == 0 {
			c.Layers[0].DiscardForwardS = &half
		}
		bandwidth := []float64{0, 0.5, 1, 3}[rnd.IntN(4)]
		all, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			t.Fatal(err)
		}
		memory := all.Peak/2 + rnd.Int64N(all.Peak/2+1)
		got, want := seconds(t, c, memory, schedule.Link{Bandwidth: bandwidth}), slow(c, memory, bandwidth)
		if math.IsInf(got, 1) && math.IsInf(want, 1) {
			continue
		}
		finite++
		if got > newBounder(c, schedule.Limits{}).compute {
			above++
		}
		if got > want*(1+1e-9) || got < want*0.99 {
			t.Errorf("%d bytes, %g: bound %v, the grid says %v", memory, bandwidth, got, want)
		}
	}
	if finite < 100 || above < 50 {
		t.Errorf("only %d finite bounds, %d of them above the sum of all ops", finite, above)
	}
}

// More memory or a faster link never raises the bound, and with store-all's peak it is store-all's time.
func TestBoundFalls(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		c := plantest.Chain(rnd, 1+rnd.IntN(8))
		all, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
		if err != nil {
			t.Fatal(err)
		}
		for _, bandwidth := range []float64{0, 1, 2} {
			last := math.Inf(1)
			for m := range all.Peak + 1 {
				b := seconds(t, c, m, schedule.Link{Bandwidth: bandwidth})
				if faster := seconds(t, c, m, schedule.Link{Bandwidth: bandwidth + 1}); b > last*(1+1e-12) || faster > b*(1+1e-12) {
					t.Fatalf("bound %v at %d bytes, %v with one less, %v with a faster link", b, m, last, faster)
				}
				last = b
			}
			if !plantest.Near(last, all.Makespan) {
				t.Errorf("bound %v at store-all's peak, store-all takes %v", last, all.Makespan)
			}
		}
	}
}

func TestGap(t *testing.T) {
	t.Parallel()
	for _, k := range []struct{ makespan, bound, want float64 }{
		{11, 10, 0.1}, {10, 10, 0}, {10 * (1 + 1e-12), 10, 0}, {9, 10, 0}, {1, 0, 0}, {1, math.Inf(1), 0},
	} {
		if got := Gap(k.makespan, k.bound); math.Abs(got-k.want) > 1e-12 {
			t.Errorf("Gap(%v, %v) is %v, want %v", k.makespan, k.bound, got, k.want)
		}
	}
}

func TestBadChain(t *testing.T) {
	t.Parallel()
	if _, err := Seconds(&chain.Chain{}, schedule.Limits{}); err == nil {
		t.Error("a chain without layers has a bound")
	}
}
