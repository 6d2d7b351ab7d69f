package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// ErrOps: the ops of a stage are not what a stage can run; the message names the stage and the op.
var ErrOps = errors.New("bad ops of a stage")

// StageCost holds the costs of the ops of a stage for one minibatch. Bytes include the input of the stage, and are counted as
// if nothing were offloaded.
type StageCost struct {
	Forward, Backward         float64 // seconds
	Early                     float64 // seconds of the backward before its first op that needs the gradient
	Kept                      int64   // K: bytes between the two parts
	ForwardPeak, BackwardPeak int64   // most bytes while a part runs

	changes []change
	moves   []move // what is offloaded and prefetched, in the order of the offloads
	fetches []int  // the moves, in the order of the prefetches
}

// change is bytes that a minibatch takes, or frees if negative, so many seconds after its F or B has begun, if nothing were
// offloaded.
type change struct {
	at    float64
	back  bool
	bytes int64
}

// MeasureStage replays ops as those of the layers of a stage: F ends with the first that computes the last layer. Errors: ErrOps.
func MeasureStage(c *chain.Chain, st Stage, ops schedule.Sequence) (*StageCost, error) {
	m := &meter{rules: schedule.FollowStage(c, st.First, st.Last), memory: schedule.FollowStage(c, st.First, st.Last)}
	m.change(c.Activation(st.First - 1))
	for p, op := range ops {
		if err := m.run(p, op); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOps, err)
		}
		if op.Layer == st.Last && !m.back && !op.Kind.Transfer() {
			m.turn()
		}
	}
	if err := m.rules.End(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOps, err)
	}
	m.change(-m.used) // δ_{i-1}, and what nobody needs, go when B ends
	m.cost.Backward, m.cost.BackwardPeak, m.cost.fetches = m.seconds, m.peak, m.fetched()
	return &m.cost, nil
}

// meter follows one minibatch in a stage while its ops run.
type meter struct {
	rules   *schedule.Follower // judges the ops
	memory  *schedule.Follower // the same without transfers
	cost    StageCost
	back    bool    // B runs
	needed  bool    // the gradient has been read
	seconds float64 // of the part that runs
	used    int64
	peak    int64 // of the part
}

// change adds bytes to what is used, now.
func (m *meter) change(bytes int64) {
	m.used += bytes
	m.peak = max(m.peak, m.used)
	if bytes != 0 {
		m.cost.changes = append(m.cost.changes, change{m.seconds, m.back, bytes})
	}
}

// turn ends F and begins B.
func (m *meter) turn() {
	m.rules.Turn()
	gone, come := m.memory.Turn()
	m.change(-gone)
	m.cost.Forward, m.cost.ForwardPeak, m.cost.Kept = m.seconds, m.peak, m.used
	m.seconds, m.peak, m.back = 0, m.used, true
	m.change(come)
}

func (m *meter) run(p int, op schedule.Op) error {
	effect, err := m.rules.Do(op)
	switch {
	case err != nil:
		return err
	case op.Kind.Transfer():
		return m.transfer(p, op, effect.Moves)
	}
	if i, is := m.away(op); is {
		return &schedule.RuleError{Index: p, Op: op, Reason: fmt.Sprintf("it makes or drops activation %d, which is offloaded and has not been read again", i)}
	}
	if effect, err = m.memory.Do(op); err != nil {
		return err
	}
	begin := m.seconds
	m.change(effect.Takes)
	m.seconds += effect.Seconds
	m.change(effect.Leaves - effect.Takes)
	if m.needed = m.needed || op.Kind == schedule.Backward; m.back && !m.needed {
		m.cost.Early = m.seconds
	}
	if op.Kind == schedule.Backward {
		m.read(op.Layer, begin)
	}
	m.read(op.Layer-1, begin)
	return nil
}

// keep adds bytes that a minibatch has from the beginning of its F to the end of its B.
func (c *StageCost) keep(bytes int64) {
	c.Kept, c.ForwardPeak, c.BackwardPeak = c.Kept+bytes, c.ForwardPeak+bytes, c.BackwardPeak+bytes
	c.changes = append(c.changes, change{0, false, bytes}, change{c.Backward, true, -bytes})
}

// Bytes returns the most bytes that g live minibatches hold, if nothing is offloaded. One minibatch is inside a part, all others
// are between theirs. For one minibatch the result is exact.
func (c *StageCost) Bytes(g int) int64 {
	return int64(g-1)*c.Kept + max(c.ForwardPeak, c.BackwardPeak)
}

// digits returns the decimal places of its times.
func (c *StageCost) digits() int { return max(digits(c.Forward), digits(c.Backward), digits(c.Early)) }

// move is an activation that is offloaded in F and prefetched in B.
type move struct {
	index     int     // of the activation
	bytes     int64   // of it, or of its saved set
	out, back int     // positions of offload and prefetch; back is None as long as there is no prefetch
	ready     float64 // of F: every op before the offload has ended
	read      float64 // of F: the op that still reads it has ended
	due       float64 // of B: the first op begins that reads it again; NaN as long as there is none
}

// transfer notes an offload or a prefetch.
func (m *meter) transfer(p int, op schedule.Op, bytes int64) error {
	i, moves := op.Layer-1, m.cost.moves
	at := slices.IndexFunc(moves, func(v move) bool { return v.index == i })
	reason := ""
	switch {
	case op.Kind == schedule.Offload && m.back:
		reason = "a stage offloads before the op that ends F"
	case op.Kind == schedule.Offload:
		m.cost.moves = append(moves, move{index: i, bytes: bytes, out: p, back: None, ready: m.seconds, read: m.seconds, due: math.NaN()})
	case !m.back:
		reason = "a stage prefetches in B, behind the op that ends F"
	case moves[at].back != None:
		reason = "a stage prefetches an activation once"
	default:
		moves[at].back = p
	}
	if reason != "" {
		return &schedule.RuleError{Index: p, Op: op, Reason: reason}
	}
	return nil
}

// away returns an activation that a forward would write or drop while it is offloaded, or before it has been read again.
func (m *meter) away(op schedule.Op) (i int, is bool) {
	for _, v := range m.cost.moves {
		if math.IsNaN(v.due) && (v.index == op.Layer || v.back == None && v.index == op.Layer-1 && op.Kind == schedule.ForwardDiscard) {
			return v.index, true
		}
	}
	return 0, false
}

// read notes that an op, which began at a time and has ended now, has read an activation.
func (m *meter) read(i int, begin float64) {
	for k := range m.cost.moves {
		switch v := &m.cost.moves[k]; {
		case v.index != i:
		case v.back == None:
			v.read = m.seconds
		case math.IsNaN(v.due):
			v.due = begin
		}
	}
}

// fetched returns the moves in the order of their prefetches. Every one has one, and a reader behind it: the backward of the
// layer that reads the activation, if no other op.
func (m *meter) fetched() []int {
	order := make([]int, len(m.cost.moves))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(m.cost.moves[x].back, m.cost.moves[y].back) })
	return order
}
