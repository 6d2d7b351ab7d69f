package cycle

import (
	"fmt"
	"slices"

	"plimsoll/planner/schedule"
)

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
	if _, runs := StreamOf(op.Kind); runs {
		t.ticks += l.costs.of(op, t.takes+t.hostTakes) // what a transfer of an activation moves, it takes on one side
	}
	return reason
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
