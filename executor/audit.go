package executor

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"plimsoll/executor/internal/pack"
	"plimsoll/runtime"
)

// canary fills memory that no block owns. It is a NaN as float32 and no small number as an index, so that a read of
// it shows in the results as well.
const canary = 0xFF

var canaryPage = bytes.Repeat([]byte{canary}, 4096)

// window is how much of the memory an auditor looks at at a time, in bytes.
const window = 1 << 20

// auditor checks a running step against its layout: memory that no block owns must not change. It fills every block's
// memory with canaries when the block dies, and looks at them when the next block takes the memory. Host copies are
// watched like the arena.
type auditor struct {
	*bound
	inputs      int // the first items of the arena
	arena, host memoryRegion
	owned       []int64 // by position: bytes that were owned when the op started
	peak        int64   // the most of them
	err         error   // the first: of the step, or of the device
}

// memoryRegion is memory that items share.
type memoryRegion struct {
	name   string
	dev    runtime.Inspector
	memory runtime.Span // of the items alone
	items  []pack.Item
	look   []byte // a window's bytes
	born   [][]int
	dying  [][]int
	live   int64
	extent int64 // the end of the highest byte that was ever written
}

func newAuditor(b *bound, inputs int, dev runtime.Device, arena int64, copies runtime.Span) (*auditor, error) {
	mem, ok := dev.(runtime.Inspector)
	if !ok {
		return nil, ErrNotInspectable
	}
	n := len(b.layout.seq)
	blocks := runtime.Span{Offset: b.base, Bytes: arena - b.base}
	return &auditor{
		bound: b, inputs: inputs, arena: newMemoryRegion("arena", mem, blocks, b.layout.items, n), host: newMemoryRegion("host memory", mem, copies, b.layout.host, n),
		owned: make([]int64, n),
	}, nil
}

func newMemoryRegion(name string, dev runtime.Inspector, memory runtime.Span, items []pack.Item, moments int) memoryRegion {
	g := memoryRegion{
		name: name, dev: dev, memory: memory, items: items, look: make([]byte, min(window, memory.Bytes)),
		born: make([][]int, moments), dying: make([][]int, moments),
	}
	for i, it := range items {
		g.born[it.First] = append(g.born[it.First], i)
		g.dying[it.Last] = append(g.dying[it.Last], i)
	}
	return g
}

// at returns a part of the region as a span of the device.
func (g *memoryRegion) at(offset, bytes int64) runtime.Span {
	return runtime.Span{Space: g.memory.Space, Offset: g.memory.Offset + offset, Bytes: bytes}
}

// fill puts canaries in a part of the region.
func (g *memoryRegion) fill(offset, bytes int64) error {
	return g.dev.Fill(g.at(offset, bytes), canary)
}

// touched returns the end of the last byte of a part that is not a canary, 0 if all are.
func (g *memoryRegion) touched(offset, bytes int64) (int64, error) {
	for bytes > 0 {
		n := min(bytes, int64(len(g.look)))
		bytes -= n
		if err := g.dev.Peek(g.at(offset+bytes, n), g.look[:n]); err != nil {
			return 0, err
		}
		if end := touched(g.look[:n]); end > 0 {
			return bytes + int64(end), nil
		}
	}
	return 0, nil
}

// begin prepares for a step; the input blocks have their content already.
func (a *auditor) begin() {
	a.peak, a.err = a.base, nil
	for _, g := range []*memoryRegion{&a.arena, &a.host} {
		g.live, g.extent = 0, 0
	}
	inputs := slices.Clone(a.layout.items[:a.inputs])
	slices.SortFunc(inputs, func(a, b pack.Item) int { return cmp.Compare(a.Offset, b.Offset) })
	end := int64(0)
	for _, in := range inputs {
		a.fail(a.arena.fill(end, in.Offset-end))
		end = in.Offset + in.Bytes
	}
	a.fail(a.arena.fill(end, a.arena.memory.Bytes-end))
	a.fail(a.host.fill(0, a.host.memory.Bytes))
}

// fail keeps the first error.
func (a *auditor) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// before runs before the op of a moment: the memory of new blocks must be as their last owners left it.
func (a *auditor) before(m int) {
	for _, g := range []*memoryRegion{&a.arena, &a.host} {
		for _, k := range g.born[m] {
			it := &g.items[k]
			g.live += it.Bytes
			if g != &a.arena || k >= a.inputs {
				a.check(g, m, it.Offset, it.Bytes)
			}
		}
	}
	p := a.layout.order[m]
	a.owned[p] = a.base + a.arena.live
	a.peak = max(a.peak, a.owned[p])
}

// after runs after the op of a moment and takes the memory of the blocks that died with it.
func (a *auditor) after(m int) {
	for _, g := range []*memoryRegion{&a.arena, &a.host} {
		for _, k := range g.dying[m] {
			it := &g.items[k]
			g.live -= it.Bytes
			end, err := g.touched(it.Offset, it.Bytes)
			a.fail(err)
			g.extent = max(g.extent, it.Offset+end)
			a.fail(g.fill(it.Offset, it.Bytes))
		}
	}
}

// end checks all memory after the last op.
func (a *auditor) end() error {
	for _, g := range []*memoryRegion{&a.arena, &a.host} {
		a.check(g, len(a.layout.seq)-1, 0, g.memory.Bytes)
	}
	return a.err
}

func (a *auditor) check(g *memoryRegion, m int, offset, bytes int64) {
	n, err := g.touched(offset, bytes)
	a.fail(err)
	if n > 0 {
		p := a.layout.order[m]
		a.fail(fmt.Errorf("audit: at op %d (%v) the %s's byte %d, which no block owned, had been written",
			p, a.layout.seq[p], g.name, g.at(offset, n).End()-1))
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
