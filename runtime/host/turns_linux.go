package host

import (
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// turn is how long a thread that computes keeps its core. An op takes milliseconds, or tens of them.
const turn = 20 * time.Millisecond

// LongTurns lets a thread of this process that has a core keep it for a turn when others want it too, because an op of a device is not
// divided. A thread that wakes up waits for its own turn. The policy is SCHED_BATCH, and from Linux 6.12 on with a slice as long as a turn.
// Threads that begin later inherit it. Without it, processes with a device each that share few cores preempt each other in the middle of
// ops, so that all are late. If the system refuses it, or the process was started under another policy, nothing changes.
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
	if id, err := strconv.Atoi(name); err == nil {
		_ = batch(id, turn) // an older system does not look at the length
	}
}

// batch gives a thread SCHED_BATCH and a slice, 0: the usual one, where it has the usual policy and the system lets it.
func batch(id int, slice time.Duration) bool {
	a, err := unix.SchedGetAttr(id, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL {
		return false
	}
	a.Policy, a.Runtime = unix.SCHED_BATCH, uint64(slice.Nanoseconds())
	return unix.SchedSetAttr(id, a, 0) == nil
}

// quieted says that the monitor has SCHED_BATCH from here.
var quieted atomic.Bool

// quietMonitor lets the thread of Go's runtime that watches the others wait for a core where all compute. While a goroutine computes
// outside of Go for longer than 10 ms it wakes up thousands of times a second, 20 us after it went to sleep. Each time it took a core from
// an op in the middle. Steps took 6 % longer, on two cores (bench/results/monitor.md). Threads that it begins from then on wait for their
// turns, too; those of a GPU in the same process may be among them.
func quietMonitor() {
	if id, ok := monitor(); ok && batch(id, 0) {
		quieted.Store(true)
	}
}

// monitor returns the thread that Go's runtime begins before any other: the one with the number behind the process's own. If a library
// has begun one before, or numbers began anew, it is another, which then waits for its turn. If /proc has the numbers of another
// namespace, ok is false.
func monitor() (id int, ok bool) {
	own, self := false, os.Getpid()
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		n, err := strconv.Atoi(t.Name())
		own = own || n == unix.Gettid()
		if err == nil && n > self && (id == 0 || n < id) {
			id = n
		}
	}
	return id, own && id > 0
}

// ownTurn gives this thread the usual policy, which it lacks if the monitor has begun it since: copies begin at once. It allocates nothing
// where that is so.
func ownTurn() {
	if !quieted.Load() {
		return
	}
	if policy, _, _ := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0); policy != unix.SCHED_BATCH {
		return
	}
	if a, err := unix.SchedGetAttr(0, 0); err == nil {
		a.Policy, a.Runtime = unix.SCHED_NORMAL, 0
		_ = unix.SchedSetAttr(0, a, 0)
	}
}
