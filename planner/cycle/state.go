package cycle

import (
	"fmt"

	"plimsoll/planner/schedule"
)

// ofState replays an op of weights, gradient or state.
func (l *ledger) ofState(t *task, op Op) (reason string) {
	if reason = l.wrongLayer(op); reason != "" {
		return reason
	}
	weights, state := &l.weights[op.Layer], &l.states[op.Layer]
	switch op.Kind {
	case schedule.FetchWeights:
		return l.fetch(t, weights)
	case schedule.FetchState:
		return l.fetch(t, state)
	case schedule.WriteWeights:
		return l.write(weights)
	case schedule.WriteState:
		return l.write(state)
	case schedule.DropWeights:
		return l.drop(weights)
	case schedule.DropState:
		return l.drop(state)
	case schedule.OffloadGradient:
		return l.offloadGradient(t, op)
	case schedule.FetchGradient:
		return l.fetchGradient(t, op)
	}
	if reason = l.takeGradients(t, op); reason != "" {
		return reason
	}
	if op.Kind == schedule.Update {
		return l.update(weights, state)
	}
	return l.updateOnHost(op, weights, state)
}

// wrongLayer refuses ops of items that a layer does not have.
func (l *ledger) wrongLayer(op Op) (reason string) {
	o := l.c.Owner(op.Layer)
	ofGradient := op.Kind == schedule.OffloadGradient || op.Kind == schedule.FetchGradient
	ofState := op.Kind == schedule.FetchState || op.Kind == schedule.WriteState || op.Kind == schedule.DropState
	switch {
	case o == 0:
		return fmt.Sprintf("layer %d has no weights", op.Layer)
	case o != op.Layer && !ofGradient:
		return fmt.Sprintf("the weights of layer %d are those of layer %d: name that", op.Layer, o)
	case ofState && l.states[o].bytes == 0:
		return fmt.Sprintf("layer %d has no optimizer state", op.Layer)
	case l.gradients[op.Layer].bytes == 0 && op.Kind >= schedule.OffloadGradient:
		return fmt.Sprintf("layer %d is frozen: it has no gradient and no update", op.Layer)
	}
	return ""
}

func (l *ledger) fetch(t *task, r *resident) (reason string) {
	switch r.status {
	case same, newer:
		return fmt.Sprintf("the device has %s of layer %d already", r.word, r.layer)
	case stale:
		return fmt.Sprintf("the device has stale %s of layer %d: drop them first", r.word, r.layer)
	}
	l.wait(r.written, r.hostUpdated)
	r.status, r.fetched = same, l.here()
	t.takes = r.bytes
	return ""
}

func (l *ledger) write(r *resident) (reason string) {
	if reason = r.missing(); reason != "" {
		return reason
	}
	if r.status == same {
		return fmt.Sprintf("the device's %s of layer %d are not newer than the host's", r.word, r.layer)
	}
	l.wait(r.fetched)
	r.status, r.written = same, l.here()
	return ""
}

// drop frees the device's copy when the compute op before and the copies of the item have ended.
func (l *ledger) drop(r *resident) (reason string) {
	switch r.status {
	case absent:
		return r.missing()
	case newer:
		return fmt.Sprintf("the device's %s of layer %d are newer than the host's: write them first", r.word, r.layer)
	}
	r.status = absent
	l.frees = append(l.frees, free{r.bytes, [3]ref{l.lastCompute, r.fetched, r.written}})
	return ""
}

func (l *ledger) offloadGradient(t *task, op Op) (reason string) {
	g := &l.gradients[op.Layer]
	if reason = g.misplaced(op, onDevice, l.step); reason != "" {
		return reason
	}
	l.wait(g.fetched)
	g.place, g.moved = onHost, l.here()
	t.leaves, t.hostTakes = -g.bytes, g.bytes
	return ""
}

func (l *ledger) fetchGradient(t *task, op Op) (reason string) {
	g := &l.gradients[op.Layer]
	if reason = g.misplaced(op, onHost, l.step); reason != "" {
		return reason
	}
	l.wait(g.moved)
	g.place, g.fetched = onDevice, l.here()
	t.takes, t.hostGives = g.bytes, g.bytes
	return ""
}

// takeGradients gives an update the gradients of its weights, which must be whole. It waits for their copies.
func (l *ledger) takeGradients(t *task, op Op) (reason string) {
	if l.updatesLast && !op.Prime && len(l.tasks)-1 < l.lastBackward {
		return "an update needs all gradients of its step (clipping, or skipping a step that is not finite): put it behind the last backward"
	}
	at := onDevice
	if op.Kind == schedule.HostUpdate {
		at = onHost
	}
	for _, i := range l.users[op.Layer] {
		g := &l.gradients[i]
		if reason = g.misplaced(op, at, l.step); reason != "" {
			return reason
		}
		if g.parts < len(l.microbatches) {
			return fmt.Sprintf("the gradient of layer %d has %d of %d microbatches", i, g.parts, len(l.microbatches))
		}
		if at == onDevice {
			t.leaves -= g.bytes
			l.wait(g.fetched)
		} else {
			t.hostGives += g.bytes
			l.wait(g.moved)
		}
		g.empty()
	}
	if l.updated[op.Layer] = l.step; op.Prime {
		l.updated[op.Layer]--
	}
	return ""
}

// update writes the device's weights and state, when their copies have ended.
func (l *ledger) update(items ...*resident) (reason string) {
	for _, r := range items {
		if r.bytes == 0 {
			continue
		}
		if reason = r.missing(); reason != "" {
			return reason
		}
		l.wait(r.fetched, r.written)
		r.status = newer
	}
	l.computed()
	return ""
}

// updateOnHost writes the host's weights and state, when their copies have ended.
func (l *ledger) updateOnHost(op Op, items ...*resident) (reason string) {
	if l.c.Layer(op.Layer).Update.HostS == nil {
		return fmt.Sprintf("the host cannot update layer %d: the chain has no host_update_s for it", op.Layer)
	}
	for _, r := range items {
		if r.status == newer {
			return fmt.Sprintf("the host's %s of layer %d are older than the device's", r.word, op.Layer)
		}
		l.wait(r.fetched) // no copy to the host runs: the device has nothing newer
		if r.hostUpdated = l.here(); r.status == same {
			r.status = stale
		}
	}
	return ""
}
