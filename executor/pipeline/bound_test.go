package pipeline

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// A bound falls to a whole group behind what is known, and no further; what was in stays in.
func TestBound(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ n, group, known, want int }{
		{12, 1, 0, 0}, {12, 4, 0, 0}, {12, 1, 5, 5}, {12, 4, 1, 4}, {12, 4, 4, 4}, {12, 4, 5, 8}, {12, 4, 11, 12}, {12, 4, 12, 12}, {12, 12, 1, 12},
	} {
		b := order.NewBound(x.n)
		for m := range x.known {
			if !b.In(m) {
				t.Errorf("%+v: minibatch %d is out", x, m)
			}
		}
		b.Lower(x.group)
		if b.End() != x.want || x.want > 0 && !b.In(x.want-1) || b.In(x.want) {
			t.Errorf("%+v: %d minibatches", x, b.End())
		}
		if b.Lower(x.group); b.End() != x.want {
			t.Errorf("%+v: %d minibatches when lowered again", x, b.End())
		}
	}
}

// Nobody is told otherwise than the last bound says, however many ask while it falls.
func TestBoundHasOneAnswer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		b := order.NewBound(60)
		var all sync.WaitGroup
		answers := make([][]bool, 4)
		for i := range answers {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			all.Go(func() {
				for m := range 60 {
					answers[i] = append(answers[i], b.In(max(0, m-r.IntN(3))))
					if i == 0 && m == int(seed%60) {
						b.Lower(5)
					}
				}
			})
		}
		all.Wait()
		for i, list := range answers {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for m, in := range list {
				if at := max(0, m-r.IntN(3)); in != (at < b.End()) {
					t.Fatalf("seed %d: minibatch %d was in: %v; the run has %d", seed, at, in, b.End())
				}
			}
		}
	}
}

// followed is an instance that a device runs. For a message, need says whether it acquires the link and pass whether it releases it.
type followed struct {
	order.Instance
	need, pass bool
}

// follow lets the drivers of a plan take their turns in a random order, and lowers the bound at a random instant. It returns
// what each did, and the last bound.
func follow(o *order.Order, halfDuplex map[[2]int]*halfDuplex, n, group, at int, r *rand.Rand) (all [][]followed, end int) {
	run := order.NewBound(n)
	queues := make([][]order.Instance, len(o.Instructions)) // of the run that nobody ends
	left := 0
	for d := range queues {
		_ = o.Instances(d, n, func(v order.Instance) error {
			queues[d] = append(queues[d], v)
			left++
			return nil
		})
	}
	all = make([][]followed, len(queues))
	for step := 0; left > 0; step++ {
		d := r.IntN(len(queues))
		if step == at {
			run.Lower(group)
		}
		if len(queues[d]) == 0 {
			continue
		}
		v := queues[d][0]
		queues[d] = queues[d][1:]
		left--
		if !run.In(v.Minibatch) {
			continue
		}
		x := followed{Instance: v}
		if b := halfDuplex[[2]int{min(d, v.To), max(d, v.To)}]; b != nil && v.Kind.Communication() {
			x.need, x.pass = b.Changes(run, v, -1), b.Changes(run, v, 1)
		}
		all[d] = append(all[d], x)
	}
	return all, run.End()
}

// Drivers come to their tasks in any order, and the bound falls at any instant. Each driver does the same as in a run that has this bound
// from the beginning. The ends of a link agree on who waits for whom.
func TestALoweredBoundIsAShorterRun(t *testing.T) {
	t.Parallel()
	w := workload(t, smallModel(t))
	r := rand.New(rand.NewPCG(4, 2))
	early, all := 0, 0
	for _, name := range []string{"gpipe", "chimera", "1f1b", "1f1b*", "eager", "list", "madpipe"} {
		for seed := range uint64(4) {
			c := costs(w, 4, seed)
			e := &layout{Workload: w}
			must(t, e.layOut(c, planFor(t, name, c, pipeline.Options{Microbatches: 4}), 4))
			for range 100 {
				n := e.group * (4 + r.IntN(6))
				got, end := follow(e.order, e.halfDuplex, n, e.group, r.IntN(30*n), r)
				want, _ := follow(e.order, e.halfDuplex, end, e.group, none, r)
				for d := range want {
					if !slices.Equal(got[d], want[d]) {
						t.Fatalf("%s, device %d: %v\nin a run of %d: %v", name, d, got[d], end, want[d])
					}
				}
				if end < n {
					early++
				}
				all++
			}
		}
	}
	t.Logf("%d of %d runs ended early", early, all)
	if early*4 < all {
		t.Errorf("only %d of %d runs ended early", early, all)
	}
}

// smallModel is a few linear layers: it trains thousands of minibatches in a second.
func smallModel(t testing.TB) *models.Model {
	b := models.NewBuilder("small", kernels.F32(2, 1, 1, 3), 3)
	for i := range 6 {
		name := fmt.Sprintf("layer%d", i+1)
		b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value {
			return g.ReLU("relu", g.Op("fc", kernels.Linear{Out: 4}, x))
		})
	}
	b.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, 3) })
	m, err := b.Model()
	must(t, err)
	return m
}

// stopper closes a channel when the feed is asked for a minibatch, or its result is there: about then, which is what the other
// drivers make of it.
type stopper struct {
	random
	mu     sync.Mutex
	at     int
	result bool
	pause  time.Duration
	pauses *rand.Rand
	enough chan struct{}
	losses map[int]float64
}

func (s *stopper) Images(m int, dst []float32) error {
	s.mu.Lock()
	if s.pauses.IntN(16) == 0 { // so that the other drivers get as far as they can without this minibatch
		time.Sleep(time.Duration(s.pauses.IntN(200)) * time.Microsecond)
	}
	s.stop(m, false)
	s.mu.Unlock()
	return s.random.Images(m, dst)
}

func (s *stopper) done(r Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses[r.Minibatch] = r.Loss
	s.stop(r.Minibatch, true)
}

func (s *stopper) stop(m int, result bool) {
	if enough := s.enough; m == s.at && result == s.result && enough != nil {
		s.enough = nil
		if s.pause == 0 {
			close(enough)
			return
		}
		time.AfterFunc(s.pause, func() { close(enough) })
	}
}

// drained lets an executor run until a random instant, several times, and returns how many minibatches each run had, and how
// many runs ended early.
func drained(t *testing.T, e *Executor, s *stopper, r *rand.Rand, runs int) (lengths []int, early int) {
	t.Helper()
	for range runs {
		before := e.Done()
		n := e.Group() * (20 + r.IntN(20))
		s.at, s.result, s.enough = before+r.IntN(n), r.IntN(2) == 0, make(chan struct{})
		s.pause = time.Duration(r.IntN(2)*r.IntN(300)) * time.Microsecond
		must(t, e.RunUntil(t.Context(), s.enough, Segment{Minibatches: n}))
		l := e.Done() - before
		if lengths = append(lengths, l); l%e.Group() != 0 || l > n {
			t.Fatalf("a run of %d minibatches ended after %d, %d make one update", n, l, e.Group())
		}
		if l < n {
			early++
		}
	}
	return lengths, early
}

// The updates of a run that goes on behind any number of minibatches begin there: all minibatches of one have the learning rate
// of its first.
func TestUpdatesBehindAnyRun(t *testing.T) {
	t.Parallel()
	w := workload(t, smallModel(t))
	c := costs(w, 3, 1)
	plan := planFor(t, "madpipe", c, pipeline.Options{Versions: pipeline.DoubleBuffered})
	group := groupOf(t, w, c, plan)
	if group < 2 {
		t.Fatalf("%d minibatches to an update", group)
	}
	for first := range 2 * group {
		var mu sync.Mutex
		asked := map[int]int{}
		e, err := New(w, targets(t, 3, host.Config{}), c, plan, Options{Feed: feedOf(w.Model), Seed: 7, Past: Past{Minibatches: first}, Rate: func(step int) float32 {
			mu.Lock()
			defer mu.Unlock()
			asked[step]++
			return rate(step)
		}})
		must(t, err)
		for range 2 {
			must(t, e.Run(t.Context(), 2*group))
		}
		want := map[int]int{}
		for i := range 4 {
			want[first+i*group] = group * len(plan.Stages)
		}
		if !maps.Equal(asked, want) || e.Done() != first+4*group {
			t.Errorf("behind %d minibatches: asked for the rates of steps %v, want %v", first, asked, want)
		}
	}
}

// Where stages update their weights after different numbers of minibatches, each update has the rate of its own first one.
func TestRatesOfStagesWithReplicas(t *testing.T) {
	t.Parallel()
	w := workload(t, smallModel(t))
	c, plan := replicated(t, w, pipeline.Stash)
	var mu sync.Mutex
	asked, want := map[int]int{}, map[int]int{}
	e, err := New(w, targets(t, 3, host.Config{}), c, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: func(step int) float32 {
		mu.Lock()
		defer mu.Unlock()
		asked[step]++
		return rate(step)
	}})
	must(t, err)
	must(t, e.Run(t.Context(), 8))
	for m := range 8 {
		want[m]++
		want[m/2*2]++
	}
	if !maps.Equal(asked, want) {
		t.Errorf("asked for the rates of steps %v, want %v", asked, want)
	}
}

// Runs that were told to end at any instant leave, bit for bit, the same losses and tensors as runs of the same lengths. Every minibatch
// below the end has a result, and no other. So a run that goes on behind one is the run that emptied its pipeline there.
// Only this test finds an early end that leaves other bits under vertical_sync or split backwards.
func TestRunsThatEndEarly(t *testing.T) {
	t.Parallel()
	runs := 12
	if testing.Short() {
		runs = 4
	}
	m := smallModel(t)
	w := workload(t, m)
	early, all := 0, 0
	for i, x := range []struct {
		name     string
		versions pipeline.Versions
	}{
		{"gpipe", ""}, {"1f1b-flush", ""}, {"chimera", ""}, {"zb-h1", ""},
		{"1f1b*", pipeline.Stash}, {"1f1b*", pipeline.VerticalSync}, {"madpipe", pipeline.DoubleBuffered}, {"list", pipeline.Latest}, {"eager", pipeline.Stash}, {"replicated", pipeline.DoubleBuffered},
	} {
		c := costs(w, 4, uint64(i))
		var plan *pipeline.Plan
		if x.name == "replicated" {
			c, plan = replicated(t, w, x.versions)
		} else {
			plan = planFor(t, x.name, c, pipeline.Options{Microbatches: 4, Versions: x.versions, WeightCopies: []float64{9}})
		}
		r := rand.New(rand.NewPCG(uint64(i), 11))
		s := &stopper{random: feedOf(w.Model), losses: map[int]float64{}, pauses: rand.New(rand.NewPCG(r.Uint64(), 1))}
		e, err := New(w, targets(t, c.Platform.Devices, host.Config{}), c, plan, Options{Feed: s, Seed: 7, Rate: rate, Done: s.done})
		must(t, err)
		lengths, n := drained(t, e, s, r, runs)
		early, all = early+n, all+runs
		plain := &stopper{random: s.random, losses: map[int]float64{}, pauses: s.pauses}
		want, err := New(w, targets(t, c.Platform.Devices, host.Config{}), c, plan, Options{Feed: plain, Seed: 7, Rate: rate, Done: plain.done})
		must(t, err)
		for _, n := range lengths {
			if n > 0 {
				must(t, want.Run(t.Context(), n))
			}
		}
		if len(s.losses) != e.Done() || !maps.Equal(s.losses, plain.losses) {
			t.Errorf("%s, runs of %v minibatches: other losses", x.name, lengths)
		}
		if d := pipelinetest.FirstDifference(tensors(t, want), tensors(t, e)); d != "" {
			t.Errorf("%s, runs of %v minibatches: %s", x.name, lengths, d)
		}
	}
	t.Logf("%d of %d runs ended early", early, all)
	if early*10 < all {
		t.Errorf("only %d of %d runs ended early", early, all)
	}
}
