package pipeline

import (
	"errors"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// ErrOps: the ops of a stage are not what a stage can run; the message names the stage and the op.
var ErrOps = errors.New("bad ops of a stage")

// StageCost is what the ops of a stage cost one minibatch. Bytes include the input of the stage, and are those if nothing were
// offloaded.
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

// Bytes returns what g live minibatches hold at most, if nothing is offloaded: one is inside a part, all others between theirs. For
// one it is exact.
func (c *StageCost) Bytes(g int) int64 {
	return int64(g-1)*c.Kept + max(c.ForwardPeak, c.BackwardPeak)
}

// digits returns the decimal places of its times.
func (c *StageCost) digits() int { return max(digits(c.Forward), digits(c.Backward), digits(c.Early)) }
