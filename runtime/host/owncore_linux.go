package host

import (
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// ownCore is the core that a stream of this process has to itself.
var ownCore struct {
	sync.Mutex
	taken   bool
	allowed unix.CPUSet // the cores of the process
}

// reserveCore gives this thread, which its goroutine keeps, the last core that the process may use: all others of its threads leave that, and
// those that they begin. It reports whether it did: not where another stream has one, and not where there is only one core.
func reserveCore() bool {
	ownCore.Lock()
	defer ownCore.Unlock()
	if ownCore.taken || unix.SchedGetaffinity(0, &ownCore.allowed) != nil || ownCore.allowed.Count() < 2 {
		return false
	}
	last := 0
	for i := range 64 * len(ownCore.allowed) {
		if ownCore.allowed.IsSet(i) {
			last = i
		}
	}
	own, others := unix.CPUSet{}, ownCore.allowed
	own.Set(last)
	others.Clear(last)
	ownCore.taken = unix.SchedSetaffinity(0, &own) == nil
	if ownCore.taken {
		moveOthers(&others)
	}
	return ownCore.taken
}

// yieldCore lets this thread wait for its core whenever another one wants that: copies take little of it, and others wait for them. It lasts
// as long as the thread.
func yieldCore() {
	const niceness = 15
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
}

// releaseCore lets all threads use all cores again.
func releaseCore() {
	ownCore.Lock()
	defer ownCore.Unlock()
	ownCore.taken = false
	_ = unix.SchedSetaffinity(0, &ownCore.allowed)
	moveOthers(&ownCore.allowed)
}

// moveOthers lets all threads of the process but this one use some cores. A thread that is begun meanwhile has those of its parent: go on
// until all have been told.
func moveOthers(cores *unix.CPUSet) {
	for told := map[int]bool{unix.Gettid(): true}; ; {
		before := len(told)
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil && !told[id] {
				told[id] = true
				_ = unix.SchedSetaffinity(id, cores)
			}
		}
		if len(told) == before {
			return
		}
	}
}
