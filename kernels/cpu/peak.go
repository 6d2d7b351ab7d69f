package cpu

// #include "job.h"
import "C"

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"time"
	"unsafe"
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
	l := &launch{pool: alone, jobs: b.jobs, shares: make([]C.struct_share, 1)}
	var rates [5]float64
	for i := range rates {
		start := time.Now()
		_ = l.Run() // has no errors
		rates[i] = float64(2*rounds*chains*lanes) / time.Since(start).Seconds()
	}
	goruntime.KeepAlive(sink)
	slices.Sort(rates[:])
	return rates[len(rates)/2]
}
