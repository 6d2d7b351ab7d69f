package remat

import (
	"context"
	"slices"

	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// The size of a part that is solved again, in ops, layers and states of a search.
const (
	windowOps    = 48
	windowLayers = 10
	windowStates = 1 << 12
)

// improved solves parts of a sequence again, each with what other layers hold left as it is, until none gets faster or a quarter of
// the budget is spent. The result is never slower, and fits where the sequence fitted. Errors: the context's.
func (k *costs) improved(ctx context.Context, p strategy.Problem, seq schedule.Sequence) (schedule.Sequence, error) {
	spent := 0
	for better := true; better; {
		better = false
		now := k.contents()
		for at := 0; at < len(seq) && spent < p.States/4; at++ {
			if w, ops := now.window(seq[at:], p.Memory); w != nil {
				f, err := w.search(ctx, k.excessOf(seq[at:at+ops]), windowStates)
				if err != nil {
					return nil, err
				}
				if spent += f.nodes; f.seq != nil {
					seq, better = slices.Concat(seq[:at], f.seq, seq[at+ops:]), true
				}
			}
			now.run(seq[at])
		}
	}
	return seq, nil
}

// contents is the content of memory between two ops of a sequence.
type contents struct {
	*costs
	held     []store // of activations 0..n
	gradient int
}

// contents returns the content of memory at the start.
func (k *costs) contents() *contents {
	m := &contents{costs: k, held: make([]store, k.n+1), gradient: k.n}
	m.held[0] = bare
	return m
}

// run runs an op that keeps the rules.
func (m *contents) run(op schedule.Op) {
	l := op.Layer
	switch op.Kind {
	case schedule.ForwardAll:
		m.held[l] = full
	case schedule.ForwardCheckpoint:
		m.held[l] = max(m.held[l], bare)
	case schedule.ForwardDiscard:
		m.held[l-1], m.held[l] = gone, max(m.held[l], bare)
	case schedule.Backward:
		m.held[l], m.gradient = gone, l-1
		if m.held[l-1] == bare {
			m.held[l-1] = gone
		}
	}
}

// window returns the space from here to behind the longest prefix of the sequence that is short enough, and its ops; nil when these
// repeat nothing.
func (m *contents) window(seq schedule.Sequence, memory int64) (w *space, ops int) {
	end := contents{m.costs, slices.Clone(m.held), m.gradient}
	low, high := m.n, 1
	for ; ops < min(len(seq), windowOps); ops++ {
		l := seq[ops].Layer
		if max(high, l)-min(low, l) >= windowLayers {
			break
		}
		low, high = min(low, l), max(high, l)
		end.run(seq[ops])
	}
	if m.excessOf(seq[:ops]) == 0 {
		return nil, 0
	}
	w = &space{costs: m.costs, below: low - 1, w: high - low + 1, top: m.gradient}
	w.from, w.to = w.of(m), w.of(&end)
	w.limit = memory - m.outside(low-1, high)
	return w, ops
}

// of returns the part of a memory's content that the space knows.
func (p *space) of(m *contents) holding {
	s := holding(p.top-m.gradient) << heldBits
	for i := range p.w + 1 {
		s = s.with(i, m.held[p.below+i])
	}
	return s
}

// outside returns the bytes held of all activations but low..high.
func (m *contents) outside(low, high int) (sum int64) {
	for i, what := range m.held {
		switch {
		case i >= low && i <= high:
		case what == bare:
			sum += m.a[i]
		case what == full:
			sum += m.saved[i]
		}
	}
	return sum
}
