//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/runtime"
)

// memory is the memory that Reserve allocated. It never changes, so streams use it without a lock.
type memory struct {
	runtime.Extent
	arena cu.DevicePtr
	host  unsafe.Pointer // page-locked
}

// free gives the memory back; the context is current.
func (m *memory) free() error {
	var all error
	if m.arena != 0 {
		all = callError("cuMemFree", cu.MemFree(m.arena))
	}
	if m.host != nil {
		all = errors.Join(all, callError("cuMemFreeHost", cu.MemFreeHost(m.host)))
	}
	*m = memory{}
	return all
}

// at returns the address of a span that Extent has accepted.
func (m *memory) at(s runtime.Span) cu.DevicePtr { return m.arena + cu.DevicePtr(s.Offset) }

func (m *memory) hostAt(s runtime.Span) unsafe.Pointer { return unsafe.Add(m.host, s.Offset) }
