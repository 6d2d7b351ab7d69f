package cycle

import (
	"fmt"

	"plimsoll/planner/schedule"
)

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
	if l.updatesLast && l.whole(g.owner) {
		t.ticks += l.costs.layers[g.owner].norm
	}
	return ""
}

// whole reports whether the gradients of a layer's weights, of all layers that read them, are those of all microbatches of the step.
func (l *ledger) whole(owner int) bool {
	for _, i := range l.users[owner] {
		if g := &l.gradients[i]; g.step != l.step || g.parts < len(l.microbatches) {
			return false
		}
	}
	return true
}
