package periodic

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
)

// row returns a chain of n layers that take a second each way and send a byte.
func row(n int) *chain.Chain {
	c := &chain.Chain{Name: "row", InputBytes: 1}
	for range n {
		c.Layers = append(c.Layers, chain.Layer{Name: "layer", ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1})
	}
	return c
}

// replicas returns a request whose stages are one layer each, on so many devices of their own.
func replicas(counts ...int) pipeline.Request {
	r := pipeline.Request{Chain: row(len(counts))}
	next := 0
	for s, n := range counts {
		st := pipeline.Stage{First: s + 1, Last: s + 1}
		for range n {
			st.Devices = append(st.Devices, next)
			next++
		}
		r.Stages = append(r.Stages, st)
	}
	r.Platform = pipeline.NewPlatform(next, pipeline.NoLimit, 1)
	return r
}

// A pattern holds the common multiple of the numbers of replicas; the larger one of these is beyond 64 bits.
func TestTooManyReplicas(t *testing.T) {
	t.Parallel()
	primes := []int{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59}
	for _, count := range []int{9, 16, 17} {
		r := replicas(primes[:count]...)
		for _, name := range []string{"1f1b", "1f1b*", "eager"} {
			if _, err := solve(name, r); !errors.Is(err, ErrStages) || !strings.Contains(err.Error(), "[2 3 5 7 11 13 17 19 23") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if period, ok := Tightest(r); ok {
			t.Errorf("%d numbers: a period of %v", count, period)
		}
	}
	if plan, err := solve("1f1b*", replicas(2, 3, 5)); err != nil || plan.MinibatchesPerPeriod != 30 {
		t.Errorf("%v, %v; want 30 minibatches", plan, err)
	}
	q := pipeOf(t, row(4), 4)
	if q.repeats = mostTasks / 2 / len(q.v); q.bounded() != nil {
		t.Errorf("%d minibatches of %d: %v", q.repeats, len(q.v), q.bounded())
	}
	if q.repeats++; q.bounded() == nil {
		t.Errorf("%d minibatches of %d: not refused", q.repeats, len(q.v))
	}
}

func TestLcm(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]int{{1, 1, 1}, {4, 6, 12}, {7, 5, 35}, {1 << 40, 3, 3 << 40}, {1 << 40, 1<<40 - 1, math.MaxInt}, {math.MaxInt, 2, math.MaxInt}} {
		if got := LCM(c[0], c[1]); got != c[2] {
			t.Errorf("LCM(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestTooManyPerPeriod(t *testing.T) {
	t.Parallel()
	r := replicas(1, 1)
	for _, k := range []int{mostTasks, math.MaxInt} {
		r.PerPeriod = k
		if _, err := solve("k-periodic", r); !errors.Is(err, ErrOptions) {
			t.Errorf("%d minibatches: %v", k, err)
		}
	}
	r.PerPeriod = 100
	if plan, err := solve("k-periodic", r); err != nil || plan.MinibatchesPerPeriod != 100 {
		t.Errorf("%v, %v; want 100 minibatches", plan, err)
	}
}

// Devices 0 and 1 are joined only through device 2, and messages do not go through devices.
func TestNoLinkBetweenNeighbours(t *testing.T) {
	t.Parallel()
	p := pipeline.NewPlatform(3, pipeline.NoLimit, 0)
	p.Pairs = map[[2]int]float64{{0, 2}: 1e9, {1, 2}: 1e9}
	for _, s := range Strategies() {
		_, err := s.Solve(context.Background(), pipeline.Request{Chain: row(3), Platform: p})
		if !errors.Is(err, pipeline.ErrPlatform) || !strings.Contains(err.Error(), "stages 0 and 1 are on devices 0 and 1") || !strings.Contains(err.Error(), `"0-1"`) {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	for _, c := range []struct {
		devices [][]int
		ok      bool
	}{
		{[][]int{{0}, {2}, {1}}, true},
		{[][]int{{0, 1}, {2}}, true},
		{[][]int{{0, 1, 2}}, true},
		{[][]int{{1}, {0, 2}}, false},
		{[][]int{{2, 0}, {1}}, false},
	} {
		r := pipeline.Request{Chain: row(len(c.devices)), Platform: p}
		for s, devices := range c.devices {
			r.Stages = append(r.Stages, pipeline.Stage{First: s + 1, Last: s + 1, Devices: devices})
		}
		if _, err := solve("1f1b*", r); (err == nil) != c.ok || err != nil && !errors.Is(err, pipeline.ErrPlatform) {
			t.Errorf("stages on %v: %v", c.devices, err)
		}
	}
}

// A pair of replicas that never work on the same minibatch needs no link.
func TestReplicasThatNeverMeet(t *testing.T) {
	t.Parallel()
	r := replicas(2, 4) // 0 and 1, 2 to 5
	meet := map[[2]int]bool{{0, 2}: true, {1, 3}: true, {0, 4}: true, {1, 5}: true}
	for x := range 2 {
		for y := 2; y < 6; y++ {
			r.Platform.Pairs = map[[2]int]float64{{x, y}: 0}
			if _, err := solve("1f1b*", r); errors.Is(err, pipeline.ErrPlatform) != meet[[2]int{x, y}] || err != nil && !meet[[2]int{x, y}] {
				t.Errorf("no link between %d and %d: %v", x, y, err)
			}
		}
	}
}

func TestUnknownOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		said string
		mar  func(r *pipeline.Request)
	}{
		{`"newest"`, func(r *pipeline.Request) { r.Versions = "newest" }},
		{`"newest"`, func(r *pipeline.Request) { r.Versions, r.WeightCopies = "newest", []float64{2} }},
		{`"all"`, func(r *pipeline.Request) { r.Accounting = "all" }},
		{"-1", func(r *pipeline.Request) { r.WeightCopies = []float64{2, -1} }},
		{"NaN", func(r *pipeline.Request) { r.WeightCopies = []float64{math.NaN()} }},
		{"+Inf", func(r *pipeline.Request) { r.WeightCopies = []float64{math.Inf(1)} }},
		{"-Inf", func(r *pipeline.Request) { r.WeightCopies = []float64{math.Inf(-1)} }},
	} {
		r := replicas(1, 1)
		c.mar(&r)
		for _, s := range Strategies() {
			if _, err := s.Solve(context.Background(), r); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.said) {
				t.Errorf("%s, %s: %v", s.Name, c.said, err)
			}
		}
	}
}

// A deadline keeps the best plan so far; a cancelled search has none.
func TestDeadlineOfProof(t *testing.T) {
	t.Parallel()
	r := replicas(1, 1)
	r.Versions = pipeline.Latest
	r.Platform = r.Platform.WithMemory(3) // one live minibatch: nothing overlaps
	p, err := newProblem("milp", r)
	if err != nil {
		t.Fatal(err)
	}
	l := newLister(p)
	best, err := l.search(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	late, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer stop()
	if got, gap, err := l.prove(late, best); err != nil || got != best || !(gap > l.gap()) {
		t.Errorf("%v, a gap of %v, %v", got, gap, err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := l.prove(cancelled, best); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if !milp.Built {
		return
	}
	_, err = solveMILP(&countdown{Context: context.Background(), left: 1}, r)
	var unfinished *pipeline.UnfinishedError
	for left := 2; errors.Is(err, context.DeadlineExceeded); left++ {
		_, err = solveMILP(&countdown{Context: context.Background(), left: left}, r)
	}
	if !errors.As(err, &unfinished) || unfinished.Best == nil {
		t.Errorf("deadline after the search: %v", err)
	}
}

// countdown is a context whose deadline passes after it was looked at so often.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}
