package interop

import (
	"fmt"
	"slices"

	"plimsoll/internal/fields"
	"plimsoll/planner/schedule"
)

// Sequence returns the actions as a sequence for a chain of n layers. Step k is layer k+1; forwards of a Forward beyond the
// last layer are left out.
//
// WORK and RAM are device memory, where one copy of an activation serves both; DISK is the host. So
//
//	data kept in RAM    a forward_checkpoint reads it; Copy from it and Move to WORK are no ops
//	data moved to WORK  the forward_discard or backward that reads it frees it
//	data on DISK        offload before the next op, prefetch when an op or a Copy or Move asks for it
//	saved sets          forward_all; on DISK they leave with the input of the next layer, the last one stays
//
// A Move to NONE deletes nothing on the device: there only an op frees memory. Whether the sequence keeps the rules
// schedule.Verify tells. Errors: *fields.FileError for data that is not there, and for a second adjoint pass.
func (a *Actions) Sequence(n int) (schedule.Sequence, error) {
	t := &translator{n: n, device: make([]held, n+1), host: make([]held, n+1), keep: make([]bool, n+1), leave: none, back: n}
	t.device[0] = plain
	for _, step := range a.Steps {
		if reason := t.take(step); reason != "" {
			return nil, &fields.FileError{File: a.File, Line: step.Line, Field: step.Name, Value: step.text(), Reason: reason}
		}
	}
	return t.out, nil
}

// text returns the steps that an instruction is about.
func (s Instruction) text() string {
	switch s.Name {
	case "Forward":
		return fmt.Sprintf("%d, %d", s.First, s.Last)
	case "Reverse":
		return fmt.Sprintf("%d, %d", s.Last, s.First)
	case "Copy", "Move":
		return fmt.Sprint(s.First)
	}
	return "()"
}

// held is the part of an activation that a memory has.
type held uint8

const (
	nothing held = iota
	plain
	saved
)

// translator is the memory while actions become ops.
type translator struct {
	n            int
	device, host []held // by activation, 0..n
	keep         []bool // checkpoints in RAM: a forward that reads one leaves it
	leave        int    // the activation to offload before the next forward; none
	back         int    // δ_back is there
	ended        bool
	out          schedule.Sequence
}

func (t *translator) take(s Instruction) (reason string) {
	if t.ended {
		return "comes after EndReverse: one adjoint pass is one sequence"
	}
	switch s.Name {
	case "Forward":
		return t.forward(s)
	case "Reverse":
		return t.reverse(s)
	case "Copy", "Move":
		return t.fetch(s)
	case "EndReverse":
		t.ended = true
	}
	return ""
}

func (t *translator) op(kind schedule.Kind, layer int) {
	t.out = append(t.out, schedule.Op{Kind: kind, Layer: layer})
}

// bring prefetches an activation that is on the host only; it reports whether the device has it.
func (t *translator) bring(i int) bool {
	if t.device[i] == nothing && t.host[i] != nothing && i < t.n {
		t.op(schedule.Prefetch, i+1)
		t.device[i] = t.host[i]
	}
	return t.device[i] != nothing
}

// send offloads an activation.
func (t *translator) send(i int) {
	t.op(schedule.Offload, i+1)
	t.host[i], t.device[i] = t.device[i], nothing
}

func (t *translator) forward(s Instruction) (reason string) {
	last := min(s.Last, t.n)
	if s.First >= last {
		return fmt.Sprintf("has no step of the %d that the chain has", t.n)
	}
	for i := s.First; i < last; i++ {
		if !t.bring(i) {
			return fmt.Sprintf("starts with step %d, whose data is not there", i)
		}
		t.step(i, s, i == s.First && s.KeepInput)
	}
	return ""
}

// step runs step i, whose input is activation i.
func (t *translator) step(i int, s Instruction, keepInput bool) {
	input := t.device[i]
	if leave := t.leave; leave != none && t.device[leave] != nothing {
		t.send(leave)
	}
	t.leave = none
	if keepInput && s.To == RAM {
		t.keep[i] = true
	}
	if keepInput && s.To == Disk && t.device[i] != nothing {
		t.send(i)
	}
	switch {
	case s.KeepSets:
		t.op(schedule.ForwardAll, i+1)
		t.device[i+1] = saved
		if s.To == Disk && i+1 < t.n {
			t.leave = i + 1
		}
		return
	case input == plain && !t.keep[i] && t.device[i] == plain:
		t.op(schedule.ForwardDiscard, i+1)
		t.device[i] = nothing
	default:
		t.op(schedule.ForwardCheckpoint, i+1)
	}
	t.device[i+1] = max(t.device[i+1], plain)
}

func (t *translator) reverse(s Instruction) (reason string) {
	if s.Last != t.back {
		return fmt.Sprintf("begins behind step %d, the next backward is that of step %d of %d", s.Last-1, t.back-1, t.n)
	}
	t.back = s.First
	t.leave = none // what the next backward may need stays
	for l := s.Last; l > s.First; l-- {
		if !t.bring(l) || t.device[l] != saved {
			return fmt.Sprintf("needs the saved set of step %d, which is not there", l-1)
		}
		if !t.bring(l - 1) {
			return fmt.Sprintf("needs the input of step %d, which is not there", l-1)
		}
		t.op(schedule.Backward, l)
		t.device[l] = nothing
		if t.device[l-1] == plain {
			t.device[l-1], t.keep[l-1] = nothing, false
		}
	}
	return ""
}

// fetch is Copy and Move. The data of a step may be its input or, of schedules that keep these, its saved set, which the
// backward brings when it needs it.
func (t *translator) fetch(s Instruction) (reason string) {
	i := s.First
	if i > t.n {
		return fmt.Sprintf("is no step of the %d that the chain has", t.n)
	}
	here := []held{t.device[i], t.host[i]}
	if i < t.n {
		here = append(here, t.device[i+1], t.host[i+1])
	}
	if !slices.ContainsFunc(here, func(h held) bool { return h != nothing }) {
		return fmt.Sprintf("is the data of step %d, which is not there", i)
	}
	if s.Name == "Move" && s.From == RAM {
		t.keep[i] = false
	}
	if s.From == Disk && s.To != None {
		t.bring(i)
	}
	if s.To == RAM {
		t.keep[i] = true
	}
	return ""
}
