package executor

import (
	"bytes"
	"fmt"

	"plimsoll/runtime"
)

// addressable is a device whose arena the program can read and write in place.
type addressable interface {
	Bytes(runtime.Span) ([]byte, error)
}

// canary fills memory that no block owns. It is a NaN as float32 and no small number as an index, so that a read of
// it shows in the results as well.
const canary = 0xFF

var canaryPage = bytes.Repeat([]byte{canary}, 4096)

// auditor checks a running step against its tape: memory that no block owns must not change. It fills every block's
// memory with canaries when the block dies, and looks at them when the next block takes the memory.
type auditor struct {
	*bound
	arena  []byte // of the blocks alone
	born   [][]int
	dying  [][]int
	live   int64
	owned  []int64 // bytes that were owned while each op ran
	peak   int64   // the most of them
	extent int64   // the end of the highest byte that was ever written
	err    error
}

func newAuditor(b *bound, dev runtime.Device, arena int64) (*auditor, error) {
	mem, ok := dev.(addressable)
	if !ok {
		return nil, ErrNotAddressable
	}
	memory, err := mem.Bytes(runtime.Span{Offset: b.base, Bytes: arena - b.base})
	if err != nil {
		return nil, err
	}
	a := &auditor{bound: b, arena: memory, born: make([][]int, len(b.tape.seq)), dying: make([][]int, len(b.tape.seq)), owned: make([]int64, len(b.tape.seq))}
	for i, it := range b.tape.items {
		a.born[it.first] = append(a.born[it.first], i)
		a.dying[it.last] = append(a.dying[it.last], i)
	}
	return a, nil
}

// begin prepares for a step; the input block has its content already.
func (a *auditor) begin() {
	a.live, a.peak, a.extent, a.err = 0, a.base, 0, nil
	in := a.tape.items[0]
	fill(a.arena[:in.offset])
	fill(a.arena[in.offset+in.bytes:])
}

// before runs before op i: the memory of new blocks must be as their last owners left it.
func (a *auditor) before(i int) {
	for _, k := range a.born[i] {
		it := &a.tape.items[k]
		a.live += it.bytes
		if k != 0 {
			a.check(i, it.offset, it.bytes)
		}
	}
	a.owned[i] = a.base + a.live
	a.peak = max(a.peak, a.owned[i])
}

// after runs after op i and takes the memory of the blocks that died with it.
func (a *auditor) after(i int) {
	for _, k := range a.dying[i] {
		it := &a.tape.items[k]
		a.live -= it.bytes
		mem := a.arena[it.offset : it.offset+it.bytes]
		a.extent = max(a.extent, it.offset+int64(touched(mem)))
		fill(mem)
	}
}

// end checks all memory after the last op.
func (a *auditor) end() error {
	a.check(len(a.tape.seq)-1, 0, int64(len(a.arena)))
	return a.err
}

func (a *auditor) check(i int, offset, bytes int64) {
	if n := touched(a.arena[offset : offset+bytes]); n > 0 && a.err == nil {
		a.err = fmt.Errorf("audit: at op %d (%v) the arena's byte %d, which no block owned, had been written",
			i, a.tape.seq[i], a.base+offset+int64(n)-1)
	}
}

func fill(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, canaryPage):]
	}
}

// touched returns the end of the last byte that is not a canary, 0 if all are.
func touched(b []byte) int {
	for len(b) >= len(canaryPage) && bytes.Equal(b[len(b)-len(canaryPage):], canaryPage) {
		b = b[:len(b)-len(canaryPage)]
	}
	for n := len(b); n > 0; n-- {
		if b[n-1] != canary {
			return n
		}
	}
	return 0
}
