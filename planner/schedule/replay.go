package schedule

import (
	"fmt"

	"plimsoll/planner/chain"
)

// Verify replays a sequence against the rules that hold whatever the memory and the link: every operand is where
// the op needs it, and the backwards go from n to 1. Errors: *RuleError, for the first op that breaks a rule.
func Verify(c *chain.Chain, seq Sequence) error {
	var r replay
	return r.judge(c, seq)
}

// residency is what one memory holds of one activation.
type residency uint8

const (
	nothing residency = iota
	plain             // a_i
	saved             // ā_i, which contains a_i; ā_0 = a_0 is plain
)

// slot follows activation i through the sequence.
type slot struct {
	device  residency
	leaving residency // offloaded since the last compute op, which still may be read
	host    residency
	arrival int32 // the prefetch that brings the device (or leaving) copy, or none
	fetched int32 // the last prefetch of the activation, or none
	sent    int32 // its last offload, or none
}

// none stands for no op.
const none = -1

// step is an op with its operands resolved: what it waits for, takes and releases.
type step struct {
	seconds float64 // compute ops; transfers depend on the link
	takes   int64   // bytes taken when the op starts
	leaves  int64   // bytes of takes that stay when it has ended, less those freed then; can be negative
	bytes   int64   // transfers: bytes moved
	// waits are transfers that must have ended before the op starts.
	waits [2]int32
	// releases are offloads whose device copy is free once this op, among their holds, has ended.
	releases [2]int32
	before   int32 // compute ops that stand before it
	holds    int8  // offloads: ops that must end before the device copy is free
	ended    bool
}

// replay is the state of memory between two ops. Its buffers are used again by the next run.
type replay struct {
	c       *chain.Chain
	slots   []slot
	leaving []int // activations whose slot is leaving
	steps   []step
	grad    int // δ_grad is in memory
	compute int // compute ops so far
}

func (r *replay) judge(c *chain.Chain, seq Sequence) error {
	if len(c.Branches) > 0 {
		return r.judgeJoin(c, seq)
	}
	r.reset(c, len(seq))
	for p, op := range seq {
		if reason := r.op(p, op); reason != "" {
			return &RuleError{p, op, reason}
		}
	}
	if r.grad != 0 {
		return &RuleError{Index: len(seq), Reason: fmt.Sprintf("δ_%d is in memory, the backwards from %d down to 1 are missing", r.grad, r.grad)}
	}
	return nil
}

func (r *replay) reset(c *chain.Chain, ops int) {
	r.c, r.grad, r.compute = c, c.Len(), 0
	r.slots, r.leaving, r.steps = r.slots[:0], r.leaving[:0], r.steps[:0]
	for range c.Len() + 1 {
		r.slots = append(r.slots, slot{arrival: none, fetched: none, sent: none})
	}
	r.slots[0].device = plain
	if cap(r.steps) < ops {
		r.steps = make([]step, 0, ops)
	}
}

// op replays the op at position p and appends its step; it returns the rule that the op breaks, or "".
func (r *replay) op(p int, op Op) (reason string) {
	if op.Layer < 1 || op.Layer > r.c.Len() {
		return fmt.Sprintf("the chain has layers 1 to %d", r.c.Len())
	}
	r.steps = append(r.steps, step{waits: [2]int32{none, none}, releases: [2]int32{none, none}, before: int32(r.compute)})
	st := &r.steps[p]
	switch op.Kind {
	case Offload:
		return r.offload(st, int32(p), op.Layer-1)
	case Prefetch:
		return r.prefetch(st, int32(p), op.Layer-1)
	case Backward:
		reason = r.backward(st, op.Layer)
	case ForwardAll, ForwardCheckpoint, ForwardDiscard:
		reason = r.forward(st, op.Kind, op.Layer)
	default:
		return "no such op"
	}
	r.compute++
	for _, i := range r.leaving {
		r.slots[i].leaving = nothing
	}
	r.leaving = r.leaving[:0]
	return reason
}

// offload moves the device copy to leaving, where the next compute op may still read it.
func (r *replay) offload(st *step, p int32, i int) (reason string) {
	s := &r.slots[i]
	if s.device == nothing {
		return fmt.Sprintf("activation %d is not in device memory", i)
	}
	st.bytes = r.bytes(i, s.device)
	// A host copy is written only after it has been read: with two queues a prefetch may still be under way.
	st.waits[0] = s.fetched
	st.releases[0], st.holds = p, 1
	s.host, s.leaving, s.device, s.sent = s.device, s.device, nothing, p
	r.leaving = append(r.leaving, i)
	return ""
}

func (r *replay) prefetch(st *step, p int32, i int) (reason string) {
	s := &r.slots[i]
	switch {
	case s.host == nothing:
		return fmt.Sprintf("activation %d was never offloaded", i)
	case s.device != nothing:
		return fmt.Sprintf("activation %d is in device memory already", i)
	}
	st.bytes = r.bytes(i, s.host)
	st.takes, st.leaves = st.bytes, st.bytes
	st.waits[0] = s.sent
	s.device, s.arrival, s.fetched = s.host, p, p
	return ""
}

func (r *replay) forward(st *step, kind Kind, l int) (reason string) {
	in, out := &r.slots[l-1], &r.slots[l]
	content, reason := r.read(st, 0, l-1)
	if reason != "" {
		return reason
	}
	if kind == ForwardDiscard {
		if content != plain {
			return fmt.Sprintf("the plain a_%d is needed, the saved set ā_%d is stored", l-1, l-1)
		}
		r.free(st, l-1)
		in.device = nothing
	}
	written := plain
	if kind == ForwardAll {
		written = saved
	}
	r.cost(st, kind, l)
	if out.device >= written { // it is stored already: the result is dropped when the op ends
		return ""
	}
	// ā_l swallows a plain a_l, even one whose prefetch has not ended: nothing reads that copy, so nothing waits
	// for it, and its bytes are written off now and taken when the prefetch starts.
	r.free(st, l)
	st.leaves += r.bytes(l, written)
	out.device, out.arrival = written, none
	return ""
}

func (r *replay) backward(st *step, l int) (reason string) {
	in, own := &r.slots[l-1], &r.slots[l]
	input, reason := r.read(st, 0, l-1)
	if reason != "" {
		return reason
	}
	if r.grad != l {
		return fmt.Sprintf("δ_%d is not in memory, δ_%d is", l, r.grad)
	}
	if set, _ := r.read(st, 1, l); set != saved {
		return fmt.Sprintf("the saved set ā_%d is not in device memory", l)
	}
	r.cost(st, Backward, l)
	st.leaves = r.c.Gradient(l-1) - r.c.Gradient(l)
	r.free(st, l)
	own.device = nothing
	if input == plain {
		r.free(st, l-1)
		in.device = nothing
	}
	r.grad = l - 1
	return ""
}

// read makes activation i operand k of the op: the op waits for its prefetch, and holds it if it is leaving.
func (r *replay) read(st *step, k, i int) (residency, string) {
	s := &r.slots[i]
	what := s.device
	if what == nothing {
		what = s.leaving
		if what == nothing {
			return nothing, fmt.Sprintf("activation %d is not in device memory", i)
		}
		st.releases[k] = s.sent
		r.steps[s.sent].holds++
	}
	st.waits[k] = s.arrival
	return what, ""
}

// free lets the op free the device copy of activation i when it ends. A copy that is leaving is freed by its offload.
func (r *replay) free(st *step, i int) { st.leaves -= r.bytes(i, r.slots[i].device) }

// cost sets the time of a compute op and the memory of its output and overhead. forward_checkpoint and
// forward_discard save nothing for backward; both cost what the chain says for that (discard_forward_s,
// discard_overhead_bytes).
func (r *replay) cost(st *step, kind Kind, l int) {
	layer := r.c.Layer(l)
	switch kind {
	case ForwardAll:
		st.seconds, st.takes = layer.ForwardS, layer.SavedBytes+layer.ForwardOverheadBytes
	case Backward:
		st.seconds, st.takes = layer.BackwardS, r.c.Gradient(l-1)+layer.BackwardOverheadBytes
	default:
		st.seconds, st.takes = layer.DiscardSeconds(), layer.OutputBytes+layer.DiscardOverhead()
	}
}

// bytes returns the size of what a memory holds of activation i.
func (r *replay) bytes(i int, what residency) int64 {
	switch what {
	case plain:
		return r.c.Activation(i)
	case saved:
		return r.c.Saved(i)
	}
	return 0
}
