package improve

import (
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Meter measures the memory of sequences of compute ops with gaps. The zero Meter is ready.
type Meter struct {
	f             schedule.Follower
	used, leaving int64
	illegal       bool
	during, moved []int64
}

// Memory returns, for each compute op, the bytes in use while it runs. The activations of the gaps are away between their two
// ops, and transfers take no time. Memory returns nil if the sequence then breaks a rule. It is valid until the next call.
func (m *Meter) Memory(c *chain.Chain, compute schedule.Sequence, gaps []Gap) []int64 {
	m.f.Restart(c)
	m.used, m.leaving, m.illegal = c.AllInputBytes(), 0, false
	m.during, m.moved = m.during[:0], append(m.moved[:0], make([]int64, len(gaps))...)
	for i, op := range compute {
		for _, g := range gaps {
			if g.To == i {
				m.do(schedule.Op{Kind: schedule.Prefetch, Layer: g.Layer})
			}
		}
		for k, g := range gaps {
			if g.From == i {
				m.moved[k] = m.do(schedule.Op{Kind: schedule.Offload, Layer: g.Layer})
			}
		}
		if m.during = append(m.during, m.do(op)); m.illegal {
			return nil
		}
	}
	return m.during
}

// do runs an op and returns the bytes in use meanwhile, or those that it moves.
func (m *Meter) do(op schedule.Op) (bytes int64) {
	e, err := m.f.Do(op)
	m.illegal = m.illegal || err != nil
	switch op.Kind {
	case schedule.Offload: // it is there while the next op runs
		m.leaving += e.Moves
		return e.Moves
	case schedule.Prefetch:
		m.used += e.Moves
		return e.Moves
	}
	during := m.used + e.Takes
	m.used, m.leaving = m.used+e.Leaves-m.leaving, 0
	return during
}

// stored replays ops that keep the rules.
func stored(c *chain.Chain, seq schedule.Sequence) *schedule.Follower {
	f := schedule.Follow(c)
	for _, op := range seq {
		mustDo(f, op)
	}
	return f
}

// mustDo replays an op of a sequence that keeps the rules.
func mustDo(f *schedule.Follower, op schedule.Op) {
	if _, err := f.Do(op); err != nil {
		panic("BUG: " + err.Error())
	}
}
