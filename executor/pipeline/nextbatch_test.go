package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// testPalette is a palette of three channels.
func testPalette() []float32 {
	p := make([]float32, 3*256)
	for i := range p {
		p[i] = float32((float64(i%256)/255 - 0.4 - 0.1*float64(i/256)) / 0.23)
	}
	return p
}

// pixels serves seeded batches of bytes, or the same ones as numbers.
type pixels struct{ random }

// Pixels implements PixelFeed.
func (pixels) Pixels(m int, dst []uint8) error {
	g := rand.New(rand.NewPCG(uint64(m), 9))
	for i := range dst {
		dst[i] = uint8(g.Uint32())
	}
	return nil
}

// Images implements Feed.
func (p pixels) Images(m int, dst []float32) error {
	all, palette := make([]uint8, len(dst)), testPalette()
	_ = p.Pixels(m, all)
	for i, v := range all {
		dst[i] = palette[i%3*256+int(v)]
	}
	return nil
}

// unstaged trains a model with the sequential reference on the numbers of batches of bytes, with a prediction behind every step.
func unstaged(t *testing.T, on executor.Target, m *models.Model, steps int) (out *pipelinetest.Outcome, logits [][]float32) {
	t.Helper()
	feed := pixels{feedOf(m)}
	r := predictor(t, on, m, func(k int, images []float32, labels []int32) {
		must(t, errors.Join(feed.Images(k, images), feed.Labels(k, labels)))
	})
	var err error
	for step := range steps {
		out, err = r.Run(pipelinetest.Flush(1), step+1)
		must(t, err)
		predicted, err := r.Predict(out.Tensors, 100+step)
		must(t, err)
		logits = append(logits, predicted)
	}
	return out, logits
}

// later is a feed of other batches.
type later struct {
	PixelFeed
	by int
}

func (l later) Pixels(m int, dst []uint8) error { return l.PixelFeed.Pixels(m+l.by, dst) }

func (l later) Images(m int, dst []float32) error { return l.PixelFeed.Images(m+l.by, dst) }

// inRuns trains in runs of one step each, and predicts between them.
func inRuns(t *testing.T, e *Executor, out *pipelinetest.Outcome, steps int) (logits [][]float32) {
	t.Helper()
	for m := range steps {
		must(t, e.Run(t.Context(), e.Group()))
		must(t, e.Evaluate(t.Context(), later{e.opt.Feed.(PixelFeed), 100 + m}, 1, func(_ int, got []float32) error {
			logits = append(logits, slices.Clone(got))
			return nil
		}))
	}
	out.Tensors = tensors(t, e)
	return logits
}

// A step on a staged batch trains what the sequential reference trains, with the planned peak. That peak has the staged bytes on top of the
// same plan's without. Plans are of a chain, with recomputation and transfers, and of branches that meet; a run has several steps.
// Only this test finds a staged batch that another step's ops, a transfer or an evaluation overwrites.
func TestStagedBatchesTrainAsTheReference(t *testing.T) {
	t.Parallel()
	const steps = 4
	ran, moved := 0, 0
	for _, m := range append([]*models.Model{testModel(t)}, joins(t)["cross"], joins(t)["siamese"]) {
		plain := workload(t, m)
		w := plain.Stage(testPalette())
		c := counted(w, 1).Chain
		c.Bandwidth = 2e9
		full, err := w.Extent(w.StoreAll())
		must(t, err)
		want, predicted := unstaged(t, targets(t, 1, host.Config{})[0], m, steps)
		names := []string{"store-all", "rotor", "offload-greedy", "offload-dynprog"}
		if m.Wiring().Joins() {
			names = []string{"multi-empty", "multi-delta"}
		}
		for k, name := range names {
			s, err := planner.Lookup(name)
			must(t, err)
			limit := w.StaticBytes() + (full-w.StaticBytes())*int64(7+3*max(0, 1-k))/10
			plan, err := executor.Plan(t.Context(), w, c, s, limit, strategy.Options{HostMemory: 1 << 30})
			if small, ok := errors.AsType[*executor.TooSmallError](err); ok {
				limit = small.Smallest
				plan, err = executor.Plan(t.Context(), w, c, s, limit, strategy.Options{HostMemory: 1 << 30})
			}
			must(t, err)
			what := fmt.Sprintf("%s, %s", m.Name, name)
			sim, on := executor.Following(c, plan), Costs{c, plan.Platform}
			at, err := w.Layout(plan.Sequence(), limit, sim)
			must(t, err)
			opt := Options{Limits: []int64{max(limit, at.Extent)}, Rate: rate, Seed: 7, Audit: k%2 == 0, Feed: pixels{feedOf(m)}}
			out := &pipelinetest.Outcome{}
			opt.Done = func(r Result) { out.Losses, out.Correct = append(out.Losses, r.Loss), append(out.Correct, r.Correct) }
			e, err := New(w, targets(t, 1, host.Config{Chaos: uint64(ran + 1)}), on, plan, opt)
			must(t, err)
			logits := inRuns(t, e, out, steps)
			if d := want.FirstDifference(out); d != "" {
				t.Errorf("%s: %s", what, d)
			}
			if !slices.EqualFunc(predicted, logits, func(a, b []float32) bool { return slices.Equal(a, b) }) {
				t.Errorf("%s: other predictions", what)
			}
			without, err := Needs(plain, on, plan, Options{})
			must(t, err)
			if m := e.memory[0]; m.Peak != at.Peak || m.Peak-without[0].Peak != w.StagedBytes() || m.Extent > opt.Limits[0] {
				t.Errorf("%s: %+v in %d; planned %d; without staging %+v, %d staged", what, m, opt.Limits[0], at.Peak, without[0], w.StagedBytes())
			}
			for _, a := range e.Audited() {
				if a.PeakBytes != at.Peak {
					t.Errorf("%s: audited peak %d, want %d", what, a.PeakBytes, at.Peak)
				}
			}
			opt.Audit = false
			*out = pipelinetest.Outcome{}
			e, err = New(w, targets(t, 1, host.Config{Chaos: uint64(ran + 50)}), on, plan, opt)
			must(t, err)
			must(t, e.RunUntil(t.Context(), nil, Segment{Minibatches: 2}, Segment{Minibatches: steps - 2}))
			out.Tensors = tensors(t, e)
			if d := want.FirstDifference(out); d != "" {
				t.Errorf("%s, in one run: %s", what, d)
			}
			if ran++; plan.Offloads() {
				moved++
			}
		}
	}
	t.Logf("%d plans, %d of them with transfers", ran, moved)
	if ran != 8 || moved < 2 {
		t.Errorf("%d plans, %d of them with transfers", ran, moved)
	}
}

// Staged batches change no bit on several devices, in one process and in two, and with several microbatches in a step. This also holds
// where a device begins with another microbatch than the first, and where stages have replicas.
func TestStagedBatchesChangeNoBitOfAPipeline(t *testing.T) {
	t.Parallel()
	m := testModel(t)
	plain := workload(t, m)
	w := plain.Stage(testPalette())
	others := 0
	for k, name := range []string{"1f1b-flush", "gpipe", "interleaved", "chimera", "zb-h1"} {
		c := costs(w, 2+2*(k%2), 3)
		plan := planFor(t, name, c, pipeline.Options{Microbatches: 4})
		var all [2]*pipelinetest.Outcome
		for i, x := range []*Workload{plain, w} {
			out := &pipelinetest.Outcome{Losses: make([]float64, 12), Correct: make([]int, 12)}
			opt := Options{Rate: rate, Seed: 7, Feed: pixels{feedOf(m)}}
			opt.Done = func(r Result) { out.Losses[r.Minibatch], out.Correct[r.Minibatch] = r.Loss, r.Correct }
			e, err := New(x, targets(t, c.Platform.Devices, host.Config{Chaos: uint64(10*k + i + 1)}), c, plan, opt)
			must(t, err)
			for range 12 / e.Group() {
				must(t, e.Run(t.Context(), e.Group()))
			}
			out.Tensors = tensors(t, e)
			all[i] = out
			for _, d := range e.drivers {
				for _, o := range d.table.Opens {
					if o.Minibatch > 0 {
						others++
					}
				}
			}
		}
		if d := all[0].FirstDifference(all[1]); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		process := []int{0, 1, 1, 0}[:c.Platform.Devices]
		x := newWorldOf(t, New, w, c, plan, process, cpus(t, host.Config{Chaos: uint64(k + 1)}), Options{Feed: pixels{feedOf(m)}})
		x.run(4)
		if d := all[0].FirstDifference(x.trained(4)); d != "" {
			t.Errorf("%s, in two processes: %s", name, d)
		}
	}
	if others == 0 {
		t.Error("every device begins with the first microbatch")
	}
}

// Invariant 1.
func TestStepsOnStagedBatchesAllocateNothing(t *testing.T) {
	// Serial: it counts allocations.
	m := testModel(t)
	e := stagedOn(t, m, targets(t, 1, host.Config{})[0], quiet{})
	steps := func(n int) float64 {
		return testing.AllocsPerRun(1, func() { must(t, e.Run(context.Background(), n)) })
	}
	steps(1)
	if short, long := steps(1), steps(41); long-short > 4 { // the runtime itself allocates now and then
		t.Errorf("%v allocations in a run of a step, %v in one of 41", short, long)
	}
}

// quiet is a feed that leaves the buffers as they are.
type quiet struct{ still }

func (quiet) Pixels(int, []uint8) error { return nil }

// gated holds the update of a step until the gate opens.
type gated struct {
	kernels.Library
	gate *atomic.Pointer[chan struct{}]
}

type gatedLaunch struct {
	runtime.Launch
	gate *atomic.Pointer[chan struct{}]
}

func (g gated) PrepareUpdate(u kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	l, err := g.Library.PrepareUpdate(u, all...)
	return gatedLaunch{l, g.gate}, err
}

func (g gatedLaunch) Run() error {
	<-*g.gate.Load()
	return g.Launch.(interface{ Run() error }).Run()
}

// told is a feed that says which batch it was asked for.
type told struct {
	pixels
	asked chan int
}

func (f told) Labels(m int, dst []int32) error {
	defer func() { f.asked <- m }()
	return f.pixels.Labels(m, dst)
}

// stagedOn returns an executor of a staged store-all of a model on a device, and where it runs.
func stagedOn(t *testing.T, m *models.Model, on executor.Target, feed Feed) *Executor {
	t.Helper()
	w := workload(t, m).Stage(testPalette())
	c := counted(w, 1)
	s, err := planner.Lookup("store-all")
	if m.Wiring().Joins() {
		s, err = planner.Lookup("multi-empty")
	}
	must(t, err)
	plan, err := executor.Plan(t.Context(), w, c.Chain, s, 1<<30, strategy.Options{})
	must(t, err)
	e, err := New(w, []executor.Target{on}, Costs{c.Chain, plan.Platform}, plan, Options{Feed: feed, Rate: rate, Seed: 7})
	must(t, err)
	return e
}

// The next batch is on the device while the step before it still computes: it waits for nothing that the step does behind taking its own.
func TestTheNextBatchIsOnTheDeviceBesideAStep(t *testing.T) {
	t.Parallel()
	var gate atomic.Pointer[chan struct{}]
	on := targets(t, 1, host.Config{})[0]
	on.Library = gated{on.Library, &gate}
	m := plainModel(t)
	feed := told{pixels{feedOf(m)}, make(chan int, 2)}
	e := stagedOn(t, m, on, feed)
	d := e.drivers[0]
	for step := range 3 {
		shut := make(chan struct{})
		gate.Store(&shut)
		ended := make(chan error, 1)
		go func() { ended <- e.Run(context.Background(), 1) }()
		if step == 0 {
			<-feed.asked
		}
		if next := <-feed.asked; next != step+1 {
			t.Errorf("step %d: batch %d is asked for", step, next)
		}
		want := make([]uint8, e.Model.Input.Elements())
		must(t, feed.Pixels(step+1, want))
		there := make([]byte, len(want))
		for !slices.Equal(there, want) { // until it has come, or the test has run too long
			must(t, d.batches.S.Synchronize())
			must(t, on.Device.(runtime.Inspector).Peek(d.stages[0].waiting.images[0], there))
		}
		select {
		case err := <-ended:
			t.Fatalf("step %d has ended with its update held: %v", step, err)
		default:
		}
		close(shut)
		must(t, <-ended)
	}
}

// Without any one of the waits of staging the tables are not proved.
func TestEveryWaitOfStagingIsNeeded(t *testing.T) {
	t.Parallel()
	m := joins(t)["cross"]
	e := stagedOn(t, m, targets(t, 1, host.Config{})[0], pixels{feedOf(m)})
	d := e.drivers[0]
	staging := map[runtime.Event]bool{d.stages[0].waiting.taken: true}
	for _, ev := range d.staging[0].staged {
		staging[ev] = true
	}
	must(t, e.prove())
	dropped := 0
	for _, c := range slices.Collect(d.table.Commands()) {
		if c.Verb != table.DoWait && c.Work != table.FillAhead || !staging[c.Event] {
			continue
		}
		was := *c
		if c.Event = nil; c.Verb == table.DoWait {
			c.Verb = table.DoBegin
		}
		if err := e.prove(); !errors.As(err, new(*OrderError)) {
			t.Errorf("without %s of %v: %v", table.Verbs[was.Verb], was.Event, err)
		}
		*c = was
		dropped++
	}
	if must(t, e.prove()); dropped != 3 {
		t.Errorf("%d waits", dropped)
	}
}

// torn is a feed of which one batch cannot be read.
type torn struct {
	pixels
	bad int
	err error
}

func (f torn) Pixels(m int, dst []uint8) error {
	if m == f.bad {
		return f.err
	}
	return f.pixels.Pixels(m, dst)
}

// A batch that cannot be read, or copied, fails the step that it is for, and leaves the one beside it as it is.
func TestABatchThatCannotBeStagedFailsItsStep(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	m := plainModel(t)
	var armed atomic.Bool
	fault := func(op string) error {
		if op == "copy" && armed.Load() {
			return broken
		}
		return nil
	}
	for name, e := range map[string]*Executor{
		"read":   stagedOn(t, m, targets(t, 1, host.Config{})[0], torn{pixels{feedOf(m)}, 2, broken}),
		"copied": stagedOn(t, m, targets(t, 1, host.Config{Fault: fault})[0], pixels{feedOf(m)}),
	} {
		must(t, e.Run(t.Context(), 1))
		if name == "copied" {
			e.opt.Feed = before{e.opt.Feed.(PixelFeed), 2, func() error { // no copy of the step beside it is left
				err := e.drivers[0].compute.S.Synchronize()
				armed.Store(true)
				return err
			}}
		}
		must(t, e.Run(t.Context(), 1))
		if err := e.drivers[0].batches.S.Synchronize(); (err != nil) != armed.Load() {
			t.Errorf("%s: %v", name, err)
		}
		armed.Store(false)
		err := e.Run(t.Context(), 1)
		if task := (*TaskError)(nil); !errors.As(err, &task) || !errors.Is(err, broken) || task.Minibatch != 2 || !strings.HasPrefix(task.Task, "F0") {
			t.Errorf("%s: %v", name, err)
		}
		if err := e.Run(t.Context(), 1); !errors.Is(err, ErrStopped) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// before is a feed that does something before it gives the images of a batch.
type before struct {
	PixelFeed
	at int
	do func() error
}

func (f before) Pixels(m int, dst []uint8) error {
	if m == f.at {
		if err := f.do(); err != nil {
			return err
		}
	}
	return f.PixelFeed.Pixels(m, dst)
}

// An evaluation leaves the next batch of a run alone in page-locked memory until that is on the device.
func TestAnEvaluationWaitsForTheBatchThatLeaves(t *testing.T) {
	t.Parallel()
	var hold atomic.Pointer[chan struct{}]
	fault := func(op string) error {
		if gate := hold.Load(); op == "copy" && gate != nil && hold.CompareAndSwap(gate, nil) {
			<-*gate
		}
		return nil
	}
	m := plainModel(t)
	e := stagedOn(t, m, targets(t, 1, host.Config{Fault: fault})[0], quiet{})
	gate := make(chan struct{})
	e.opt.Feed = before{pixels{feedOf(m)}, 1, func() error {
		err := e.drivers[0].compute.S.Synchronize()
		hold.Store(&gate) // the next copy is that of the batch
		return err
	}}
	must(t, e.Run(t.Context(), 1))
	var open atomic.Bool
	time.AfterFunc(30*time.Millisecond, func() {
		open.Store(true)
		close(gate)
	})
	asked := before{pixels{feedOf(m)}, 0, func() error {
		if !open.Load() {
			return errors.New("asked for images while a batch leaves their place")
		}
		return nil
	}}
	must(t, e.Evaluate(t.Context(), asked, 1, func(int, []float32) error { return nil }))
	must(t, e.Run(t.Context(), 1))
}

// A run that cannot have its next batch on the device is refused.
func TestStagingRefuses(t *testing.T) {
	t.Parallel()
	m := plainModel(t)
	w := workload(t, m).Stage(testPalette())
	c := costs(w, 2, 1)
	plan := planFor(t, "1f1b*", c, pipeline.Options{})
	_, err := New(w, targets(t, 2, host.Config{}), c, plan, Options{Feed: pixels{feedOf(m)}, Rate: rate})
	if !errors.Is(err, order.ErrPlan) || !strings.Contains(err.Error(), "is for plans with a flush") {
		t.Errorf("%v", err)
	}
	plan = planFor(t, "gpipe", c, pipeline.Options{Microbatches: 2})
	_, err = New(w, targets(t, 2, host.Config{}), c, plan, Options{Feed: feedOf(m), Rate: rate})
	if !errors.Is(err, order.ErrPlan) || !strings.Contains(err.Error(), "has no Pixels") {
		t.Errorf("%v", err)
	}
	e, err := New(w, targets(t, 2, host.Config{}), c, plan, Options{Feed: pixels{feedOf(m)}, Rate: rate})
	must(t, err)
	if err := e.Evaluate(t.Context(), feedOf(m), 1, nil); !errors.Is(err, order.ErrPlan) {
		t.Errorf("%v", err)
	}
	must(t, e.Run(t.Context(), e.Group()))
}
