package pipeline

import "sync"

// bound is how many minibatches a run has. It can be lowered while the run goes on, so that the pipeline empties early, but never
// below what somebody has relied on.
//
// Invariant: whether a minibatch is in the run has one answer, whoever asks, and whenever. So a run whose bound was lowered is,
// task by task, the run that had the last bound from its beginning.
type bound struct {
	mu    sync.Mutex
	n     int // minibatches
	known int // those below it were said to be in
}

// in reports whether a minibatch, counted from 0, is in the run. From then on it stays so.
func (b *bound) in(minibatch int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if minibatch >= b.n {
		return false
	}
	b.known = max(b.known, minibatch+1)
	return true
}

// end returns how many minibatches the run has, as of now.
func (b *bound) end() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// lower lets no minibatch in but those that complete the group of the last one that is known to be.
func (b *bound) lower(group int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n = min(b.n, (b.known+group-1)/group*group)
}
