package cpu

// #include "job.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"plimsoll/internal/cores"
)

// workers are a kind of pool: how many threads, whether beside others, and whether they compute with subnormal numbers.
type workers struct {
	threads           int
	apart, subnormals bool
}

// pool is the workers of all libraries that want the same ones; see pool.c.
type pool struct {
	workers
	c *C.struct_pool
}

var (
	poolsMu sync.Mutex
	pools   = map[workers]*pool{}
)

// sharedPool returns the pool with such workers, the caller included. All devices of the process share it.
func sharedPool(w workers) (*pool, error) {
	poolsMu.Lock()
	defer poolsMu.Unlock()
	if p := pools[w]; p != nil {
		return p, nil
	}
	spins := !w.apart && w.threads <= cores.Count()
	p := &pool{workers: w, c: C.plimsoll_pool(C.int64_t(w.threads), C.bool(spins), C.bool(w.subnormals))}
	if p.c == nil {
		return nil, fmt.Errorf("%w: the system does not start %d of them", ErrThreads, w.threads)
	}
	pools[w] = p
	return p, nil
}

// launch is a prepared call: its jobs run one after the other, each when the one before it has ended.
type launch struct {
	name string
	pool *pool
	jobs []C.struct_job
	uses []access // for the race detector; they keep the memory from the garbage collector, too

	shares []C.struct_share // of a job's tasks, for every worker of the pool
}

// Kernel implements runtime.Launch.
func (l *launch) Kernel() string { return l.name }

// Run computes on the caller's thread and the pool's. It does not allocate.
func (l *launch) Run() error {
	for _, u := range l.uses {
		u.report()
	}
	C.plimsoll_run(l.pool.c, unsafe.SliceData(l.jobs), C.int64_t(len(l.jobs)), unsafe.SliceData(l.shares))
	return nil
}
