//go:build cgo && linux

package nccl

// #include "abi.h"
import "C"

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"plimsoll/runtime/world"
)

// OpenSums makes a communicator for each line, and adds up a number over it, for which NCCL connects the ranks. It is collective, behind
// Open. in runs do with the CUDA context of the device of a line current, on a locked thread. Errors: those of Open.
func (f *Fabric) OpenSums(ctx context.Context, lines []world.Line, in func(line int, do func() error) error) error {
	ctx, cancel := f.within(ctx)
	defer cancel()
	if err := f.world.AgreeOnLines(ctx, lines, map[string]string{"NCCL's version": f.Version()}); err != nil {
		return err
	}
	makers := make([]int, len(lines))
	for i, l := range lines {
		makers[i] = l.Ranks[0]
	}
	ids, err := f.ids(ctx, makers)
	if err != nil {
		return err
	}
	ends := make([]*end, len(lines))
	for i, l := range lines { // in one order everywhere, so nobody waits in a circle
		rank := slices.Index(l.Ranks, f.world.Rank())
		if rank < 0 {
			continue
		}
		e := f.keep(&end{
			calls: f.calls, rank: C.int(rank), ranks: C.int(len(l.Ranks)), label: "sums of " + l.Name, peer: f.others(l),
			in: func(do func() error) error { return in(i, do) },
		})
		ends[i] = e
		one := []world.Part{{Bytes: 4}}
		if err := f.connect(ctx, e, ids[i], func() error { return f.add(ctx, e, e.scratch, one, 0) }); err != nil {
			return f.stop(err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sums = ends
	f.watch.Go(func() { f.follow(ends) })
	return nil
}

// others names the other ranks of a line.
func (f *Fabric) others(l world.Line) string {
	var all []string
	for _, rank := range l.Ranks {
		if rank != f.world.Rank() {
			all = append(all, f.name(rank))
		}
	}
	return strings.Join(all, ", ")
}

// Sum has stream make parts of memory, float32 numbers from address on, the sums of those of all ranks of a line, as one launch of NCCL.
// The context of the line's device is current. All ranks give the same parts, in the same order; where they differ, NCCL waits for ever, or
// adds up something else. The bits are the same on all ranks, and may differ from run to run.
func (f *Fabric) Sum(line int, address uintptr, parts []world.Part, stream uintptr) error {
	if line < 0 || line >= len(f.sums) || f.sums[line] == nil {
		return fmt.Errorf("nccl: rank %d has no part in line %d", f.world.Rank(), line)
	}
	for _, p := range parts {
		if p.Bytes < 0 || p.Bytes%4 != 0 {
			return fmt.Errorf("nccl: %s: %d bytes are no float32 numbers", f.sums[line].label, p.Bytes)
		}
	}
	return f.add(context.Background(), f.sums[line], address, parts, stream)
}

// add gives NCCL sums. NCCL may give them to the stream a moment later, before which nothing may be issued behind them.
func (f *Fabric) add(ctx context.Context, e *end, address uintptr, parts []world.Part, stream uintptr) error {
	return f.await(ctx, e, "ncclAllReduce", f.call(e, func() C.int { return e.sum(address, parts, stream) }))
}
