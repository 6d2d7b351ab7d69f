package cycle

import (
	"fmt"

	"plimsoll/planner/schedule"
)

// begin derives where each item is when a step begins. The first op of an item tells whether it is on the device, and all ops together
// tell how a step leaves it. Errors: *RuleError, for layers that are not updated exactly once.
func (l *ledger) begin() error {
	l.clear()
	if err := l.countUpdates(); err != nil {
		return err
	}
	for _, op := range l.seq {
		l.meet(op)
	}
	l.homes = 0
	for i := range l.weights {
		l.homes += l.weights[i].settle() + l.states[i].settle()
		l.gradients[i].initial = l.gradients[i].place
	}
	return nil
}

// clear forgets the sequence before.
func (l *ledger) clear() {
	for i := range l.weights {
		l.weights[i].clear()
		l.states[i].clear()
		l.gradients[i].clear()
		l.updated[i] = never
		l.updates[i] = 0
	}
	l.lastCompute, l.lastBackward = none, -1
}

// countUpdates refuses layers that are not updated exactly once, and finds the last backward.
func (l *ledger) countUpdates() error {
	for p, op := range l.seq {
		switch op.Kind {
		case schedule.Backward:
			l.lastBackward = p
		case schedule.Update, schedule.HostUpdate:
			if l.updates[op.Layer]++; l.updates[op.Layer] > 1 {
				return &RuleError{p, op, fmt.Sprintf("layer %d is updated twice in a step", op.Layer)}
			}
		}
	}
	for i := range l.gradients {
		if l.gradients[i].bytes > 0 && l.gradients[i].owner == i && l.updates[i] == 0 {
			return l.atEnd(fmt.Sprintf("layer %d is never updated: its gradient is left over", i))
		}
	}
	return nil
}

// meet looks at one op of the sequence, whose order is not judged yet.
func (l *ledger) meet(op Op) {
	weights, state, gradient := &l.weights[op.Layer], &l.states[op.Layer], &l.gradients[op.Layer]
	switch op.Kind {
	case schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.ForwardDiscard:
		l.weights[l.c.Owner(op.Layer)].meet(true)
	case schedule.Backward:
		l.weights[l.c.Owner(op.Layer)].meet(true)
		gradient.met = true
	case schedule.FetchWeights:
		weights.meetCopy(false)
	case schedule.FetchState:
		state.meetCopy(false)
	case schedule.WriteWeights:
		weights.meetCopy(true)
	case schedule.WriteState:
		state.meetCopy(true)
	case schedule.DropWeights:
		weights.meetDrop()
	case schedule.DropState:
		state.meetDrop()
	case schedule.OffloadGradient:
		gradient.meet(op, onDevice, len(l.microbatches))
	case schedule.FetchGradient:
		gradient.meet(op, onHost, len(l.microbatches))
	case schedule.Update, schedule.HostUpdate:
		l.meetUpdate(op, weights, state)
	}
}

func (l *ledger) meetUpdate(op Op, weights, state *resident) {
	at := onDevice
	if op.Kind == schedule.HostUpdate {
		at = onHost
	}
	for _, r := range [...]*resident{weights, state} {
		if at == onDevice {
			r.meetUpdate()
		} else {
			r.meetHostUpdate()
		}
	}
	for _, i := range l.users[op.Layer] {
		l.gradients[i].meet(op, at, len(l.microbatches))
	}
}
