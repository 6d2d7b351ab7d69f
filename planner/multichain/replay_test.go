package multichain

import (
	"fmt"
	"slices"
	"strings"
)

// multiDelta returns the join of Multi-δ: every input gradient is kept.
func multiDelta(lengths ...int) Join {
	return Join{Lengths: lengths, Keep: slices.Repeat([]bool{true}, len(lengths)), Forward: 1, Backward: 1, Loss: 1}
}

// multiEmpty returns the join of Multi-∅: no gradient is kept.
func multiEmpty(lengths ...int) Join {
	return Join{Lengths: lengths, Keep: make([]bool, len(lengths)), Forward: 1, Backward: 1, Loss: 1}
}

// String writes the step as the thesis does, with the branch: "F3(1)".
func (s Op) String() string {
	name := [...]string{"S", "F", "B", "Loss", "D"}[s.Kind]
	switch s.Kind {
	case Loss:
		return name
	case Drop:
		return fmt.Sprintf("%s(%d)", name, s.Branch)
	}
	return fmt.Sprintf("%s%d(%d)", name, s.Layer, s.Branch)
}

func (s Schedule) String() string {
	words := make([]string, len(s))
	for i, step := range s {
		words[i] = step.String()
	}
	return strings.Join(words, " ")
}

// replay runs a schedule against the rules of definition 5 and returns its makespan in seconds and its peak in slots.
// An error names the step that cannot run.
func replay(j Join, s Schedule) (makespan float64, peak int, err error) {
	if j, err = j.check(); err != nil {
		return 0, 0, err
	}
	m := newMemory(j)
	peak = m.used
	for i, step := range s {
		if why := m.run(step); why != "" {
			return 0, 0, fmt.Errorf("step %d, %v: %s", i, step, why)
		}
		peak = max(peak, m.used)
		makespan += [...]float64{Store: 0, Forward: j.Forward, Backward: j.Backward, Loss: j.Loss, Drop: 0}[step.Kind]
	}
	return makespan, peak, m.ended()
}

// memory is the contents of the slots: copies of activations, and gradients. used counts them.
type memory struct {
	join     Join
	copies   []map[int]int // of a_l, by branch
	gradient []int         // δ_l of a branch; none before the loss and when dropped
	lost     bool          // the loss has run
	used     int
}

const none = -1

func newMemory(j Join) *memory {
	m := &memory{join: j, used: len(j.Lengths)}
	for range j.Lengths {
		m.copies, m.gradient = append(m.copies, map[int]int{0: 1}), append(m.gradient, none)
	}
	return m
}

// run does a step; it returns why it cannot.
func (m *memory) run(s Op) string {
	if s.Branch < 0 || s.Branch >= len(m.copies) {
		return "there is no such branch"
	}
	have := m.copies[s.Branch]
	switch s.Kind {
	case Store:
		if have[s.Layer] == 0 {
			return "the activation is not in memory"
		}
		have[s.Layer]++
		m.used++
	case Forward:
		if s.Layer < 1 || s.Layer > m.join.Lengths[s.Branch] || have[s.Layer-1] == 0 {
			return "its input is not in memory"
		}
		have[s.Layer-1]--
		have[s.Layer]++
	case Backward:
		if have[s.Layer-1] == 0 || m.gradient[s.Branch] != s.Layer {
			return "its input or its gradient is not in memory"
		}
		have[s.Layer-1]--
		m.gradient[s.Branch]--
		m.used--
	case Loss:
		return m.loss()
	case Drop:
		if m.gradient[s.Branch] != 0 {
			return "the branch has not run to its end"
		}
		m.gradient[s.Branch] = none
		m.used--
	default:
		return "there is no such kind of step"
	}
	return ""
}

func (m *memory) loss() string {
	if m.lost {
		return "the loss has run already"
	}
	for i, l := range m.join.Lengths {
		if m.copies[i][l] == 0 {
			return fmt.Sprintf("the output of branch %d is not in memory", i)
		}
		m.copies[i][l]--
		m.gradient[i] = l
	}
	m.lost = true
	return ""
}

// ended reports what is missing at the end of a schedule.
func (m *memory) ended() error {
	for i := range m.gradient {
		done := m.gradient[i] == 0 || m.gradient[i] == none && m.lost && !m.join.Keep[i]
		if !done {
			return fmt.Errorf("branch %d has not run to its end, or its gradient was not kept", i)
		}
	}
	return nil
}
