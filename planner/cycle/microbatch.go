package cycle

import (
	"errors"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// microbatch is the activations of one microbatch. Package schedule knows the rules.
type microbatch struct {
	rules     *schedule.Follower
	positions []int32    // in the sequence, of the ops that rules has seen
	frees     []int32    // by the same ops, in ledger.frees: what an offload frees
	copies    []hostCopy // of activations, in the order of the offloads
	latest    []int32    // by activation: its latest copy
}

// hostCopy is an activation on the host, from its offload to the last op that needs it.
type hostCopy struct {
	bytes int64
	last  int32 // position
}

func newMicrobatch(c *chain.Chain) microbatch {
	return microbatch{rules: schedule.Follow(c), latest: make([]int32, c.Len()+1)}
}

func (m *microbatch) restart(c *chain.Chain) {
	m.rules.Restart(c)
	m.positions, m.frees, m.copies = m.positions[:0], m.frees[:0], m.copies[:0]
}

// do replays an op at a position; it returns the rule that the op breaks, or "".
func (m *microbatch) do(op Op, position int) (e schedule.Effect, reason string) {
	e, err := m.rules.Do(schedule.Op{Kind: op.Kind, Layer: op.Layer})
	if rule := (*schedule.RuleError)(nil); errors.As(err, &rule) {
		return e, rule.Reason
	}
	m.positions, m.frees = append(m.positions, int32(position)), append(m.frees, int32(none))
	return e, ""
}

// unfinished says what is left to do when a step ends; "": nothing. δ_0 takes the place of the input of the next step.
func (m *microbatch) unfinished() (reason string) {
	if rule := (*schedule.RuleError)(nil); errors.As(m.rules.End(), &rule) {
		return rule.Reason
	}
	if i := m.rules.Left(); i >= 0 {
		return fmt.Sprintf("activation %d is left over", i)
	}
	return ""
}

// endCopies lets the last op that needs a copy free its bytes on the host.
func (m *microbatch) endCopies(tasks []task) {
	for _, c := range m.copies {
		tasks[c.last].hostGives += c.bytes
	}
}

// transfer replays an offload or a prefetch of an activation.
func (l *ledger) transfer(t *task, op Op) (reason string) {
	m := &l.microbatches[max(op.Microbatch, 1)-1]
	position := len(l.tasks) - 1
	effect, reason := m.do(op, position)
	if reason != "" {
		return reason
	}
	l.waitFor(m)
	if op.Kind == schedule.Prefetch {
		t.takes = effect.Moves
		m.copies[m.latest[op.Layer-1]].last = int32(position)
		return ""
	}
	t.hostTakes = effect.Moves
	m.latest[op.Layer-1] = int32(len(m.copies))
	m.copies = append(m.copies, hostCopy{effect.Moves, int32(position)})
	m.frees[len(m.frees)-1] = int32(len(l.frees))
	l.frees = append(l.frees, free{effect.Moves, [3]ref{l.here(), none, none}})
	l.leaving = append(l.leaving, max(op.Microbatch, 1)-1)
	return ""
}

// waitFor lets the op that is replayed wait for the transfers of its operands.
func (l *ledger) waitFor(m *microbatch) {
	for _, i := range m.rules.Operands().Waits {
		if i >= 0 {
			l.wait(ref(l.step*len(l.seq)) + ref(m.positions[i]))
		}
	}
}

// compute replays a forward or a backward.
func (l *ledger) compute(t *task, op Op) (reason string) {
	o := l.c.Owner(op.Layer)
	if o > 0 {
		if reason = l.readWeights(op, o); reason != "" {
			return reason
		}
	}
	m := &l.microbatches[max(op.Microbatch, 1)-1]
	effect, reason := m.do(op, len(l.tasks)-1)
	if reason != "" {
		return reason
	}
	l.waitFor(m)
	for _, i := range m.rules.Operands().Releases {
		if i >= 0 {
			l.frees[m.frees[i]].holds[1] = l.here()
		}
	}
	t.takes, t.leaves = effect.Takes, effect.Leaves-effect.Takes
	if op.Kind == schedule.Backward && l.gradients[op.Layer].bytes > 0 {
		if reason = l.addGradient(t, op); reason != "" {
			return reason
		}
	}
	l.computed()
	return ""
}

// readWeights lets a forward or a backward use the weights of their owner.
func (l *ledger) readWeights(op Op, o int) (reason string) {
	switch g := &l.gradients[op.Layer]; {
	case g.place != nowhere && g.step == l.step-1:
		return fmt.Sprintf("layer %d waits for its update by the gradient of the step before", o)
	case l.updated[o] == l.step:
		return fmt.Sprintf("layer %d is updated already in this step", o)
	}
	l.wait(l.weights[o].fetched)
	return l.weights[o].missing()
}

// addGradient adds the weights' gradient of a backward to that of the layer. The first backward of a step takes the memory.
func (l *ledger) addGradient(t *task, op Op) (reason string) {
	g, microbatch := &l.gradients[op.Layer], max(op.Microbatch, 1)
	switch {
	case g.latest >= microbatch:
		return fmt.Sprintf("the gradient of layer %d has that of microbatch %d already: backwards come in the order of microbatches", op.Layer, g.latest)
	case g.place == onHost:
		return fmt.Sprintf("the gradient of layer %d, which this adds to, is on the host", op.Layer)
	case g.place == nowhere:
		g.place, g.step, g.parts = onDevice, l.step, 0
		t.takes += g.bytes
	}
	g.latest = microbatch
	g.parts++
	l.wait(g.fetched)
	return ""
}
