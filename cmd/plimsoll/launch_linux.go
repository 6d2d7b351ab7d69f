package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ofParent makes a process end when the one that started it is killed. It is in a group of its own: a terminal's Ctrl-C comes to it once,
// by its parent.
func ofParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}

// lateness is by how much timers of processes that launch starts may be late.
const lateness = time.Millisecond

// lettingTimersBeLate starts processes, from this thread, whose timers the system may let be late, until they ask for better ones. A
// thread of Go's runtime looks after a process every 20 us for milliseconds whenever that has waited, as a device does between two
// messages; where several processes share few cores, what they compute has to make room each time (bench/results/processes.md).
func lettingTimersBeLate(start func() error) error {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(lateness), 0, 0, 0) // a system that does not know it has its own way
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }()
	return start()
}
