// Package cores says on how many cores this process computes, and sees to it that whoever computes is not kept waiting by whoever copies.
//
// A goroutine needs a processor of Go's scheduler, of which there are as many as cores. A goroutine that copies memory holds its processor
// until the copy ends, even if the system has given its core to another thread. If there are as many copies as cores, a kernel that has
// ended outside of Go waits for a processor while a core is idle.
package cores

import (
	"runtime"
	"sync"
)

// count is read before anybody lends, and is not read again: whoever changes GOMAXPROCS for a while and puts it back, as
// testing.AllocsPerRun does, would otherwise change it.
var count = runtime.GOMAXPROCS(0)

var (
	mu   sync.Mutex
	lent int // processors beyond the cores
)

// Count returns the number of cores that this process computes on: GOMAXPROCS as it was when the process began.
func Count() int { return count }

// Lend gives Go's scheduler n processors more than there are cores; a negative n takes as many back.
func Lend(n int) {
	mu.Lock()
	defer mu.Unlock()
	lent += n
	runtime.GOMAXPROCS(count + lent)
}
