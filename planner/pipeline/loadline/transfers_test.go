package loadline

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// These tests judge the transfers and the memory of a stage that offloads, on the absolute times of many minibatches. They use nothing of
// package loadline but the plan and the starts of the transfers.

// timed is an op or a transfer of one minibatch, in absolute time.
type timed struct {
	op         schedule.Op
	begin, end float64
	limit      float64 // of an offload: when it may begin; of a prefetch: when it must have ended
	number     int
	over       int64
	takes      []tensor // when it begins
	frees      []tensor // when it ends
	reads      []tensor
}

// offloader unrolls a stage of a plan.
type offloader struct {
	c      *chain.Chain
	st     pipeline.Stage
	swaps  []pipeline.Swap
	beta   float64
	turn   int
	saved  map[int]bool // of the minibatch that is unrolled: activations whose saved set is there
	host   map[int]tensor
	coming map[int]int // prefetches whose activation nothing has read yet, by activation: positions in events
	events []timed
}

// unroll adds everything that one minibatch does, whose F and B begin at two times.
func (o *offloader) unroll(number int, f, b float64) {
	o.saved, o.host, o.coming = map[int]bool{}, map[int]tensor{}, map[int]int{}
	add := func(x timed) { x.number = number; o.events = append(o.events, x) }
	add(timed{begin: f, end: f, takes: []tensor{{"a", o.st.First - 1}}})
	now, k := f, 0
	for p, op := range o.st.Ops {
		if p == o.turn {
			last := timed{begin: now, end: now}
			if !o.saved[o.st.Last] {
				last.frees = []tensor{{"a", o.st.Last}}
			}
			add(last)
			now = b
			add(timed{begin: now, end: now, takes: []tensor{{"grad", o.st.Last}}})
		}
		i := op.Layer - 1
		switch op.Kind {
		case schedule.Offload:
			o.host[i] = o.tensor(i)
			x := timed{op: op, begin: f + o.swaps[k].Out, limit: now, reads: []tensor{o.host[i]}, frees: []tensor{o.host[i]}}
			x.end = x.begin + float64(size(o.c, o.host[i]))/o.beta
			if x.begin == x.end {
				x.frees = nil // no bytes: the next op may still read it
			}
			k++
			add(x)
		case schedule.Prefetch:
			out := slices.IndexFunc(o.offloads(), func(other schedule.Op) bool { return other.Layer == op.Layer })
			x := timed{op: op, begin: f + o.swaps[out].Back, takes: []tensor{o.host[i]}}
			x.end = x.begin + float64(size(o.c, o.host[i]))/o.beta
			o.coming[i] = len(o.events)
			add(x)
		default:
			x := o.compute(op)
			x.begin, x.end = now, now+x.end
			for _, r := range x.reads {
				if at, ok := o.coming[r.index]; ok && r.kind != "grad" {
					o.events[at].limit = now
					delete(o.coming, r.index)
				}
			}
			now = x.end
			add(x)
		}
	}
	add(timed{begin: now, end: now, frees: []tensor{{"grad", o.st.First - 1}}})
}

func (o *offloader) offloads() []schedule.Op {
	return slices.DeleteFunc(slices.Clone(o.st.Ops), func(op schedule.Op) bool { return op.Kind != schedule.Offload })
}

// tensor returns the tensor that holds an activation: its saved set, or the activation alone.
func (o *offloader) tensor(i int) tensor {
	if o.saved[i] {
		return tensor{"saved", i}
	}
	return tensor{"a", i}
}

// compute returns an op of the stage, with its duration as its end.
func (o *offloader) compute(op schedule.Op) timed {
	l, in := o.c.Layer(op.Layer), o.tensor(op.Layer-1)
	x := timed{op: op, reads: []tensor{in}}
	switch op.Kind {
	case schedule.Backward:
		x.end, x.over = l.BackwardS, l.BackwardOverheadBytes
		x.reads = append(x.reads, tensor{"saved", op.Layer}, tensor{"grad", op.Layer})
		x.takes = []tensor{{"grad", op.Layer - 1}}
		x.frees = []tensor{{"saved", op.Layer}, {"grad", op.Layer}}
		if in.kind == "a" {
			x.frees = append(x.frees, in)
		}
		delete(o.saved, op.Layer)
	case schedule.ForwardAll:
		x.end, x.over = l.ForwardS, l.ForwardOverheadBytes
		x.takes, x.frees = []tensor{{"saved", op.Layer}}, []tensor{{"a", op.Layer}}
		o.saved[op.Layer] = true
	default:
		x.end, x.over = l.DiscardSeconds(), l.DiscardOverhead()
		x.takes = []tensor{{"a", op.Layer}}
		if o.saved[op.Layer] {
			x.takes, x.over = nil, x.over+l.OutputBytes
		}
		if op.Kind == schedule.ForwardDiscard {
			x.frees = []tensor{in}
		}
	}
	return x
}

// edge is the begin or the end of an event.
type edge struct {
	at    float64
	start bool
	x     *timed
}

// edges returns all begins and ends in the order of their times, ends before begins, and what arrives with a part before its
// first op.
func (o *offloader) edges(tolerance float64) (all []edge) {
	for i := range o.events {
		x := &o.events[i]
		if x.begin < x.end || len(x.takes) > 0 {
			all = append(all, edge{x.begin, true, x})
		}
		all = append(all, edge{x.end, false, x})
	}
	slices.SortStableFunc(all, func(x, y edge) int {
		switch {
		case math.Abs(x.at-y.at) > tolerance:
			return cmp.Compare(x.at, y.at)
		case x.start != y.start:
			return map[bool]int{true: 1, false: -1}[x.start]
		case x.start:
			return len(x.x.reads) - len(y.x.reads)
		}
		return 0
	})
	return all
}

// onDevice holds the tensors on the device, with how often each tensor of each minibatch is in use.
type onDevice struct {
	c          *chain.Chain
	has        map[int]map[tensor]int
	level, top int64
}

// peak runs all events and returns the most bytes at any instant. It is an error when an op or a transfer reads what is not there,
// and when something stays.
func (o *offloader) peak(t *testing.T, tolerance float64) int64 {
	t.Helper()
	m := &onDevice{c: o.c, has: map[int]map[tensor]int{}}
	for _, e := range o.edges(tolerance) {
		if e.start {
			m.begin(t, e.x)
		} else {
			m.end(e.x)
		}
	}
	if m.level != 0 {
		t.Fatalf("%d bytes are left", m.level)
	}
	return m.top
}

// holds reports whether an event keeps what it reads until it ends: all ops but forward_discard, which frees it, and no transfer.
func (x *timed) holds() bool {
	return x.begin < x.end && (x.op.Kind == schedule.Backward || x.op.Kind == schedule.ForwardAll || x.op.Kind == schedule.ForwardCheckpoint)
}

func (m *onDevice) begin(t *testing.T, x *timed) {
	t.Helper()
	if m.has[x.number] == nil {
		m.has[x.number] = map[tensor]int{}
	}
	mine := m.has[x.number]
	for _, r := range x.reads {
		if mine[r] == 0 {
			t.Fatalf("%v of minibatch %d at %v: %v is not there", x.op, x.number, x.begin, r)
		}
		if x.holds() {
			mine[r]++
		}
	}
	for _, y := range x.takes {
		m.level += size(m.c, y)
		mine[y]++
	}
	m.level += x.over
	m.top = max(m.top, m.level)
}

func (m *onDevice) end(x *timed) {
	if x.begin < x.end {
		m.level -= x.over
	}
	if x.holds() {
		for _, r := range x.reads {
			m.drop(x.number, r)
		}
	}
	for _, y := range x.frees {
		m.drop(x.number, y)
	}
}

func (m *onDevice) drop(number int, x tensor) {
	mine := m.has[number]
	if mine[x] == 0 {
		return
	}
	if mine[x]--; mine[x] == 0 {
		m.level -= size(m.c, x)
	}
}

// links: transfers do not overlap on their link, and each prefetch begins when its offload has ended.
func (o *offloader) links(t *testing.T, duplex bool, tolerance float64) {
	t.Helper()
	var directions [2][]timed
	ended := map[[2]int]float64{}
	for _, x := range o.events {
		switch {
		case !x.op.Kind.Transfer() || x.end-x.begin < tolerance:
		case duplex && x.op.Kind == schedule.Prefetch:
			directions[1] = append(directions[1], x)
		default:
			directions[0] = append(directions[0], x)
		}
		key := [2]int{x.number, x.op.Layer}
		if x.op.Kind == schedule.Offload {
			ended[key] = x.end
		} else if x.op.Kind == schedule.Prefetch && x.begin < ended[key]-tolerance {
			t.Errorf("%v of minibatch %d begins at %v, the offload ends at %v", x.op, x.number, x.begin, ended[key])
		}
	}
	for _, all := range directions {
		slices.SortFunc(all, func(x, y timed) int {
			if x.begin < y.begin {
				return -1
			}
			return 1
		})
		for i := 1; i < len(all); i++ {
			if all[i].begin < all[i-1].end-tolerance {
				t.Errorf("%v of minibatch %d begins at %v, the transfer before it ends at %v", all[i].op, all[i].number, all[i].begin, all[i-1].end)
			}
		}
	}
}

// tight: each prefetch ends before its reader and the next prefetch of its minibatch begin, and could not end later: there is
// another one right behind it. Each offload begins after the ops and the offload before it, and could not begin earlier.
func (o *offloader) tight(t *testing.T, duplex bool, tolerance float64) (waits int) {
	t.Helper()
	near := func(x, y float64) bool { return math.Abs(x-y) <= tolerance }
	some := func(is func(*timed) bool) bool {
		return slices.ContainsFunc(o.events, func(y timed) bool { return y.op.Kind.Transfer() && y.end-y.begin > tolerance && is(&y) })
	}
	var before *timed // the transfer of the same kind and minibatch before
	for i := range o.events {
		x := &o.events[i]
		if !x.op.Kind.Transfer() || x.number != 20 {
			continue
		}
		follows := before != nil && before.op.Kind == x.op.Kind
		if follows && x.begin < before.end-tolerance {
			t.Errorf("%v at %v, %v ends at %v", x.op, x.begin, before.op, before.end)
		}
		if x.op.Kind == schedule.Offload {
			limit := x.limit
			if follows {
				limit = max(limit, before.end)
			}
			if !near(x.begin, limit) {
				waits++
				if x.begin < limit || !some(func(y *timed) bool { return near(y.end, x.begin) && (!duplex || y.op.Kind == x.op.Kind) }) {
					t.Errorf("%v begins at %v, it could at %v", x.op, x.begin, limit)
				}
			}
		} else {
			limit := x.limit
			for j := i + 1; j < len(o.events) && o.events[j].op.Kind == schedule.Prefetch; j++ {
				limit = min(limit, o.events[j].begin)
			}
			if !near(x.end, limit) {
				waits++
				if x.end > limit || !some(func(y *timed) bool { return near(y.begin, x.end) && y.op.Kind == x.op.Kind }) {
					t.Errorf("%v ends at %v, it could at %v", x.op, x.end, limit)
				}
			}
		}
		before = x
	}
	return waits
}

// positive is a request in which every op takes time and every host transfer, too.
func positive(rng *rand.Rand, layers int) pipeline.Request {
	r := hostRequest(rng, layers)
	r.Accounting = pipeline.Saved
	for i := range r.Chain.Layers {
		l := &r.Chain.Layers[i]
		l.ForwardS, l.BackwardS = l.ForwardS+1, l.BackwardS+1
		if l.DiscardForwardS != nil {
			*l.DiscardForwardS++
		}
	}
	return r
}

// TestTransfersByReplay: in plans that offload, the transfers of many minibatches run one at a time, and everything that an op reads is
// there. The bytes of the stage are exactly as many as the checker counts.
func TestTransfersByReplay(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 2))
	stages, several, recomputed, waits := 0, 0, 0, 0
	for range 1600 {
		r := positive(rng, 6)
		plan, err := Contiguous(t.Context(), r)
		if err != nil || !plan.Offloads() {
			continue
		}
		report, err := pipeline.Check(r.Chain, r.Platform, plan)
		if err != nil {
			t.Fatal(err)
		}
		for s, st := range plan.Stages {
			if !moves(st) {
				continue
			}
			o, tolerance := unrolled(t, r, plan, s), 1e-8*plan.Period
			o.links(t, r.Platform.Duplex, tolerance)
			waits += o.tight(t, r.Platform.Duplex, tolerance)
			d := st.Devices[0]
			counted := report.PerDevicePeak[d] - report.PerDeviceWeights[d] - report.PerDeviceBuffers[d]
			if peak := o.peak(t, tolerance); peak != counted {
				t.Errorf("%v holds %d bytes, counted %d: period %v, %+v", st.Ops, peak, counted, plan.Period, o.swaps)
			}
			stages++
			if report.NCA[s] > 1 {
				several++
			}
			if len(staying(st.Ops)) > 2*st.Len() {
				recomputed++
			}
		}
	}
	t.Logf("%d stages that offload, %d with several live minibatches, %d recompute too, %d transfers wait for the link", stages, several, recomputed, waits)
	if stages < 250 || several < 150 || recomputed < 150 || waits < 10 {
		t.Errorf("%d stages, %d with several live minibatches, %d recompute too, %d transfers wait for the link", stages, several, recomputed, waits)
	}
}

// unrolled returns a stage of a plan for 40 periods.
func unrolled(t *testing.T, r pipeline.Request, plan *pipeline.Plan, s int) *offloader {
	t.Helper()
	st := plan.Stages[s]
	var f, b pipeline.Task
	for _, task := range plan.Tasks {
		switch {
		case task.Stage == s && task.Kind == pipeline.F:
			f = task
		case task.Stage == s && task.Kind == pipeline.B:
			b = task
		}
	}
	swaps, err := pipeline.Swaps(r.Chain, r.Platform, plan)
	if err != nil {
		t.Fatal(err)
	}
	o := &offloader{c: r.Chain, st: st, swaps: swaps[s], beta: r.Platform.Host}
	o.turn = 1 + slices.IndexFunc(st.Ops, func(op schedule.Op) bool { return op.Layer == st.Last && !op.Kind.Transfer() })
	for number := range 40 {
		at := func(x pipeline.Task) float64 { return x.Start + float64(number-x.Shift)*plan.Period }
		o.unroll(number, at(f), at(b))
	}
	return o
}

// again: a plan with transfers is found a second time, survives its file, and its order runs in the simulator.
func again(t *testing.T, r pipeline.Request, plan *pipeline.Plan) {
	t.Helper()
	if second, err := Contiguous(t.Context(), r); err != nil || !same(t, plan, second) {
		t.Errorf("another plan the second time, %v", err)
	}
	var text strings.Builder
	if err := plan.Encode(&text); err != nil {
		t.Fatal(err)
	}
	read, err := pipeline.Decode(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	report, err := pipeline.Check(r.Chain, read.Platform, read)
	if err != nil || !slices.Equal(report.PerDevicePeak, plan.PerDevicePeak) {
		t.Errorf("from its file: %+v, %v, the plan says %v", report, err, plan.PerDevicePeak)
	}
	compareSimulation(t, r.Chain, r.Platform, read)
}

// TestPlanted: a good plan with transfers is refused when its link is slower than its transfers need, or its device has a byte
// less.
func TestPlanted(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 3))
	good, slow, small := 0, 0, 0
	for range 800 {
		r := positive(rng, 6)
		plan, err := Contiguous(t.Context(), r)
		if err != nil || !plan.Offloads() {
			continue
		}
		good++
		again(t, r, plan)
		least := math.Inf(1) // bandwidth at which the link is busy all the time
		for s, st := range plan.Stages {
			if !moves(st) {
				continue
			}
			cost := mustMeasure(r.Chain, st)
			if bytes := cost.MoveSeconds(&pipeline.Platform{Host: 1}); bytes > 0 {
				least = min(least, bytes/plan.Period)
			}
			q := *r.Platform
			q.Memory = slices.Clone(q.Memory)
			d := plan.Stages[s].Devices[0]
			q.Memory[d] = plan.PerDevicePeak[d] - 1
			var invalid *pipeline.InvalidError
			if _, err := pipeline.Check(r.Chain, &q, plan); errors.As(err, &invalid) && invalid.OnlyMemory() {
				small++
			} else {
				t.Errorf("with a byte less: %v", err)
			}
		}
		q := *r.Platform
		q.Host = 0.99 * least
		var invalid *pipeline.InvalidError
		if _, err := pipeline.Check(r.Chain, &q, plan); errors.As(err, &invalid) && !invalid.OnlyMemory() {
			slow++
		} else if !math.IsInf(least, 1) {
			t.Errorf("with a link of %v bytes/s: %v", q.Host, err)
		}
	}
	if good < 40 || slow < 40 || small < good {
		t.Errorf("%d plans, %d refused with a slow link, %d with a byte less", good, slow, small)
	}
}
