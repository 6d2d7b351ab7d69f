package schedule

import (
	"slices"

	"plimsoll/planner/chain"
)

// Follower replays ops one by one, by the rules of Verify, and says what is in memory between them. It serves to judge parts of
// a training step, and to find where something is stored.
type Follower struct {
	r    replay
	halt *RuleError
}

// Effect is the cost of an op. While a compute op runs, Takes bytes come on top of all that is stored. When it has ended, Leaves
// bytes of them remain, less the bytes freed then. Bytes of an offload are free when the transfer and the compute op directly after
// it have ended. Bytes of a prefetch are taken when it starts.
type Effect struct {
	Seconds       float64 // of compute ops
	Takes, Leaves int64   // bytes, of compute ops
	Moves         int64   // bytes, of transfers
}

// Follow begins a step of a chain.
func Follow(c *chain.Chain) *Follower {
	f := &Follower{}
	f.Restart(c)
	return f
}

// Restart begins a step of a chain in the memory of the one before.
func (f *Follower) Restart(c *chain.Chain) {
	f.halt = nil
	f.r.reset(c, 1, c.Len(), 2*c.Len())
	f.r.slots[c.Len()].gradient = true
}

// FollowStage begins what layers first to last of a chain without branches do for one minibatch, when a_{first-1} is there: their
// forward, Turn, and their backward.
func FollowStage(c *chain.Chain, first, last int) *Follower {
	f := &Follower{}
	f.r.reset(c, first, last, 2*(last-first+1))
	return f
}

// Do replays an op. Errors: *RuleError, from then on.
func (f *Follower) Do(op Op) (Effect, error) {
	p := len(f.r.steps)
	if f.halt == nil {
		if reason := f.r.op(p, op); reason != "" {
			f.halt = &RuleError{p, op, reason}
		}
	}
	if f.halt != nil {
		return Effect{}, f.halt
	}
	s := &f.r.steps[p]
	if op.Kind.Transfer() {
		return Effect{Moves: s.bytes}, nil
	}
	return Effect{Seconds: s.seconds, Takes: s.takes, Leaves: s.leaves}, nil
}

// Operands names the transfers that an op waits for, and those that wait for it. Ops are named by their number among those of the Follower, from 0; -1: none.
type Operands struct {
	Waits    [2]int // transfers that must have ended before the op starts
	Releases [2]int // offloads whose device copy stays until this op has ended, too
}

// Operands returns the operands of the last op.
func (f *Follower) Operands() Operands {
	s := &f.r.steps[len(f.r.steps)-1]
	return Operands{
		Waits:    [2]int{int(s.waits[0]), int(s.waits[1])},
		Releases: [2]int{int(s.releases[0]), int(s.releases[1])},
	}
}

// Leave ends the time in which offloaded activations may be read, as the next compute op does: for who follows several microbatches, where
// that op may be another one's.
func (f *Follower) Leave() { f.r.leave() }

// Left returns the first activation that the device holds; -1: none.
func (f *Follower) Left() int {
	return slices.IndexFunc(f.r.slots, func(s slot) bool { return s.device != Nothing })
}

// Turn passes the loss, or all stages behind: a plain output of the last layer goes, and its gradient comes. It returns the bytes of
// both.
func (f *Follower) Turn() (gone, come int64) {
	out := &f.r.slots[f.r.last]
	if out.device == Plain {
		gone = f.r.bytes(f.r.last, Plain)
		out.device = Nothing
	}
	out.gradient = true
	f.r.leave()
	return gone, f.r.gradientBytes(f.r.last)
}

// Stored returns the part of activation i that the device holds.
func (f *Follower) Stored(i int) Residency { return f.r.slots[i].device }

// Bytes returns the size of what the device holds of activation i.
func (f *Follower) Bytes(i int) int64 { return f.r.bytes(i, f.r.slots[i].device) }

// End refuses a sequence whose backwards are not all done. Errors: *RuleError.
func (f *Follower) End() error { return f.r.end(len(f.r.steps)) }
