package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/executor/internal/table"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// carrying returns a sequence of a stage, which may recompute, with offloads and prefetches of some activations. The stage keeps these
// activations from its forward to its backward. Prefetches are in the order in which the backward reads the activations.
func carrying(st pipeline.Stage, take func() bool) (seq schedule.Sequence) {
	ops := st.Ops
	if len(ops) == 0 {
		ops = stageops.StoreAll(st)
	}
	instruction := slices.IndexFunc(ops, func(o schedule.Op) bool { return o.Layer == st.Last }) + 1
	gone := map[int]bool{}
	for _, o := range ops[:instruction] {
		if o.Kind != schedule.ForwardDiscard && take() {
			gone[o.Layer-1] = true
			seq = append(seq, schedule.Op{Kind: schedule.Offload, Layer: o.Layer})
		}
		seq = append(seq, o)
	}
	for _, o := range ops[instruction:] {
		for _, i := range []int{o.Layer, o.Layer - 1} {
			if gone[i] && (i < o.Layer || o.Kind == schedule.Backward) {
				gone[i] = false
				seq = append(seq, schedule.Op{Kind: schedule.Prefetch, Layer: i + 1})
			}
		}
	}
	return append(seq, ops[instruction:]...)
}

// offloading returns a plan whose stages send some of their activations to the host, at a bandwidth that leaves the links a
// third of their time or more. The same seed gives the same plan.
func offloading(t testing.TB, c Costs, plan *pipeline.Plan, seed uint64) (Costs, *pipeline.Plan) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	own, platform := *plan, *c.Platform
	own.Stages = slices.Clone(plan.Stages)
	most := int64(0)
	for s := range own.Stages {
		st := &own.Stages[s]
		if r.IntN(2) == 0 {
			st.Ops = again(*st, r)
		}
		st.Ops = carrying(*st, func() bool { return r.IntN(3) > 0 })
		bytes := int64(0)
		for l := st.First; l <= st.Last; l++ {
			bytes += c.Chain.Activation(l-1) + c.Chain.Saved(l)
		}
		most = max(most, bytes)
	}
	platform.Host, platform.Duplex = 3*2*float64(most)/plan.Period, seed%2 == 0
	c.Platform = &platform
	own.Platform = &platform
	return c, &own
}

// transfers counts those of a plan.
func transfers(plan *pipeline.Plan) (n int) {
	for _, st := range plan.Stages {
		for _, o := range st.Ops {
			if o.Kind.Transfer() {
				n++
			}
		}
	}
	return n
}

// staying returns a plan without the transfers of its stages.
func staying(plan *pipeline.Plan) *pipeline.Plan {
	own := *plan
	own.Stages = slices.Clone(plan.Stages)
	for s := range own.Stages {
		st := &own.Stages[s]
		st.Ops = slices.DeleteFunc(slices.Clone(st.Ops), func(o schedule.Op) bool { return o.Kind.Transfer() })
	}
	return &own
}

// Stages that offload give the bits of stages that do not, whatever streams are slow.
func TestStagesThatOffload(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	moved, ahead, seeds := 0, 0, uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		versions := asynchronous[seed%4]
		t.Run(fmt.Sprintf("%d/%s", seed, versions), func(t *testing.T) {
			c := costs(w, 2+int(seed)%3, seed)
			plan := planFor(t, "1f1b*", c, pipeline.Options{Versions: versions, WeightCopies: []float64{6}})
			c, own := offloading(t, c, plan, seed)
			if _, err := pipeline.Swaps(c.Chain, c.Platform, own); err != nil {
				t.Skip(err)
			}
			moved += transfers(own)
			n := 10 * groupOf(t, w, c, plan)
			e, want := trained(t, w, c, staying(own), n, host.Config{})
			want.Tensors = tensors(t, e)
			for chaos := range uint64(2) {
				e, got := trained(t, w, c, own, n, host.Config{Chaos: chaos})
				got.Tensors = tensors(t, e)
				same(t, want, got)
				if first := e.drivers[own.Stages[0].Devices[0]].ringed(); first != nil && first.ring.ahead {
					ahead++
				}
			}
		})
	}
	if moved < 3*int(seeds) || ahead == 0 {
		t.Errorf("only %d transfers in all plans; images came ahead of their forward in %d runs", moved, ahead)
	}
}

// Segments of a run follow each other without a wait: the slots of the next one go on behind those that the one before has left.
func TestSegmentsThatOffload(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	segments := []Segment{{Minibatches: 3}, {Minibatches: 1}, {Minibatches: 7}, {Minibatches: 2}}
	for seed := range uint64(4) {
		c := costs(w, 2+int(seed)%2, seed)
		c, plan := offloading(t, c, planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash}), seed)
		run := func(plan *pipeline.Plan, chaos uint64, joined bool) *pipelinetest.Outcome {
			out := &pipelinetest.Outcome{Losses: make([]float64, 13), Correct: make([]int, 13)}
			e, err := New(w, targets(t, c.Platform.Devices, host.Config{Chaos: chaos}), c, plan, Options{
				Feed: feedOf(w.Model), Seed: 7, Rate: rate,
				Done: func(r Result) { out.Losses[r.Minibatch], out.Correct[r.Minibatch] = r.Loss, r.Correct },
			})
			must(t, err)
			if joined {
				for _, s := range segments {
					must(t, e.Run(t.Context(), s.Minibatches))
				}
			} else {
				must(t, e.RunUntil(t.Context(), nil, segments...))
			}
			out.Tensors = tensors(t, e)
			return out
		}
		want := run(staying(plan), 0, true)
		same(t, want, run(plan, 0, false))
		same(t, want, run(plan, seed+1, false))
	}
}

// Transfers are ordered with all that shares their memory, in the arena and in the host's memory. The test sees a missing wait of a ring,
// and a sender's missing wait for the copy of the block that it sends to. A few waits are redundant, because others give the same order.
func TestEventsOrderTransfers(t *testing.T) {
	t.Parallel()
	lib := targets(t, 1, host.Config{})[0].Library
	w := workload(t, plainModel(t))
	dropped, seen, copied, r := 0, 0, 0, rand.New(rand.NewPCG(1, 6))
	for seed := range uint64(4) {
		c := costs(w, 2+int(seed)%2, seed)
		c, plan := offloading(t, c, planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash}), seed)
		if racesWithout(t, w, lib, c, plan, func(*Executor, *history) {}) {
			t.Errorf("seed %d: something has no order", seed)
		}
		for range 10 {
			if racesWithout(t, w, lib, c, plan, func(e *Executor, _ *history) { dropOne(e, r) }) {
				seen++
			}
			dropped++
		}
		if racesWithout(t, w, lib, c, plan, func(e *Executor, h *history) {
			h.deaf = map[runtime.Event]bool{}
			for _, l := range e.channels {
				for _, ev := range l.copied {
					h.deaf[ev] = true
				}
			}
		}) {
			copied++
		}
	}
	t.Logf("%d of %d missing waits are seen, those of senders in %d plans", seen, dropped, copied)
	if seen < dropped*2/3 || copied == 0 {
		t.Errorf("%d of %d missing waits are seen, those of senders in %d plans", seen, dropped, copied)
	}
}

// racesWithout reports whether something has no order when waits of a plan are left out.
func racesWithout(t *testing.T, w *Workload, lib kernels.Library, c Costs, plan *pipeline.Plan, leaveOut func(*Executor, *history)) bool {
	t.Helper()
	h := &history{drop: none}
	e := idleNew(t, w, lib, c, plan, h)
	leaveOut(e, h)
	h.deeds = h.deeds[:0]
	must(t, e.RunUntil(t.Context(), nil, Segment{Minibatches: 14}, Segment{Minibatches: 9}))
	return h.race() != nil
}

// dropOne leaves out one of the waits of a plan's rings, in all periods.
func dropOne(e *Executor, r *rand.Rand) {
	type wait struct {
		of *table.Row
		c  *table.Command
	}
	var all []wait
	for _, d := range e.drivers {
		for i := range d.table.Rows {
			r := &d.table.Rows[i]
			for c := range r.Commands() {
				if w := (wait{r, c}); c.Verb == table.DoWait && c.Played == table.Always && !slices.Contains(all, w) {
					all = append(all, w)
				}
			}
		}
	}
	w := all[r.IntN(len(all))]
	for _, list := range w.of.Lists {
		for i := range list {
			for k, c := range list[i].Variants {
				if c == w.c {
					list[i].Variants[k] = &table.Command{Played: table.Never}
				}
			}
		}
	}
}

// Every device writes up to the last byte that a plan with transfers was said to need, and none beyond, in the arena and in
// page-locked memory.
func TestTransfersTouchExactlyThePredictedMemory(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	const beyond = 1 << 16
	looked := 0
	for seed := range uint64(4) {
		c := costs(w, 2, seed)
		c, plan := offloading(t, c, planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash}), seed)
		needs, err := Needs(w, c, plan, Options{})
		must(t, err)
		on, opt := targets(t, 2, host.Config{}), Options{Feed: feedOf(w.Model), Rate: rate}
		for _, n := range needs {
			opt.Limits = append(opt.Limits, n.Extent+beyond)
		}
		e, err := New(w, on, c, plan, opt)
		must(t, err)
		end := func(d *driver, space runtime.Space, from, to int64) int64 {
			all := make([]byte, to)
			must(t, on[d.Number].Device.(runtime.Inspector).Peek(runtime.Span{Space: space, Bytes: to}, all))
			return from + int64(len(bytes.TrimRight(all[from:], "\xff")))
		}
		for _, d := range e.drivers {
			m := needs[d.Number]
			for _, s := range []runtime.Span{{Offset: m.Static, Bytes: m.Extent + beyond - m.Static}, {Space: runtime.Host, Bytes: d.hostBytes}} {
				must(t, on[d.Number].Device.(runtime.Inspector).Fill(s, 0xFF))
			}
		}
		must(t, e.Run(t.Context(), 12))
		for _, d := range e.drivers {
			m := needs[d.Number]
			if got := end(d, runtime.Arena, m.Static, m.Extent+beyond); got > m.Extent || got <= m.Extent-2*kernels.Alignment || m.Peak > m.Extent {
				t.Errorf("seed %d, device %d: wrote up to byte %d, predicted %+v", seed, d.Number, got, m)
			}
			if m.Offloaded == 0 {
				continue
			}
			if got := end(d, runtime.Host, d.hostBytes-m.Offloaded, d.hostBytes); got <= d.hostBytes-2*kernels.Alignment {
				t.Errorf("seed %d, device %d: wrote up to byte %d of the host, predicted %+v", seed, d.Number, got, m)
			}
			if err := on[d.Number].Device.(runtime.Inspector).Peek(runtime.Span{Space: runtime.Host, Offset: d.hostBytes, Bytes: 1}, make([]byte, 1)); err == nil {
				t.Errorf("seed %d, device %d: more page-locked memory than %d bytes", seed, d.Number, d.hostBytes)
			}
			looked++
		}
	}
	if looked < 6 {
		t.Errorf("looked at %d devices that offload only", looked)
	}
}

// A transfer that fails is named, with its device, stage and minibatch, whoever notices first.
func TestAFailingTransferIsNamed(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c := costs(w, 2, 1)
	c, plan := offloading(t, c, planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash}), 1)
	duplex := *c.Platform
	duplex.Duplex = true
	c.Platform = &duplex
	const stride = 37 // not to go through the beginning of a run first
	broken, named := errors.New("broken"), map[string]int{}
	// run fails at a copy to the host or back, counted from 0, and returns how many there were.
	run := func(failing int64) (*Executor, int64, error) {
		var copies atomic.Int64
		copies.Store(math.MinInt64)
		e, err := New(w, targets(t, 2, host.Config{Fault: func(op string) error {
			if op == "copy" && copies.Add(1)-1 == failing {
				return broken
			}
			return nil
		}}), c, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate, Past: Past{Minibatches: 20}})
		must(t, err)
		copies.Store(0)
		err = e.Run(t.Context(), 8)
		return e, copies.Load(), err
	}
	_, all, err := run(-1)
	must(t, err)
	// Which copy has a number is not the same in every run: one after the other fails until both kinds have.
	for i := int64(0); i < all && (named["O"] < 5 || named["P"] < 5); i++ {
		e, _, err := run(i * stride % all)
		var task *TaskError
		var stream *runtime.StreamError
		if !errors.Is(err, broken) || !errors.As(err, &task) || !errors.As(err, &stream) {
			t.Fatalf("%v", err)
		}
		for inner := stream; errors.As(inner.Err, &inner); {
			stream = inner
		}
		kind := map[string]string{"to the host": "O", "from the host": "P"}[stream.Stream]
		if kind == "" {
			continue
		}
		named[kind]++
		layer, stage := 0, 0
		if n, err := fmt.Sscanf(task.Task, kind+"%d of stage %d", &layer, &stage); n != 2 || err != nil {
			t.Errorf("stream %s: %v", stream.Stream, task)
			continue
		}
		if st := plan.Stages[stage]; st.Devices[0] != task.Device || layer < st.First || layer > st.Last || task.Minibatch < 20 || task.Minibatch > 27 {
			t.Errorf("stream %s: %v", stream.Stream, task)
		}
		if err := e.Run(t.Context(), 4); !errors.Is(err, ErrStopped) {
			t.Errorf("after a failure: %v", err)
		}
	}
	if named["O"] == 0 || named["P"] == 0 {
		t.Errorf("transfers that failed: %v", named)
	}
}

// failing is a stream on which a copy fails, after so many others.
type failing struct {
	runtime.Stream
	after *int
	with  error
}

func (s failing) Copy(dst, src runtime.Span) error {
	if *s.after--; *s.after == -1 {
		return s.Launch(host.Func{Name: "no copy", Do: func() error { return s.with }})
	}
	return s.Stream.Copy(dst, src)
}

// Images that come ahead and do not arrive are named by their forward, not by the task that was issued before or behind them.
func TestImagesThatDoNotComeAreNamed(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c := costs(w, 2, 0)
	c, plan := offloading(t, c, planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash}), 0)
	broken := errors.New("broken")
	for minibatch := range 8 {
		e, err := New(w, targets(t, 2, host.Config{}), c, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate, Past: Past{Minibatches: 20}})
		must(t, err)
		d := e.drivers[plan.Stages[0].Devices[0]]
		if first := d.ringed(); first == nil || !first.ring.ahead || first.ring.piece < w.Model.Input.Bytes() {
			t.Fatal("images do not come ahead, in a copy each")
		}
		after := minibatch
		s := failing{d.batches.S, &after, broken}
		for i := range d.table.Rows {
			for c := range d.table.Rows[i].Commands() {
				if c.On.Number == d.batches.Number && c.On.Of != nil {
					c.On.S = s
				}
			}
		}
		err = e.Run(t.Context(), 8)
		if !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		wantTask(t, e, err, d.Number, "F0", 20+minibatch)
	}
}

// A device that is stuck in a backward is said to issue that backward, although a transfer of another minibatch was issued in between.
func TestATaskIsNamedBehindATransferInIt(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c := costs(w, 2, 0)
	c, plan := offloading(t, c, planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash}), 0)
	e, err := New(w, targets(t, 2, host.Config{}), c, plan, Options{Feed: still{}, Rate: rate})
	must(t, err)
	inside := 0
	for _, d := range e.drivers {
		d.begin(e.done)
		var outer, inner *order.Instance
		must(t, d.table.Play(order.NewBound(12), func(c *table.Command, v *order.Instance) error {
			is := *v
			switch c.Verb {
			case table.DoBegin:
				inner = &is
			case table.DoStart:
				outer = &is
			case table.DoEnd:
				inner = nil
			case table.DoFinish:
				outer = nil
			default:
				return nil
			}
			if err := d.playCommand(t.Context(), c, v); err != nil {
				return err
			}
			if c.Verb == table.DoEnd && outer != nil {
				inside++
			}
			want := outer
			if inner != nil {
				want = inner
			}
			if want == nil {
				if got := d.status(); !strings.HasPrefix(got, "waits for its streams") {
					t.Errorf("behind %s of minibatch %d: %s", v.Name(), v.Minibatch, got)
				}
				return nil
			}
			task := *want
			task.Layer = 0 // a status names the task that a transfer is for
			text := fmt.Sprintf("issues %s of minibatch %d", task.Name(), want.Minibatch)
			if got := d.status(); !strings.HasPrefix(got, text) || d.now != *want {
				t.Errorf("behind %s of minibatch %d: %s, want %s", v.Name(), v.Minibatch, got, text)
			}
			return nil
		}))
		must(t, d.finish())
	}
	if inside < 12 {
		t.Errorf("%d transfers end inside of tasks, want 12", inside)
	}
}

// lag returns the longest delay, in seconds, of a ring's compute behind its planned start in the given number of periods. Every step takes
// its planned time, and data from other devices is there in time. Transfers run as soon as they can.
func lag(r *ring, planned []pipeline.Span, period float64, periods int) (worst float64) {
	free := make([]float64, r.streams())
	ends := map[stepRef]float64{}
	for j := range periods {
		for i := range r.steps {
			s := &r.steps[i]
			slot := mod(j+s.Shift, r.slots)
			due, start := planned[i].Start+float64(j)*period, free[s.on]
			for _, p := range s.waits[slot] {
				start = max(start, ends[p])
			}
			if s.swap == none {
				start = max(start, due)
			}
			if s.on == onCompute {
				worst = max(worst, start-due)
			}
			free[s.on] = start + planned[i].End - planned[i].Start
			ends[stepRef{i, slot}] = free[s.on]
		}
	}
	return worst
}

// stepTimes returns when the steps of a ring run by the plan, in seconds, from the beginning of the period on.
func stepTimes(t *testing.T, w *Workload, c Costs, plan *pipeline.Plan, x *localStage) (all []pipeline.Span) {
	t.Helper()
	k, err := newClock(c, plan)
	must(t, err)
	swaps, err := pipeline.Swaps(c.Chain, c.Platform, plan)
	must(t, err)
	entered, now := k.span(pipeline.F, x.stage, 0).Start, 0.0
	for i := range x.ring.steps {
		s := &x.ring.steps[i]
		var start, length float64
		switch {
		case s.swap != none:
			p := swaps[x.stage][s.swap]
			if start, length = entered+p.Back, p.Seconds; s.Kind == pipeline.F {
				start = entered + p.Out
			}
		case s.batch:
			length = float64(w.Model.Input.Bytes()) / c.Platform.Host
			start = entered - length
		case s.Kind == pipeline.Update:
			start = k.span(pipeline.B, x.stage, 0).End
		case s.Kind.Communication():
			start, length = k.span(s.Kind, s.Stage, 0).Start, k.length(s.Kind, s.Stage, 0)
		case s.begin:
			start = k.span(s.Kind, x.stage, 0).Start
			now = start
		default:
			start, length = now, s.length
			now += length
		}
		start += float64(s.Shift) * plan.Period
		all = append(all, pipeline.Span{Start: start, End: start + length})
	}
	return all
}

// A piece of a transfer is whole pages, at least one, and all of it where nobody knows how fast it is.
func TestPieces(t *testing.T) {
	t.Parallel()
	for bandwidth, want := range map[float64]int64{0: math.MaxInt64, 1: 4096, 1e9: 48 * 4096, 2.5e10: 1220 * 4096} {
		if got := pieceBytes(bandwidth); got != want {
			t.Errorf("at %g bytes/s a piece is %d bytes, want %d", bandwidth, got, want)
		}
	}
}

// A stage with ops of its own holds what the planner counts, and no more, and what waits for what never holds it up.
func TestRingsKeepThePlan(t *testing.T) {
	t.Parallel()
	m, err := models.New("resnet20", models.Config{Batch: 8, Image: 16, Classes: 5})
	must(t, err)
	w := workload(t, m)
	rings, moved, ahead := 0, 0, 0
	for seed := range uint64(4) {
		c := costs(w, 3+int(seed)%2, seed)
		most := int64(0)
		for _, m := range planFor(t, "contiguous", c, pipeline.Options{Accounting: pipeline.Saved, Versions: pipeline.Stash}).PerDevicePeak {
			most = max(most, m)
		}
		s, err := planner.LookupPipeline("loadline")
		must(t, err)
		c.Platform.Host, c.Platform.Duplex = 2e7, seed%2 == 0
		solve := func(memory int64) (*pipeline.Plan, error) {
			c.Platform = c.Platform.WithMemory(memory)
			return s.Solve(t.Context(), pipeline.Request{Chain: c.Chain, Platform: c.Platform, Options: pipeline.Options{Accounting: pipeline.Saved, Versions: pipeline.Stash}})
		}
		var small *pipeline.InfeasibleError
		if _, err := solve(0); !errors.As(err, &small) {
			t.Fatalf("%v", err)
		}
		for share := range int64(3) {
			plan, err := solve(small.Smallest + (most-small.Smallest)*share/3)
			must(t, err)
			report, err := pipeline.Check(c.Chain, c.Platform, plan)
			must(t, err)
			e := &layout{Workload: w}
			must(t, e.layOut(c, plan, c.Platform.Devices))
			needs := e.memory
			for _, d := range e.drivers {
				if x := d.ringed(); x != nil {
					if x.ring.ahead {
						ahead++
					}
					if worst := lag(x.ring, stepTimes(t, w, c, plan, x), plan.Period, 20*x.ring.slots); worst > 1e-6*plan.Period {
						t.Errorf("seed %d, memory %d, stage %d: compute starts %v s late in a period of %v s; %v", seed, share, x.stage, worst, plan.Period, x.spec.Ops)
					}
				}
			}
			moved += transfers(plan)
			for s, st := range plan.Stages {
				if len(st.Ops) == 0 {
					continue
				}
				d := st.Devices[0]
				held := report.PerDevicePeak[d] - report.PerDeviceWeights[d] - report.PerDeviceBuffers[d]
				// Blocks are aligned, each minibatch has its scalars and labels, and an output waits until it has left.
				slack := int64(report.NCA[s]+1)*ringScalars + int64(len(st.Ops))*int64(report.NCA[s]+1)*2*kernels.Alignment + c.Chain.Activation(st.Last)
				if got := needs[d].InFlight; got > held+slack {
					t.Errorf("seed %d, memory %d, stage %d: %d bytes in flight, counted are %d; %v", seed, share, s, got, held, st.Ops)
				}
				rings++
			}
		}
	}
	t.Logf("%d stages with ops, %d transfers; images come ahead of their forward in %d plans", rings, moved, ahead)
	if rings < 8 || moved < 20 || ahead == 0 {
		t.Errorf("%d stages with ops, %d transfers", rings, moved)
	}
}
