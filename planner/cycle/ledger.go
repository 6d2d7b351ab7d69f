package cycle

import (
	"fmt"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// ledger replays a sequence in its order, twice: the second step is the pattern of all, because it looks back at a real one. It knows no
// time. For each op it writes down the ops that must have ended before, and the bytes.
type ledger struct {
	costs *costs
	c     *chain.Chain

	seq          Sequence
	updatesLast  bool
	lastBackward int // position
	step         int // that is replayed: 0, 1
	lastCompute  ref

	weights, states []resident // by owner; those of 0, the owner where there is none, stay absent
	gradients       []gradient // by layer
	users           [][]int    // by owner: the layers that add to gradients of its weights, its own first
	updates         []int      // by owner: in the sequence
	updated         []int      // by owner: the step whose gradient updated it last
	microbatches    []microbatch
	leaving         []int // microbatches with activations that the next compute op may still read

	tasks []task
	waits []ref // of all tasks
	frees []free
	homes int64 // bytes of the host for what moves or is updated there
}

// task is an op as the player needs it.
type task struct {
	ticks                int64
	takes                int64 // bytes of the device when it starts
	leaves               int64 // bytes that its end adds to those in use; below 0: frees
	hostTakes, hostGives int64 // bytes of the host, at its start and its end
	waits, waitsEnd      int32 // in ledger.waits
}

// free is bytes of the device that are free when several ops have ended.
type free struct {
	bytes int64
	holds [3]ref
}

func newLedger(c *chain.Chain, k *costs) ledger {
	n := c.Len() + 1
	l := ledger{costs: k, c: c, weights: make([]resident, n), states: make([]resident, n), gradients: make([]gradient, n),
		users: make([][]int, n), updates: make([]int, n), updated: make([]int, n)}
	for i := 1; i < n; i++ {
		layer, o := c.Layer(i), c.Owner(i)
		l.weights[i], l.states[i] = resident{word: "weights", layer: i}, resident{word: "state", layer: i}
		l.gradients[i] = gradient{layer: i, owner: o}
		if o == 0 {
			continue
		}
		if o == i {
			l.weights[i].bytes, l.states[i].bytes = layer.WeightBytes, layer.Update.StateBytes
		}
		if l.gradients[i].bytes = c.Layer(o).WeightGradient(); l.gradients[i].bytes > 0 {
			l.users[o] = append(l.users[o], i)
		}
	}
	return l
}

// judge replays the sequence. Errors: *RuleError.
func (l *ledger) judge(seq Sequence, updatesLast bool) error {
	l.seq, l.updatesLast = seq, updatesLast
	if err := l.checkOps(); err != nil {
		return err
	}
	if err := l.begin(); err != nil {
		return err
	}
	if err := l.replay(0); err != nil {
		return err
	}
	if reason := l.changed(); reason != "" {
		return l.atEnd(reason)
	}
	return l.replay(1)
}

func (l *ledger) atEnd(reason string) error { return &RuleError{Index: len(l.seq), Reason: reason} }

// checkOps refuses ops that no plan of the chain has, and prepares the microbatches.
func (l *ledger) checkOps() error {
	count := 1
	for p, op := range l.seq {
		reason := op.misused()
		switch {
		case reason != "":
		case op.Kind > schedule.HostUpdate:
			reason = "no such op"
		case op.Layer < 1 || op.Layer > l.c.Len():
			reason = fmt.Sprintf("the chain has layers 1 to %d", l.c.Len())
		case op.Microbatch < 0 || op.Microbatch > len(l.seq):
			reason = fmt.Sprintf("a step of %d ops has fewer microbatches", len(l.seq))
		}
		if reason != "" {
			return &RuleError{p, op, reason}
		}
		count = max(count, op.Microbatch)
	}
	for p, op := range l.seq {
		if count > 1 && op.Microbatch == 0 && !op.Kind.OfState() {
			return &RuleError{p, op, fmt.Sprintf("which of the %d microbatches?", count)}
		}
	}
	l.microbatches = l.microbatches[:min(count, len(l.microbatches))]
	for len(l.microbatches) < count {
		l.microbatches = append(l.microbatches, newMicrobatch(l.c))
	}
	return nil
}

// replay replays one step.
func (l *ledger) replay(step int) error {
	l.step = step
	l.tasks, l.waits, l.frees, l.leaving = l.tasks[:0], l.waits[:0], l.frees[:0], l.leaving[:0]
	for i := range l.microbatches {
		l.microbatches[i].restart(l.c)
	}
	for i := range l.gradients {
		l.gradients[i].latest = 0
	}
	for p, op := range l.seq {
		l.tasks = append(l.tasks, task{waits: int32(len(l.waits))})
		if reason := l.op(&l.tasks[p], op); reason != "" {
			return &RuleError{p, op, reason}
		}
		l.tasks[p].waitsEnd = int32(len(l.waits))
	}
	for i := range l.microbatches {
		if reason := l.microbatches[i].unfinished(); reason != "" {
			return l.atEnd(fmt.Sprintf("microbatch %d: %s", i+1, reason))
		}
		l.microbatches[i].endCopies(l.tasks)
	}
	return nil
}

// here names the op that is replayed.
func (l *ledger) here() ref { return ref(l.step*len(l.seq) + len(l.tasks) - 1) }

// wait lets the op that is replayed wait for others.
func (l *ledger) wait(refs ...ref) {
	for _, r := range refs {
		if r != none {
			l.waits = append(l.waits, r)
		}
	}
}

// op replays an op; it returns the rule that the op breaks, or "".
func (l *ledger) op(t *task, op Op) (reason string) {
	switch op.Kind {
	case schedule.Offload, schedule.Prefetch:
		reason = l.transfer(t, op)
	case schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.ForwardDiscard, schedule.Backward:
		reason = l.compute(t, op)
	default:
		reason = l.ofState(t, op)
	}
	if _, runs := streamOf(op.Kind); runs {
		t.ticks = l.costs.of(op, t.takes+t.hostTakes) // what a transfer of an activation moves, it takes on one side
	}
	return reason
}

// computed notes that the op that is replayed is a compute op.
func (l *ledger) computed() {
	l.lastCompute = l.here()
	for _, m := range l.leaving {
		l.microbatches[m].rules.Leave()
	}
	l.leaving = l.leaving[:0]
}

// changed says what is not at the end of a step as it was at its start; "": nothing.
func (l *ledger) changed() (reason string) {
	for _, all := range [...][]resident{l.weights, l.states} {
		for i := range all {
			if r := &all[i]; r.status != r.initial {
				return fmt.Sprintf("the plan is not cyclic: the %s of layer %d: %v when the step begins, %v when it ends", r.word, i, r.initial, r.status)
			}
		}
	}
	for i := range l.gradients {
		if g := &l.gradients[i]; g.place != g.initial {
			return fmt.Sprintf("the plan is not cyclic: the gradient of layer %d: %v when the step begins, %v when it ends", i, g.initial, g.place)
		}
	}
	return ""
}

// checkLink refuses copies that no bandwidth is known for. Errors: *LinkError.
func (l *ledger) checkLink() error {
	p := slices.IndexFunc(l.tasks, func(t task) bool { return t.ticks == never })
	if p < 0 {
		return nil
	}
	return &LinkError{p, l.seq[p]}
}

// resident returns the bytes of the device, and those of gradients on the host, when a step begins and nothing runs.
func (l *ledger) resident() (device, host int64) {
	device = l.c.InputBytes * int64(len(l.microbatches))
	for _, all := range [...][]resident{l.weights, l.states} {
		for i := range all {
			if all[i].initial != absent {
				device += all[i].bytes
			}
		}
	}
	for i := range l.gradients {
		switch g := &l.gradients[i]; g.initial {
		case onDevice:
			device += g.bytes
		case onHost:
			host += g.bytes
		}
	}
	return device, host
}

// inOrderPeak returns the peak when every op runs alone, in the order of the sequence, in two steps.
func (l *ledger) inOrderPeak() int64 {
	used, _ := l.resident()
	top := used
	freed := make([]int64, len(l.seq)) // by position of the last op that holds the bytes
	for _, f := range l.frees {
		last := int(max(f.holds[0], f.holds[1], f.holds[2]))
		if last < len(l.seq) { // of the step before, and before the first step all have ended
			used -= f.bytes
		}
		freed[last%len(l.seq)] += f.bytes
	}
	for range 2 {
		for p := range l.tasks {
			used += l.tasks[p].takes
			top = max(top, used)
			used += l.tasks[p].leaves - freed[p]
		}
	}
	return top
}
