package host

import (
	"syscall"
	"time"
)

// nap sleeps with the kernel's timer, which is exact to about 60 us. The Go runtime's own sleep is exact to a
// millisecond only, when the process is otherwise idle.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // an interrupted nap is a short one: the caller looks at the clock
}
