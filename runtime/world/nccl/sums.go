//go:build cgo && linux

package nccl

// #include "abi.h"
import "C"

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"plimsoll/runtime"
	"plimsoll/runtime/world"
)

// OpenSums implements world.Transport. It makes a communicator for each line, and adds up a number over it, for which NCCL connects the
// ranks. Errors: those of Open.
func (f *fabric) OpenSums(lines []world.Line) error {
	ctx, cancel := f.within()
	defer cancel()
	if err := f.world.AgreeOnLines(ctx, lines, map[string]string{"NCCL's version": f.Version()}); err != nil {
		return err
	}
	ends, makers := make([]*end, len(lines)), make([]int, len(lines))
	for i, l := range lines {
		makers[i] = l.Ranks[0]
		if rank := slices.Index(l.Ranks, f.world.Rank()); rank >= 0 {
			ends[i] = &end{
				Way: world.Way{Device: l.Device}, calls: f.calls, rank: C.int(rank), ranks: C.int(len(l.Ranks)), label: "sums of " + l.Name, peer: f.others(l),
			}
		}
	}
	err := f.connectAll(ctx, ends, makers, func(e *end) error { return f.add(ctx, e, e.scratch, []part{{bytes: 4}}, 0) })
	if err == nil {
		f.sums = ends
	}
	return err
}

// others names the other ranks of a line.
func (f *fabric) others(l world.Line) string {
	var all []string
	for _, rank := range l.Ranks {
		if rank != f.world.Rank() {
			all = append(all, f.name(rank))
		}
	}
	return strings.Join(all, ", ")
}

// part is bytes of memory, from somewhere on: C's struct part.
type part struct{ offset, bytes int64 }

// Sum implements world.Transport, as one launch of NCCL.
func (f *fabric) Sum(line int, parts []runtime.Span) (runtime.Launch, error) {
	first := slices.MinFunc(parts, func(a, b runtime.Span) int { return cmp.Compare(a.Offset, b.Offset) })
	var all []part
	for _, p := range parts {
		all = append(all, part{p.Offset - first.Offset, p.Bytes})
	}
	return f.sums[line].device.Enqueue("ncclAllReduce", first, func(address, stream uintptr) error { return f.sum(line, address, all, stream) })
}

// sum has stream make parts of memory, float32 numbers from address on, the sums of those of all ranks of a line, as one launch of NCCL.
// The context of the line's device is current. All ranks give the same parts, in the same order; where they differ, NCCL waits for ever, or
// adds up something else. The bits are the same on all ranks, and may differ from run to run.
func (f *fabric) sum(line int, address uintptr, parts []part, stream uintptr) error {
	if line < 0 || line >= len(f.sums) || f.sums[line] == nil {
		return fmt.Errorf("nccl: rank %d has no part in line %d", f.world.Rank(), line)
	}
	for _, p := range parts {
		if p.bytes < 0 || p.bytes%4 != 0 {
			return fmt.Errorf("nccl: %s: %d bytes are no float32 numbers", f.sums[line].label, p.bytes)
		}
	}
	return f.add(context.Background(), f.sums[line], address, parts, stream)
}

// add gives NCCL sums. NCCL may give them to the stream a moment later, before which nothing may be issued behind them.
func (f *fabric) add(ctx context.Context, e *end, address uintptr, parts []part, stream uintptr) error {
	return f.await(ctx, e, "ncclAllReduce", f.call(e, func() C.int { return e.sum(address, parts, stream) }))
}
