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
