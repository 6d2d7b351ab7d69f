package host

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exact is by how many nanoseconds the kernel lets a timer be late by itself, where nobody has let it be later.
const exact = 50_000

// nap sleeps with the kernel's timer, which is exact to about 60 us. The Go runtime's own sleep is exact to a
// millisecond only, when the process is otherwise idle.
func nap(d time.Duration) {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, exact, 0, 0, 0) // of this thread; it is what it was, or the caller looks at the clock
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // an interrupted nap is a short one: the caller looks at the clock
}
