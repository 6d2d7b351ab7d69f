package order

import "sync/atomic"

// Bound is how many minibatches a run has. It can be lowered while the run goes on, so that the pipeline empties early, but never
// below what somebody has relied on.
//
// Invariant: whether a minibatch is in the run has one answer, whoever asks, and whenever. So a run whose bound was lowered is,
// task by task, the run that had the last bound from its beginning.
type Bound struct {
	// how many minibatches there are, above boundBits, and below it how many of them were said to be in; the lowest bit says that it is
	// frozen. All change together.
	state  atomic.Uint64
	thawed chan struct{} // closed when it is frozen no more
}

// boundBits is half of a bound's state: no run has as many minibatches.
const boundBits = 32

func NewBound(n int) *Bound {
	b := &Bound{thawed: make(chan struct{})}
	b.state.Store(uint64(n) << boundBits)
	return b
}

func (b *Bound) look() (state uint64, n, known int) {
	state = b.state.Load()
	return state, int(state >> boundBits), int(state & (1<<boundBits - 1) >> 1)
}

func (b *Bound) change(state uint64, n, known int) bool {
	return b.state.CompareAndSwap(state, uint64(n)<<boundBits|uint64(known)<<1|state&frozen)
}

const frozen = 1

// Freeze lets nobody know of more minibatches until thaw, and returns how many are known. It is frozen at most once.
func (b *Bound) Freeze() (known int) {
	for {
		state, _, known := b.look()
		if b.state.CompareAndSwap(state, state|frozen) {
			return known
		}
	}
}

// Thaw lowers a frozen bound as if so many minibatches were known, of which it knows no more.
func (b *Bound) Thaw(known, group int) {
	_, n, own := b.look()
	b.state.Store(uint64(min(n, (known+group-1)/group*group))<<boundBits | uint64(own)<<1)
	close(b.thawed)
}

// In reports whether a minibatch, counted from 0, is in the run. From then on it stays so. It waits where that is not yet said.
func (b *Bound) In(minibatch int) bool {
	for {
		state, n, known := b.look()
		if minibatch < known || minibatch >= n {
			return minibatch < known
		}
		if state&frozen != 0 {
			<-b.thawed
			continue
		}
		if b.change(state, n, minibatch+1) {
			return true
		}
	}
}

// End returns how many minibatches the run has, as of now.
func (b *Bound) End() int {
	_, n, _ := b.look()
	return n
}

// Lower lets no minibatch in but those that complete the group of the last one that is known to be.
func (b *Bound) Lower(group int) {
	for {
		state, n, known := b.look()
		if b.change(state, min(n, (known+group-1)/group*group), known) {
			return
		}
	}
}

// none marks the absence of an index.
const none = -1
