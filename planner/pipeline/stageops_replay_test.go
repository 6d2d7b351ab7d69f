package pipeline_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/schedule"
)

// These tests take random plans with a flush and with stages that run random ops. They sum the memory tensor by tensor after every op. The
// sums use nothing of the package but the plan.

// writer writes random ops of a stage that are legal, by what is in memory.
type writer struct {
	rnd *rand.Rand
	has map[int]rune // by activation: p plain, s saved
	ops schedule.Sequence
}

func (w *writer) put(kind schedule.Kind, l int) {
	w.ops = append(w.ops, schedule.Op{Kind: kind, Layer: l})
	switch kind {
	case schedule.ForwardAll:
		w.has[l] = 's'
	case schedule.ForwardDiscard:
		delete(w.has, l-1)
		w.keep(l)
	case schedule.ForwardCheckpoint:
		w.keep(l)
	}
}

// keep notes a plain activation, which a saved set has in it.
func (w *writer) keep(l int) {
	if w.has[l] != 's' {
		w.has[l] = 'p'
	}
}

// forward computes layers from..to by random ops; what is in memory before from stays.
func (w *writer) forward(from, to int, everything bool) {
	for l := from; l <= to; l++ {
		switch kind := w.rnd.IntN(3); {
		case kind == 0 || everything && l == to:
			w.put(schedule.ForwardAll, l)
		case kind == 1 && l > from && w.has[l-1] == 'p':
			w.put(schedule.ForwardDiscard, l)
		default:
			w.put(schedule.ForwardCheckpoint, l)
		}
	}
}

// randomOps returns ops for layers first..last.
func randomOps(rnd *rand.Rand, first, last int) schedule.Sequence {
	w := &writer{rnd: rnd, has: map[int]rune{first - 1: 'p'}}
	w.forward(first, last, false)
	if w.has[last] == 'p' {
		delete(w.has, last) // it is sent
	}
	for l := last; l >= first; l-- {
		from := l
		for w.has[from-1] == 0 {
			from--
		}
		for back := from; back > first; back-- { // sometimes from further back than necessary
			if w.has[back-2] != 0 && rnd.IntN(4) == 0 {
				from = back - 1
			}
		}
		if w.has[l] != 's' || from < l {
			w.forward(from, l, true)
		}
		w.put(schedule.Backward, l)
		delete(w.has, l)
		if w.has[l-1] == 'p' {
			delete(w.has, l-1)
		}
	}
	return w.ops
}

// tensor is something that a microbatch has in memory.
type tensor struct {
	kind  string // "a", "saved", "grad"
	index int
}

type microbatch struct {
	has  map[tensor]bool
	next int // how far its ops are
}

func heldBytes(c *chain.Chain, all map[int]*microbatch) (sum int64) {
	for _, m := range all {
		for x := range m.has {
			switch x.kind {
			case "a":
				sum += c.Activation(x.index)
			case "saved":
				sum += c.Saved(x.index)
			default:
				sum += c.Gradient(x.index)
			}
		}
	}
	return sum
}

// runOp runs an op: its output and its overhead come on top of all that is there, then what it frees goes.
func runOp(c *chain.Chain, all map[int]*microbatch, m *microbatch, op schedule.Op) (peak int64) {
	l := c.Layer(op.Layer)
	in, out, set := tensor{"a", op.Layer - 1}, tensor{"a", op.Layer}, tensor{"saved", op.Layer}
	before := heldBytes(c, all)
	switch op.Kind {
	case schedule.ForwardAll:
		peak = before + l.SavedBytes + l.ForwardOverheadBytes
		if !m.has[set] {
			delete(m.has, out)
		}
		m.has[set] = true
	case schedule.ForwardCheckpoint, schedule.ForwardDiscard:
		peak = before + l.OutputBytes + l.DiscardOverhead()
		if !m.has[set] {
			m.has[out] = true
		}
		if op.Kind == schedule.ForwardDiscard {
			delete(m.has, in)
		}
	case schedule.Backward:
		peak = before + c.Gradient(op.Layer-1) + l.BackwardOverheadBytes
		delete(m.has, set)
		delete(m.has, in)
		delete(m.has, tensor{"grad", op.Layer})
		m.has[tensor{"grad", op.Layer - 1}] = true
	}
	return peak
}

// replay runs the tasks of a device of a plan with a flush, and counts what it holds.
type replay struct {
	c      *chain.Chain
	plan   *pipeline.Plan
	live   map[int]*microbatch // of stages with ops, by stage and microbatch
	others int64               // bytes of the rest: stages without ops, and tensors that wait between two stages
	peak   int64
}

func (x *replay) top(bytes int64) { x.peak = max(x.peak, x.others+bytes) }

// onOne reports whether a stage and the next one work on one device for a microbatch.
func onOne(plan *pipeline.Plan, s, shift int) bool {
	if s < 0 || s+1 >= len(plan.Stages) {
		return false
	}
	at := func(s int) int {
		return plan.Tasks[slices.IndexFunc(plan.Tasks, func(t pipeline.Task) bool { return t.Kind == pipeline.F && t.Stage == s && t.Shift == shift })].Device
	}
	return at(s) == at(s+1)
}

// wait lets the tensor behind a task of a stage wait for the next one, if that is on the device, or takes it away again.
func (x *replay) wait(s, shift int, bytes func(int) int64, times int64) {
	if onOne(x.plan, s, shift) {
		x.others += times * bytes(x.plan.Stages[s].Last)
	}
}

// replayed returns the most bytes that microbatches hold at any instant on a device.
func replayed(c *chain.Chain, plan *pipeline.Plan, d int, length func(i int) float64) int64 {
	var order []int
	for i, t := range plan.Tasks {
		if t.Device == d && !t.Kind.Communication() {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := plan.Tasks[i], plan.Tasks[j]
		if math.Abs(a.Start-b.Start) > 1e-7 {
			return cmp.Compare(a.Start, b.Start)
		}
		if (length(i) == 0) != (length(j) == 0) {
			return cmp.Compare(length(i), length(j))
		}
		return cmp.Or(int(a.Kind)-int(b.Kind), a.Shift-b.Shift) // as the simulator, and the executor, run them
	})
	x := &replay{c: c, plan: plan, live: map[int]*microbatch{}}
	for _, i := range order {
		if t := plan.Tasks[i]; t.Kind == pipeline.F {
			x.wait(t.Stage-1, t.Shift, c.Activation, -1)
			x.forward(t.Stage, t.Shift)
			x.wait(t.Stage, t.Shift, c.Activation, 1)
		} else {
			x.wait(t.Stage, t.Shift, c.Gradient, -1)
			x.backward(t.Stage, t.Shift)
			x.wait(t.Stage-1, t.Shift, c.Gradient, 1)
		}
	}
	return x.peak
}

// ops returns the ops of a microbatch in a stage.
func (x *replay) ops(s, shift int) schedule.Sequence {
	if st := x.plan.Stages[s]; shift < x.plan.Microbatches-1 || st.LastOps == nil {
		return st.Ops
	}
	return x.plan.Stages[s].LastOps
}

// held returns the bytes of a microbatch in a stage without ops.
func (x *replay) held(s int) int64 {
	st := x.plan.Stages[s]
	return pipeline.NewCosts(x.c).Held(st.First, st.Last, x.plan.Accounting)
}

func (x *replay) forward(s, shift int) {
	st, ops := x.plan.Stages[s], x.ops(s, shift)
	if len(ops) == 0 {
		x.others += x.held(s)
		x.top(heldBytes(x.c, x.live))
		return
	}
	m := &microbatch{has: map[tensor]bool{{"a", st.First - 1}: true}}
	x.live[s*x.plan.Microbatches+shift] = m
	x.top(heldBytes(x.c, x.live))
	for m.next < len(ops) {
		op := ops[m.next]
		m.next++
		x.top(runOp(x.c, x.live, m, op))
		if op.Layer == st.Last {
			break
		}
	}
	delete(m.has, tensor{"a", st.Last}) // it has been sent
}

func (x *replay) backward(s, shift int) {
	ops := x.ops(s, shift)
	if len(ops) == 0 {
		x.top(heldBytes(x.c, x.live))
		x.others -= x.held(s)
		return
	}
	m := x.live[s*x.plan.Microbatches+shift]
	m.has[tensor{"grad", x.plan.Stages[s].Last}] = true
	x.top(heldBytes(x.c, x.live))
	for ; m.next < len(ops); m.next++ {
		x.top(runOp(x.c, x.live, m, ops[m.next]))
	}
	delete(x.live, s*x.plan.Microbatches+shift)
}

// problem is a random plan without memory limits. All stages are on devices of their own, some on two that take turns, or all are folded
// onto a few devices.
type problem struct {
	c    *chain.Chain
	p    *pipeline.Platform
	plan *pipeline.Plan
}

// generated returns a plan of all forwards and then all backwards, or of one forward and one backward in turn, each task as early
// as the simulator can start it.
func generated(t *testing.T, rnd *rand.Rand) problem {
	t.Helper()
	stages, m := 1+rnd.IntN(4), 1+rnd.IntN(5)
	c := pipelinetest.Chain(rnd, stages+rnd.IntN(5), rnd.IntN(2) == 0)
	for i := range c.Layers {
		l := &c.Layers[i]
		l.ForwardOverheadBytes, l.BackwardOverheadBytes = rnd.Int64N(5), rnd.Int64N(5)
		if rnd.IntN(2) == 0 {
			seconds, bytes := l.ForwardS/2, rnd.Int64N(5)
			l.DiscardForwardS, l.DiscardOverheadBytes = &seconds, &bytes
		}
	}
	plan := &pipeline.Plan{Chain: c.Name, Versions: pipeline.Flush, Microbatches: m}
	ends := rnd.Perm(c.Len() - 1)[:stages-1]
	slices.Sort(ends)
	first, devices := 1, 0
	for _, end := range append(ends, c.Len()-1) {
		st := pipeline.Stage{First: first, Last: end + 1, Devices: []int{devices}}
		if devices++; m > 1 && rnd.IntN(3) == 0 {
			st.Devices = append(st.Devices, devices)
			devices++
		}
		if rnd.IntN(4) > 0 {
			st.Ops = randomOps(rnd, st.First, st.Last)
			if rnd.IntN(2) == 0 {
				st.LastOps = randomOps(rnd, st.First, st.Last)
			}
		}
		plan.Stages = append(plan.Stages, st)
		first = end + 2
	}
	if rnd.IntN(3) == 0 {
		devices = fold(rnd, plan)
	}
	p := pipelinetest.Platform(rnd, devices)
	p.Duplex = true
	ordered(plan, p, rnd.IntN(2) == 0)
	o, err := pipeline.Simulate(c, p, plan, pipeline.Noise{})
	if err != nil {
		t.Fatalf("%v: %+v", err, plan.Stages)
	}
	for _, span := range o.Spans {
		plan.Tasks[span.Task].Start = span.Start
	}
	plan.Predicted.Makespan = o.Makespan
	return problem{c, p, plan}
}

// fold puts the stages of a plan onto a few devices, each on one, and returns how many these are.
func fold(rnd *rand.Rand, plan *pipeline.Plan) (devices int) {
	devices = 1 + rnd.IntN(2)
	plan.Accounting = []pipeline.Accounting{pipeline.Inputs, pipeline.Saved}[rnd.IntN(2)]
	for s := range plan.Stages {
		plan.Stages[s].Devices = []int{rnd.IntN(devices)}
	}
	return devices
}

// folded reports whether a device of a plan has several stages.
func folded(plan *pipeline.Plan) bool {
	seen := map[int]bool{}
	for _, st := range plan.Stages {
		for _, d := range st.Devices {
			if seen[d] {
				return true
			}
			seen[d] = true
		}
	}
	return false
}

// ordered gives the tasks of a plan starts that only say which comes first on each device and link.
func ordered(plan *pipeline.Plan, p *pipeline.Platform, turns bool) {
	m, last := plan.Microbatches, len(plan.Stages)-1
	device := func(s, k int) int { return plan.Stages[s].Devices[k%len(plan.Stages[s].Devices)] }
	add := func(kind pipeline.Kind, s, k int, at float64) {
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: kind, Stage: s, Device: device(s, k), Start: at, Shift: k})
	}
	for s := range plan.Stages {
		for k := range m {
			back := m + m - 1 - k
			forward, backward := float64(k), float64(back)
			switch {
			case folded(plan): // one stage after the other
				forward, backward = float64(s*m+k), float64(m*(2*last+1-s)+m-1-k)
			case turns: // so many forwards as there are stages behind, then in turn
				forward, backward = float64(2*k), float64(2*(k+last-s)+1)
			}
			add(pipeline.F, s, k, forward)
			add(pipeline.B, s, k, backward)
			if s < last && device(s, k) != device(s+1, k) && p.Beta(device(s, k), device(s+1, k)) < pipeline.Free() {
				add(pipeline.CF, s, k, forward)
				add(pipeline.CB, s, k, backward)
			}
		}
	}
}

// TestMemoryByReplay: the checker's peak of a device whose stage has ops is the sum of all tensors at the worst instant, to the
// byte, and one byte less is refused.
func TestMemoryByReplay(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(31, 1))
	devices, replicas, last, refused, several := 0, 0, 0, 0, 0
	for range 900 {
		x := generated(t, rnd)
		report, err := pipeline.Check(x.c, x.p, x.plan)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(report.Makespan-x.plan.Predicted.Makespan) > 1e-9*report.Makespan || report.Warnings != nil {
			t.Errorf("makespan %g, simulated %g; %v", report.Makespan, x.plan.Predicted.Makespan, report.Warnings)
		}
		for s, st := range x.plan.Stages {
			if len(st.Ops) == 0 {
				continue
			}
			last += min(len(st.LastOps), 1)
			for i, d := range st.Devices {
				devices++
				replicas += min(i, 1)
				if folded(x.plan) {
					several++
				}
				want := replayed(x.c, x.plan, d, func(i int) float64 { return takes(t, x, x.plan.Tasks[i]).Length })
				if got := report.PerDevicePeak[d] - report.PerDeviceWeights[d] - report.PerDeviceBuffers[d]; got != want {
					t.Errorf("stage %d on device %d: %d bytes, by replay %d: %v, last %v", s, d, got, want, st.Ops, st.LastOps)
				}
				if refuses(t, x, d, report.PerDevicePeak[d]) {
					refused++
				}
			}
		}
	}
	if devices < 800 || replicas < 100 || last < 300 || refused < 800 || several < 300 {
		t.Errorf("%d devices, %d of them second replicas, %d of plans with several stages of a device, %d stages with last ops, %d refused", devices, replicas, several, last, refused)
	}
}

// refuses reports that a plan does not fit when one device has a byte less than it needs, and does when it has as much.
func refuses(t *testing.T, x problem, d int, need int64) bool {
	t.Helper()
	if need == 0 {
		return false
	}
	p := *x.p
	p.Memory = slices.Clone(x.p.Memory)
	p.Memory[d] = need
	if _, err := pipeline.Check(x.c, &p, x.plan); err != nil {
		t.Errorf("%d bytes: %v", need, err)
	}
	p.Memory[d]--
	_, err := pipeline.Check(x.c, &p, x.plan)
	e, ok := err.(*pipeline.InvalidError)
	if !ok || len(e.Violations) != 1 || !e.OnlyMemory() || e.Violations[0].Device != d || e.Violations[0].Needed != need || e.Violations[0].Limit != need-1 {
		t.Errorf("a byte less than %d: %v", need, err)
	}
	return true
}

// TestNoiseOfOps: in a simulated run with other durations, every task starts exactly when it can. It waits for the work before it on its
// device or link, and for its inputs. A backward that recomputes starts earlier than its gradient arrives, by the time that the
// recomputation takes in this run.
func TestNoiseOfOps(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(31, 2))
	waited := 0
	for range 150 {
		x := generated(t, rnd)
		if !x.plan.HasOps() {
			continue
		}
		o, err := pipeline.Simulate(x.c, x.p, x.plan, pipeline.Noise{Fraction: 0.4, Seed: rnd.Uint64()})
		if err != nil {
			t.Fatal(err)
		}
		start, end, device := map[[3]int]float64{}, map[[3]int]float64{}, map[[3]int]int{}
		for _, span := range o.Spans {
			task := x.plan.Tasks[span.Task]
			at := [3]int{int(task.Kind), task.Stage, task.Shift}
			start[at], end[at], device[at] = span.Start, span.End, task.Device
		}
		for _, span := range o.Spans {
			task := x.plan.Tasks[span.Task]
			if task.Kind != pipeline.B || len(x.plan.Stages[task.Stage].Ops) == 0 {
				continue
			}
			timing := takes(t, x, task)
			if timing.Early == 0 || timing.Length == 0 {
				continue
			}
			gradient, there := end[[3]int{int(pipeline.CB), task.Stage, task.Shift}]
			if !there {
				gradient = end[[3]int{int(pipeline.B), task.Stage + 1, task.Shift}]
			}
			earliest := gradient - timing.Early*(span.End-span.Start)/timing.Length
			for at, begun := range start {
				if device[at] == task.Device && at[0] <= int(pipeline.W) && begun < span.Start {
					earliest = max(earliest, end[at])
				}
			}
			if math.Abs(span.Start-max(earliest, 0)) > 1e-9*(1+o.Makespan) {
				t.Fatalf("%v starts at %g s, it can at %g s", task, span.Start, earliest)
			}
			if span.Start < gradient-1e-9 {
				waited++
			}
		}
	}
	if waited < 100 {
		t.Errorf("only %d backwards begin before their gradient", waited)
	}
}

// takes returns the timing of a task of a stage with ops.
func takes(t *testing.T, x problem, task pipeline.Task) pipeline.Timing {
	t.Helper()
	st := x.plan.Stages[task.Stage]
	ops := st.Ops
	if k := pipeline.NewCosts(x.c); len(ops) == 0 && task.Kind == pipeline.F {
		return pipeline.Timing{Length: k.Forward(st.First, st.Last)}
	} else if len(ops) == 0 {
		return pipeline.Timing{Length: k.Backward(st.First, st.Last)}
	}
	if task.Shift == x.plan.Microbatches-1 && st.LastOps != nil {
		ops = st.LastOps
	}
	cost, err := pipeline.MeasureStage(x.c, st, ops)
	if err != nil {
		t.Fatal(err)
	}
	if task.Kind == pipeline.F {
		return pipeline.Timing{Length: cost.Forward}
	}
	return pipeline.Timing{Length: cost.Backward, Early: cost.Early}
}
