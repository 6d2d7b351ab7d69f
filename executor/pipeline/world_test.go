package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
	"plimsoll/runtime/world"
)

// hub joins executors of one process as if each were in a process of its own.
type hub struct {
	process []int // by device
	mu      sync.Mutex
	moved   *sync.Cond
	ways    []world.Way
	wires   []chan []byte
	taken   []chan struct{}
	shared  map[[2]int][]byte // by rank and round
	failed  chan struct{}
	once    sync.Once
	err     error
	sent    []int64 // by way: bytes
	sums    sums
}

func newHub(process []int) *hub {
	h := &hub{process: process, shared: map[[2]int][]byte{}, failed: make(chan struct{})}
	h.moved = sync.NewCond(&h.mu)
	return h
}

// member is a process of a hub.
type member struct {
	world.Transport // whose other methods nobody calls
	*hub
	self, round int
	devices     []runtime.Device  // by way: of the end here
	stagings    []runtime.Staging // where it has one
	lineDevices []runtime.Device  // by line of sums, likewise
}

func (m *member) Fail(err error) {
	m.once.Do(func() {
		m.err = err
		close(m.failed)
		m.mu.Lock()
		m.moved.Broadcast()
		m.mu.Unlock()
		m.sums.mu.Lock()
		for _, l := range m.sums.lines {
			l.moved.Broadcast()
		}
		m.sums.mu.Unlock()
	})
}

func (m *member) Open(ways []world.Way) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	ways = slices.Clone(ways)
	for i := range ways {
		var s runtime.Staging
		if d, ok := ways[i].Device.(runtime.Stager); ok {
			var err error
			if s, err = d.NewStaging(ways[i].Name, ways[i].Bytes); err != nil {
				return err
			}
		}
		m.devices, m.stagings = append(m.devices, ways[i].Device), append(m.stagings, s)
		ways[i].Device = nil
	}
	if m.ways == nil {
		m.ways = ways
		m.sent = make([]int64, len(ways))
		for range ways {
			m.wires, m.taken = append(m.wires, make(chan []byte)), append(m.taken, make(chan struct{}))
		}
	}
	if !slices.Equal(m.ways, ways) {
		return fmt.Errorf("process %d opens other ways:\n%v\n%v", m.self, m.ways, ways)
	}
	return nil
}

var errFailed = errors.New("another process has failed")

func (m *member) Send(way int, src runtime.Span) (runtime.Launch, error) {
	if m.ways[way].From != m.self || src.Bytes > m.ways[way].Bytes {
		return nil, fmt.Errorf("process %d sends %d bytes on %v", m.self, src.Bytes, m.ways[way])
	}
	return m.launch(way, "send", runtime.Staging.Send, src, func(b []byte) error {
		select {
		case m.wires[way] <- b:
			<-m.taken[way]
			return nil
		case <-m.failed:
			return errFailed
		}
	})
}

func (m *member) Receive(way int, dst runtime.Span) (runtime.Launch, error) {
	if m.ways[way].To != m.self {
		return nil, fmt.Errorf("process %d receives on %v", m.self, m.ways[way])
	}
	return m.launch(way, "receive", runtime.Staging.Receive, dst, func(b []byte) error {
		select {
		case src := <-m.wires[way]:
			if len(src) != len(b) {
				return fmt.Errorf("%v: %d bytes are sent, %d expected", m.ways[way], len(src), len(b))
			}
			copy(b, src)
			m.mu.Lock()
			m.sent[way] += int64(len(src))
			m.mu.Unlock()
			m.taken[way] <- struct{}{}
			return nil
		case <-m.failed:
			return errFailed
		}
	})
}

// launch hands the bytes of a span to do, in place or staged.
func (m *member) launch(way int, name string, stage func(runtime.Staging, runtime.Span, func([]byte) error) (runtime.Launch, error), span runtime.Span, do func(b []byte) error) (runtime.Launch, error) {
	if s := m.stagings[way]; s != nil {
		return stage(s, span, do)
	}
	b, err := m.devices[way].(*host.Device).Bytes(span)
	return host.Func{Name: name, Do: func() error { return do(b) }}, err
}

func (m *member) Broadcast(_ context.Context, rank int, data []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]int{rank, m.round}
	m.round++
	if rank == m.self {
		m.shared[key] = slices.Clone(data)
		m.moved.Broadcast()
	}
	for m.shared[key] == nil && m.err == nil {
		m.moved.Wait()
	}
	return m.shared[key], m.err
}

// processes run a plan in as many processes as devices are divided into.
type processes struct {
	*hub
	t   *testing.T
	all []*Executor
	out *pipelinetest.Outcome
}

func newWorld(t *testing.T, w *Workload, c Costs, plan *pipeline.Plan, process []int, open func(n int) []executor.Target, opt Options) *processes {
	t.Helper()
	return newWorldOf(t, New, w, c, plan, process, open, opt)
}

// newWorldOf is newWorld by New, or by what goes before it.
func newWorldOf(t *testing.T, by func(*Workload, []executor.Target, Costs, *pipeline.Plan, Options) (*Executor, error), w *Workload, c Costs, plan *pipeline.Plan, process []int, open func(n int) []executor.Target, opt Options) *processes {
	t.Helper()
	x := &processes{hub: newHub(process), t: t, out: &pipelinetest.Outcome{}}
	n := slices.Max(process) + 1
	x.all = make([]*Executor, n)
	if opt.Seed, opt.Rate = 7, rate; opt.Feed == nil {
		opt.Feed = feedOf(w.Model)
	}
	var mu sync.Mutex
	opt.Done = func(r Result) {
		mu.Lock()
		defer mu.Unlock()
		for len(x.out.Losses) <= r.Minibatch {
			x.out.Losses, x.out.Correct = append(x.out.Losses, 0), append(x.out.Correct, 0)
		}
		x.out.Losses[r.Minibatch], x.out.Correct[r.Minibatch] = r.Loss, r.Correct
	}
	on := make([][]executor.Target, n)
	for p := range n {
		var devices []int
		for d, q := range process {
			if q == p {
				devices = append(devices, d)
			}
		}
		on[p] = open(len(devices))
	}
	x.each(func(p int) error {
		o := opt
		if n > 1 {
			m := &member{hub: x.hub, self: p}
			o.World = &World{Ranks: process, Rank: p, Transport: m, Broadcast: m.Broadcast, Fail: m.Fail}
		}
		var err error
		x.all[p], err = by(w, on[p], c, plan, o)
		return err
	})
	return x
}

// cpus opens devices of a process.
func cpus(t *testing.T, config host.Config) func(n int) []executor.Target {
	return func(n int) []executor.Target { return targets(t, n, config) }
}

// each lets all processes do something at the same time.
func (x *processes) each(do func(p int) error) {
	x.t.Helper()
	errs := make([]error, len(x.all))
	var all sync.WaitGroup
	for p := range x.all {
		all.Go(func() { errs[p] = do(p) })
	}
	all.Wait()
	must(x.t, errors.Join(errs...))
}

// A process keeps the tables of its own devices, and nothing that was made to prove those of others.
func TestTablesOfOtherProcessesAreDropped(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	c := costs(w, 3, 2)
	x := newWorld(t, w, c, planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash}), []int{0, 0, 1}, cpus(t, host.Config{}), Options{})
	for p, e := range x.all {
		for _, d := range e.drivers {
			if here := e.opt.World.has(d.Number); here != (d.table != nil) || here != (len(d.binder.ops) > 0) || d.compiler.Recording != nil {
				t.Errorf("process %d, device %d: here %v, table kept %v, %d ops kept", p, d.Number, here, d.table != nil, len(d.binder.ops))
			}
		}
	}
}

func (x *processes) run(n int) {
	x.t.Helper()
	x.each(func(p int) error {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Minute, fmt.Errorf("stuck"))
		defer cancel()
		return x.all[p].Run(ctx, n)
	})
}

// trained runs n minibatches twice and returns the outcome.
func (x *processes) trained(n int) *pipelinetest.Outcome {
	x.t.Helper()
	x.run(n)
	x.run(n)
	x.out.Tensors = x.tensors()
	return x.out
}

// sentAsPlanned checks that what went between processes for n minibatches is what the plan sends, to the byte.
func (x *processes) sentAsPlanned(c Costs, plan *pipeline.Plan, n int) {
	x.t.Helper()
	want, got := int64(0), int64(0)
	at := func(s, m int) int { return x.process[x.all[0].order.On[s][m%plan.Repeats()]] }
	for s := range len(plan.Stages) - 1 {
		for m := range n {
			if at(s, m) != at(s+1, m) { // an output there, its gradient back
				want += 2 * c.Chain.Layers[plan.Stages[s].Last-1].OutputBytes
			}
		}
	}
	for i, way := range x.ways {
		if way.Name[0] == 'C' { // CF or CB
			got += x.sent[i]
		}
	}
	if got != want {
		x.t.Errorf("%d bytes went between processes, the plan sends %d", got, want)
	}
}

// tensors returns the tensors that all processes read together.
func (x *processes) tensors() []pipelinetest.Tensor {
	x.t.Helper()
	read := make([][]pipelinetest.Tensor, len(x.all))
	x.each(func(p int) error {
		read[p] = tensors(x.t, x.all[p])
		return nil
	})
	return read[0]
}

// evaluate predicts batches; only the process of the last stage is told.
func (x *processes) evaluate(batches int) (all [][]float32) {
	x.t.Helper()
	x.each(func(p int) error {
		return x.all[p].Evaluate(x.t.Context(), feedOf(x.all[p].Model), batches, func(_ int, logits []float32) error {
			all = append(all, slices.Clone(logits))
			return nil
		})
	})
	return all
}

// divisions of n devices into processes: each its own, in pairs, and at random.
func divisions(n int, r *rand.Rand) [][]int {
	alone, pairs, random := make([]int, n), make([]int, n), make([]int, n)
	for d := range n {
		alone[d], pairs[d] = d, d/2
		if random[d] = r.IntN(2); d < 2 {
			random[d] = d
		}
	}
	return [][]int{alone, pairs, random}
}

// A plan trains and predicts the same bits whichever processes have its devices, in chaos too; two runs, so that the second begins in
// the memory of the first.
// Only this test finds a lost or mistaken message of interleaved, zero-bubble or recomputing plans between processes.
func TestProcessesAreOneProcess(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		strategy string
		devices  int
		o        pipeline.Options
		opt      Options
		simplex  bool
	}{
		{"gpipe", 3, pipeline.Options{Microbatches: 4}, Options{Audit: true}, false},
		{"1f1b-flush", 4, pipeline.Options{Microbatches: 5}, Options{MaxNorm: 0.5}, true},
		{"interleaved", 3, pipeline.Options{Microbatches: 6}, Options{}, false},
		{"zb-h1", 3, pipeline.Options{Microbatches: 4}, Options{MaxNorm: 1}, false},
		{"chimera", 4, pipeline.Options{Microbatches: 4}, Options{}, false},
		{"1f1b-recompute", 3, pipeline.Options{Microbatches: 4}, Options{}, false},
		{"contiguous", 4, pipeline.Options{Versions: pipeline.Stash}, Options{}, true},
		{"madpipe", 3, pipeline.Options{Versions: pipeline.DoubleBuffered}, Options{}, false},
		{"pipedream", 4, pipeline.Options{Versions: pipeline.DoubleBuffered}, Options{}, false},
		{"loadline", 3, pipeline.Options{Versions: pipeline.Stash}, Options{}, false},
	} {
		costs := costs(w, c.devices, 3)
		costs.Platform.Duplex = !c.simplex
		plan := planFor(t, c.strategy, costs, c.o)
		group := groupOf(t, w, costs, plan)
		n := group * max(2, 6/group)
		one := newWorld(t, w, costs, plan, make([]int, c.devices), cpus(t, host.Config{}), c.opt)
		want := one.trained(n)
		predicted := predictions(t, one.all[0], 3)
		for i, process := range divisions(c.devices, r) {
			t.Run(fmt.Sprintf("%s/%v", c.strategy, process), func(t *testing.T) {
				x := newWorld(t, w, costs, plan, process, cpus(t, host.Config{Chaos: uint64(i)}), c.opt)
				same(t, want, x.trained(n))
				if !c.opt.Audit {
					x.sentAsPlanned(costs, plan, 2*n)
				}
				for b, logits := range x.evaluate(len(predicted)) {
					if !slices.Equal(logits, predicted[b]) {
						t.Errorf("batch %d is predicted otherwise", b)
					}
				}
			})
		}
	}
}

// Processes that are stopped at any time, each at another instant, agree on where they end: it is what one process trains with as many
// minibatches.
// If each process is stopped in another run, only this test finds processes that end behind different minibatches.
func TestProcessesAgreeOnTheirEnd(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	early := 0
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 5))
		costs := costs(w, 3, 3)
		plan := planFor(t, "contiguous", costs, pipeline.Options{Versions: pipeline.DoubleBuffered})
		if seed%2 == 1 {
			plan = planFor(t, "gpipe", costs, pipeline.Options{Microbatches: 2})
		}
		group := groupOf(t, w, costs, plan)
		x := newWorld(t, w, costs, plan, []int{0, 1, 2}, cpus(t, host.Config{Chaos: seed}), Options{})
		segments := []Segment{{Minibatches: 4 * group}, {Minibatches: 3 * group}}
		var all sync.WaitGroup
		all.Go(func() { x.stop(r) })
		ends := make([]int, len(x.all))
		x.each(func(p int) error {
			for range 3 {
				err := x.all[p].RunUntil(t.Context(), nil, segments...)
				if errors.Is(err, ErrEnough) {
					break
				}
				if err != nil {
					return err
				}
			}
			ends[p] = x.all[p].Done()
			return nil
		})
		all.Wait()
		if slices.Min(ends) != slices.Max(ends) || ends[0]%group != 0 {
			t.Fatalf("seed %d: processes end behind %v minibatches", seed, ends)
		}
		if ends[0] < 21*group {
			early++
		}
		one := newWorld(t, w, costs, plan, []int{0, 0, 0}, cpus(t, host.Config{}), Options{})
		for left := ends[0]; left > 0; {
			for _, s := range segments {
				if n := min(s.Minibatches, left); n > 0 {
					one.run(n)
					left -= n
				}
			}
		}
		x.out.Tensors, one.out.Tensors = x.tensors(), one.tensors()
		same(t, one.out, x.out)
	}
	if early == 0 {
		t.Error("no run ended early")
	}
}

// stop freezes all processes, each when it likes, and thaws them.
func (x *processes) stop(r *rand.Rand) {
	runs, known := make([]int, len(x.all)), make([][]int, len(x.all))
	var all sync.WaitGroup
	for p := range x.all {
		wait := time.Duration(r.IntN(30)) * time.Millisecond
		all.Go(func() {
			time.Sleep(wait)
			runs[p], known[p] = x.all[p].Freeze()
		})
	}
	all.Wait()
	last, most := Last(runs, known)
	for p := range x.all {
		x.all[p].Thaw(last, most)
	}
}
