//go:build race && cgo

package cpu

import (
	"runtime"
	"unsafe"
)

// report tells the race detector, which does not see into C, what the launch is about to touch.
func (a access) report() {
	if len(a.bytes) == 0 {
		return
	}
	start := unsafe.Pointer(unsafe.SliceData(a.bytes))
	if a.write {
		runtime.RaceWriteRange(start, len(a.bytes))
	} else {
		runtime.RaceReadRange(start, len(a.bytes))
	}
}
