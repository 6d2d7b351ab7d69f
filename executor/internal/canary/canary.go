// Package canary watches memory that items share by turns: nothing may be written where no item lies. It knows neither plans nor
// streams; whoever watches stops the device between two pieces of work.
package canary

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"plimsoll/executor/internal/pack"
	"plimsoll/runtime"
)

// canary fills memory that no item owns. It is a NaN as float32 and no small number as an index, so that a read of
// it shows in the results as well.
const canary = 0xFF

var page = bytes.Repeat([]byte{canary}, 4096)

// window is how much of the memory is looked at at a time, in bytes.
const window = 1 << 20

// Region is memory that items share. An item owns its bytes from before its first moment until after its last one; then they are
// filled with canaries, at which the next owner looks.
type Region struct {
	name   string
	dev    runtime.Inspector
	memory runtime.Span
	items  []pack.Item
	look   []byte // a window's bytes
	born   [][]int
	dying  [][]int
	live   int64
	extent int64
}

// WrittenError says that a byte was written that nobody owned.
type WrittenError struct {
	Region string
	Byte   int64 // of the device's memory
}

func (e *WrittenError) Error() string {
	return fmt.Sprintf("the %s's byte %d, which no block owned, had been written", e.Region, e.Byte)
}

// New returns a region of a device's memory whose items, placed from its beginning, live through so many moments.
func New(name string, dev runtime.Inspector, memory runtime.Span, items []pack.Item, moments int) *Region {
	g := &Region{
		name: name, dev: dev, memory: memory, items: items, look: make([]byte, min(window, memory.Bytes)),
		born: make([][]int, moments), dying: make([][]int, moments),
	}
	for i, it := range items {
		g.born[it.First] = append(g.born[it.First], i)
		g.dying[it.Last] = append(g.dying[it.Last], i)
	}
	return g
}

// Live returns the bytes that items own, Extent the end of the highest byte that one of them was seen to have written, in the region.
func (g *Region) Live() int64   { return g.live }
func (g *Region) Extent() int64 { return g.extent }

// Begin fills the region with canaries, but for the first items, which have their content already. Errors: those of the device.
func (g *Region) Begin(filled int) error {
	g.live, g.extent = 0, 0
	kept := slices.Clone(g.items[:filled])
	slices.SortFunc(kept, func(a, b pack.Item) int { return cmp.Compare(a.Offset, b.Offset) })
	end := int64(0)
	for _, it := range kept {
		if err := g.fill(end, it.Offset-end); err != nil {
			return err
		}
		end = it.Offset + it.Bytes
	}
	return g.fill(end, g.memory.Bytes-end)
}

// Before lets the items of a moment own their memory, which must be as their last owners left it, but for that of the first ones.
// Errors: *WrittenError, those of the device.
func (g *Region) Before(moment, filled int) error {
	for _, k := range g.born[moment] {
		it := &g.items[k]
		g.live += it.Bytes
		if k < filled {
			continue
		}
		if err := g.untouched(it.Offset, it.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// After takes the memory of the items that have lived until a moment. Errors: those of the device.
func (g *Region) After(moment int) error {
	for _, k := range g.dying[moment] {
		it := &g.items[k]
		g.live -= it.Bytes
		end, err := g.touched(it.Offset, it.Bytes)
		if err != nil {
			return err
		}
		g.extent = max(g.extent, it.Offset+end)
		if err := g.fill(it.Offset, it.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// End looks at all memory behind the last moment. Errors: as of Before.
func (g *Region) End() error { return g.untouched(0, g.memory.Bytes) }

// at returns a part of the region as a span of the device.
func (g *Region) at(offset, bytes int64) runtime.Span {
	return runtime.Span{Space: g.memory.Space, Offset: g.memory.Offset + offset, Bytes: bytes}
}

// fill puts canaries in a part of the region.
func (g *Region) fill(offset, bytes int64) error { return g.dev.Fill(g.at(offset, bytes), canary) }

func (g *Region) untouched(offset, bytes int64) error {
	n, err := g.touched(offset, bytes)
	if err == nil && n > 0 {
		err = &WrittenError{g.name, g.at(offset, n).End() - 1}
	}
	return err
}

// touched returns the end of the last byte of a part that is not a canary, 0 if all are.
func (g *Region) touched(offset, bytes int64) (int64, error) {
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

// touched returns the end of the last byte that is not a canary, 0 if all are.
func touched(b []byte) int {
	for len(b) >= len(page) && bytes.Equal(b[len(b)-len(page):], page) {
		b = b[:len(b)-len(page)]
	}
	for n := len(b); n > 0; n-- {
		if b[n-1] != canary {
			return n
		}
	}
	return 0
}
