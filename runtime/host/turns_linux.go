package host

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// turn is how long a thread that computes keeps its core. An op takes milliseconds, or tens of them.
const turn = 20 * time.Millisecond

// LongTurns lets a thread of this process that has a core keep it for a turn where others want it too, as an op of a device is not divided
// among others, and lets one that wakes up wait for its own: SCHED_BATCH, and from Linux 6.12 on a slice as long as a turn. Threads that
// begin later have it from those that begin them. Processes that each have a device and share few cores otherwise take them from each other
// in the middle of ops, so that all are late. Where the system does not let it, and where whoever has started the process has chosen
// another policy, all stays as it is.
func LongTurns() {
	// A thread that is begun while others are told has what its parent had then: go on until all have been told.
	for told := map[string]bool{}; ; {
		before := len(told)
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			if !told[t.Name()] {
				told[t.Name()] = true
				longTurns(t.Name())
			}
		}
		if len(told) == before {
			return
		}
	}
}

// longTurns does so for one thread, whose number is its name.
func longTurns(name string) {
	id, err := strconv.Atoi(name)
	if err != nil {
		return
	}
	a, err := unix.SchedGetAttr(id, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL {
		return
	}
	a.Policy, a.Runtime = unix.SCHED_BATCH, uint64(turn.Nanoseconds()) // an older system does not look at the length
	_ = unix.SchedSetAttr(id, a, 0)
}
