package executor

import (
	"fmt"

	"plimsoll/executor/internal/canary"
	"plimsoll/runtime"
)

// auditor checks a running step against its layout: memory that no block owns must not change. It fills every block's
// memory with canaries when the block dies, and looks at them when the next block takes the memory. Host copies are
// watched like the arena.
type auditor struct {
	*bound
	inputs      int // the first items of the arena
	arena, host *canary.Region
	owned       []int64 // by position: bytes that were owned when the op started
	peak        int64   // the most of them
	err         error   // the first: of the step, or of the device
}

func newAuditor(b *bound, inputs int, dev runtime.Device, arena int64, copies runtime.Span) (*auditor, error) {
	mem, ok := dev.(runtime.Inspector)
	if !ok {
		return nil, ErrNotInspectable
	}
	n := len(b.layout.seq)
	blocks := runtime.Span{Offset: b.base, Bytes: arena - b.base}
	return &auditor{
		bound: b, inputs: inputs, arena: canary.New("arena", mem, blocks, b.layout.items, n), host: canary.New("host memory", mem, copies, b.layout.host, n),
		owned: make([]int64, n),
	}, nil
}

// begin prepares for a step; the input blocks have their content already.
func (a *auditor) begin() {
	a.peak, a.err = a.base, nil
	a.fail(a.arena.Begin(a.inputs))
	a.fail(a.host.Begin(0))
}

// fail keeps the first error.
func (a *auditor) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// before runs before the op of a moment: the memory of new blocks must be as their last owners left it.
func (a *auditor) before(m int) {
	a.check(m, a.arena.Before(m, a.inputs))
	a.check(m, a.host.Before(m, 0))
	p := a.layout.Order[m]
	a.owned[p] = a.base + a.arena.Live()
	a.peak = max(a.peak, a.owned[p])
}

// after runs after the op of a moment and takes the memory of the blocks that died with it.
func (a *auditor) after(m int) {
	a.fail(a.arena.After(m))
	a.fail(a.host.After(m))
}

// end checks all memory after the last op.
func (a *auditor) end() error {
	last := len(a.layout.seq) - 1
	a.check(last, a.arena.End())
	a.check(last, a.host.End())
	return a.err
}

// check says at which op memory was found written.
func (a *auditor) check(m int, err error) {
	if err != nil {
		p := a.layout.Order[m]
		a.fail(fmt.Errorf("audit: at op %d (%v) %w", p, a.layout.seq[p], err))
	}
}
