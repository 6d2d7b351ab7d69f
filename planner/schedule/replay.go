package schedule

import (
	"fmt"
	"slices"

	"plimsoll/planner/chain"
)

// Verify replays a sequence against the rules that hold for any memory and link. Every operand is where the op
// needs it, and the backwards go from n to 1. Errors: *RuleError, for the first op that breaks a rule.
func Verify(c *chain.Chain, seq Sequence) error {
	var r replay
	return r.judge(c, seq)
}

// Residency is the part of one activation that one memory holds.
type Residency uint8

// The parts of an activation that a memory can hold.
const (
	Nothing Residency = iota
	Plain             // a_i
	Saved             // ā_i, which contains a_i; ā_0 = a_0 is plain
)

// slot follows activation i, and δ_i, through the sequence.
type slot struct {
	device   Residency
	leaving  Residency // offloaded since the last compute op, which still may be read
	host     Residency
	gradient bool
	arrival  int32 // the prefetch that brings the device (or leaving) copy, or none
	fetched  int32 // the last prefetch of the activation, or none
	sent     int32 // its last offload, or none
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
//
// Branches that meet (thesis, section 1.1.4, definition 3) keep the rules of a chain, carried over. A layer needs all activations
// that it reads, its backward leaves a gradient for each of them and consumes those that are plain. The branches go back in any
// order. The gradient of a branch's input goes as soon as it is there: training has no use for it (Multi-∅). Nothing is
// transferred.
type replay struct {
	chain.Wiring
	c           *chain.Chain
	first, last int // layers
	joins       bool
	slots       []slot
	leaving     []int // activations whose slot is leaving
	steps       []step
	before      [1]int // what a layer of a chain reads
	compute     int    // compute ops so far
	missing     int    // backwards
}

func (r *replay) judge(c *chain.Chain, seq Sequence) error {
	r.reset(c, 1, c.Len(), len(seq))
	r.slots[c.Len()].gradient = true // of the loss, empty
	for p, op := range seq {
		if reason := r.op(p, op); reason != "" {
			return &RuleError{p, op, reason}
		}
	}
	return r.end(len(seq))
}

// end refuses a sequence of so many ops that lacks backwards.
func (r *replay) end(ops int) error {
	switch l := r.gradient(); {
	case r.missing == 0:
		return nil
	case r.joins:
		return &RuleError{Index: ops, Reason: fmt.Sprintf("%d of the %d backwards are missing", r.missing, r.c.Len())}
	case l == none:
		return &RuleError{Index: ops, Reason: fmt.Sprintf("the forward of layer %d is missing", r.last)}
	default:
		return &RuleError{Index: ops, Reason: fmt.Sprintf("δ_%d is in memory, the backwards from %d down to %d are missing", l, l, r.first)}
	}
}

// gradient returns the activation whose gradient is in memory, of a chain; none when there is none.
func (r *replay) gradient() int {
	return slices.IndexFunc(r.slots, func(s slot) bool { return s.gradient })
}

// reset begins a sequence of so many ops on some layers, whose inputs are in memory.
func (r *replay) reset(c *chain.Chain, first, last, ops int) {
	r.c, r.Wiring, r.first, r.last = c, c.Wiring(), first, last
	r.joins = r.Joins()
	r.compute, r.missing = 0, last-first+1
	r.slots, r.leaving, r.steps = r.slots[:0], r.leaving[:0], r.steps[:0]
	for range r.Activations() {
		r.slots = append(r.slots, slot{arrival: none, fetched: none, sent: none})
	}
	r.slots[first-1].device = Plain
	for k := 1; k < r.Inputs(); k++ {
		r.slots[r.Input(k)].device = Plain
	}
	if cap(r.steps) < ops {
		r.steps = make([]step, 0, ops)
	}
}

// reads returns the activations that a layer reads.
func (r *replay) reads(l int) []int {
	if r.joins {
		return r.Reads(l)
	}
	r.before[0] = l - 1
	return r.before[:]
}

// op replays the op at position p and appends its step; it returns the rule that the op breaks, or "".
func (r *replay) op(p int, op Op) (reason string) {
	if op.Layer < r.first || op.Layer > r.last {
		return fmt.Sprintf("the %s has layers %d to %d", r.whole(), r.first, r.last)
	}
	r.steps = append(r.steps, step{waits: [2]int32{none, none}, releases: [2]int32{none, none}, before: int32(r.compute)})
	st := &r.steps[p]
	switch op.Kind {
	case Offload, Prefetch:
		return r.transfer(st, int32(p), op)
	case Backward:
		reason = r.backward(st, op.Layer)
	case ForwardAll, ForwardCheckpoint, ForwardDiscard:
		reason = r.forward(st, op.Kind, op.Layer)
	default:
		return "no such op"
	}
	r.compute++
	r.leave()
	return reason
}

// whole names what the layers are.
func (r *replay) whole() string {
	if r.last-r.first+1 < r.c.Len() {
		return "stage"
	}
	return "chain"
}

// leave ends the time in which what is leaving may be read.
func (r *replay) leave() {
	for _, i := range r.leaving {
		r.slots[i].leaving = Nothing
	}
	r.leaving = r.leaving[:0]
}

func (r *replay) transfer(st *step, p int32, op Op) (reason string) {
	switch {
	case r.joins:
		return "a model with branches has no transfers"
	case op.Kind == Offload:
		return r.offload(st, p, op.Layer-1)
	}
	return r.prefetch(st, p, op.Layer-1)
}

// offload moves the device copy to leaving, where the next compute op may still read it.
func (r *replay) offload(st *step, p int32, i int) (reason string) {
	s := &r.slots[i]
	if s.device == Nothing {
		return absent(i)
	}
	st.bytes = r.bytes(i, s.device)
	// A host copy is written only after it has been read: with two queues a prefetch may still be under way.
	st.waits[0] = s.fetched
	st.releases[0], st.holds = p, 1
	s.host, s.leaving, s.device, s.sent = s.device, s.device, Nothing, p
	r.leaving = append(r.leaving, i)
	return ""
}

func absent(i int) (reason string) { return fmt.Sprintf("activation %d is not in device memory", i) }

func (r *replay) prefetch(st *step, p int32, i int) (reason string) {
	s := &r.slots[i]
	switch {
	case s.host == Nothing:
		return fmt.Sprintf("activation %d was never offloaded", i)
	case s.device != Nothing:
		return fmt.Sprintf("activation %d is in device memory already", i)
	}
	st.bytes = r.bytes(i, s.host)
	st.takes, st.leaves = st.bytes, st.bytes
	st.waits[0] = s.sent
	s.device, s.arrival, s.fetched = s.host, p, p
	return ""
}

func (r *replay) forward(st *step, kind Kind, l int) (reason string) {
	reads := r.reads(l)
	for _, i := range reads {
		switch r.read(st, 0, i) {
		case Nothing:
			return absent(i)
		case Saved:
			if kind == ForwardDiscard {
				return fmt.Sprintf("the plain a_%d is needed, the saved set ā_%d is stored", i, i)
			}
		}
	}
	if kind == ForwardDiscard {
		for _, i := range reads {
			r.free(st, i)
		}
	}
	written := Plain
	if kind == ForwardAll {
		written = Saved
	}
	r.cost(st, kind, l)
	out := &r.slots[l]
	if out.device >= written { // it is stored already: the result is dropped when the op ends
		return ""
	}
	// ā_l swallows a plain a_l, even one whose prefetch has not ended. Nothing reads that copy, so nothing waits for it. Its bytes are
	// written off now and taken when the prefetch starts.
	r.free(st, l)
	st.leaves += r.bytes(l, written)
	out.device, out.arrival = written, none
	return ""
}

func (r *replay) backward(st *step, l int) (reason string) {
	reads := r.reads(l)
	for _, i := range reads {
		if r.read(st, 0, i) == Nothing {
			return absent(i)
		}
	}
	switch own := &r.slots[l]; {
	case !own.gradient && (r.joins || r.gradient() == none):
		return fmt.Sprintf("δ_%d is not in memory", l)
	case !own.gradient:
		return fmt.Sprintf("δ_%d is not in memory, δ_%d is", l, r.gradient())
	case r.read(st, 1, l) != Saved:
		return fmt.Sprintf("the saved set ā_%d is not in device memory", l)
	default:
		own.gradient = false
	}
	r.cost(st, Backward, l)
	st.leaves = -r.gradientBytes(l)
	r.free(st, l)
	for _, i := range reads {
		r.handBack(st, i)
	}
	r.missing--
	return ""
}

// handBack leaves δ_i, and consumes a plain a_i.
func (r *replay) handBack(st *step, i int) {
	in := &r.slots[i]
	if max(in.device, in.leaving) == Plain {
		r.free(st, i)
	}
	st.takes += r.gradientBytes(i)
	if in.gradient = !r.joins || !r.IsInput(i); in.gradient {
		st.leaves += r.gradientBytes(i)
	}
}

// read makes activation i operand k of the op: the op waits for its prefetch, and holds it if it is leaving.
func (r *replay) read(st *step, k, i int) Residency {
	s := &r.slots[i]
	if s.arrival != none {
		st.waits[k] = s.arrival
	}
	if s.device != Nothing || s.leaving == Nothing {
		return s.device
	}
	st.releases[k] = s.sent
	r.steps[s.sent].holds++
	return s.leaving
}

// free lets the op free the device copy of activation i when it ends. A copy that is leaving is freed by its offload.
func (r *replay) free(st *step, i int) {
	s := &r.slots[i]
	st.leaves -= r.bytes(i, s.device)
	s.device = Nothing
}

// cost sets the time of a compute op and the memory of its output and overhead; a backward's outputs come with handBack. Ops
// forward_checkpoint and forward_discard save nothing for backward; both have the chain's costs for that (discard_forward_s,
// discard_overhead_bytes).
func (r *replay) cost(st *step, kind Kind, l int) {
	layer := r.c.Layer(l)
	switch kind {
	case ForwardAll:
		st.seconds, st.takes = layer.ForwardS, layer.SavedBytes+layer.ForwardOverheadBytes
	case Backward:
		st.seconds, st.takes = layer.BackwardS, layer.BackwardOverheadBytes
	default:
		st.seconds, st.takes = layer.DiscardSeconds(), layer.OutputBytes+layer.DiscardOverhead()
	}
}

// bytes returns the size of what a memory holds of activation i.
func (r *replay) bytes(i int, what Residency) int64 {
	switch {
	case what == Nothing:
		return 0
	case i > r.c.Len(): // the input of a branch
		return r.c.InputBytes
	case what == Plain:
		return r.c.Activation(i)
	}
	return r.c.Saved(i)
}

// gradientBytes returns the size of δ_i.
func (r *replay) gradientBytes(i int) int64 {
	if i > r.c.Len() {
		return r.c.InputBytes
	}
	return r.c.Gradient(i)
}
