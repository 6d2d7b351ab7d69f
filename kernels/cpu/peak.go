package cpu

// #include "job.h"
import "C"

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"time"
	"unsafe"

	"plimsoll/internal/cores"
	"plimsoll/kernels"
)

// Peak measures what one core can multiply and add on a path, in operations a second: registers only, the median of
// several runs. It is what shares of peak are stated of, which are of medians, too.
func Peak(path Path) float64 {
	const rounds, chains = 1_000_000, 12
	lanes := int64(C.plimsoll_panel(C.int32_t(path))) / 2
	sink := make([]float32, lanes)
	b := &builder{lib: &Library{path: path}}
	addJob(b, C.PEAK, 1, scratch{}, C.struct_peak_args{
		rounds: rounds, sink: C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(sink)))),
	})
	alone, err := sharedPool(workers{threads: 1})
	if err != nil {
		panic(fmt.Sprintf("BUG: a pool without helpers: %v", err))
	}
	took := medianTime(&launch{pool: alone, jobs: b.jobs, shares: make([]C.struct_share, 1)})
	goruntime.KeepAlive(sink)
	return float64(2*rounds*chains*lanes) / took.Seconds()
}

// medianTime returns the median of several runs of a launch.
func medianTime(l *launch) time.Duration {
	var times [5]time.Duration
	for i := range times {
		start := time.Now()
		_ = l.Run() // has no errors
		times[i] = time.Since(start)
	}
	slices.Sort(times[:])
	return times[len(times)/2]
}

// triadBytes is STREAM's count of bytes for an element of its triad: two reads and a write.
const triadBytes = 12

// triad returns STREAM's triad a = b + s*c over a memory, on a number of workers, and its number of elements. Each of a, b and c is a
// third of the memory.
func (l *Library) triad(memory []byte) (triad *launch, elements int64) {
	elements = int64(len(memory)) / triadBytes / kernels.Alignment * kernels.Alignment
	at := C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	bytes := C.uint64_t(4 * elements)
	b := l.newBuilder(nil)
	addJob(b, C.TRIAD, ceil(elements, grain), scratch{}, C.struct_map_args{
		out: at, a: at + bytes, b: at + 2*bytes, n: C.int64_t(elements), chunk: grain, most: 3,
	})
	return l.launch("triad", b, []access{{bytes: memory, write: true}}), elements
}

// Bandwidth implements kernels.Streamer: STREAM's triad on all cores.
func (l *Library) Bandwidth(memory []byte) (float64, error) {
	pool, err := sharedPool(workers{threads: min(cores.Count(), MaxThreads), apart: true})
	if err != nil {
		return 0, fmt.Errorf("cpu: %w", err)
	}
	all := *l
	all.pool = pool
	triad, elements := all.triad(memory)
	if elements == 0 {
		return 0, fmt.Errorf("cpu: %d bytes are too few to measure memory with", len(memory))
	}
	return float64(triadBytes*elements) / medianTime(triad).Seconds(), nil
}
