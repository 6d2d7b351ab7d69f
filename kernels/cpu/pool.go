package cpu

// #include "job.h"
import "C"

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// pool runs jobs on goroutines that live as long as the process. Its invariants:
//
//  1. Whoever runs a job works on it until no task is left, so a job ends even when every helper is busy elsewhere:
//     any number of streams can run jobs at once.
//  2. At most threads workers are on one job, each with its own number below threads (its scratch).
//  3. A helper touches a job only between join and leave, which run waits for.
type pool struct {
	threads int

	mu    sync.Mutex
	offer *sync.Cond // a job wants helpers
	first *launch    // launches whose current job wants helpers
	open  int32      // 1 when there is one; written under mu, read without by those who spin
}

// pauses bounds how long a worker looks for its next job, or for the end of the current one, before it sleeps: about
// 0.1 ms, more than what lies between two jobs of a step, for waking a thread takes as long as a small job.
const pauses = 2000

// spin waits a little until *word is wanted, where every worker has a core.
func (p *pool) spin(word *int32, wanted int32) {
	if p.threads <= goruntime.GOMAXPROCS(0) {
		C.plimsoll_spin((*C.int32_t)(unsafe.Pointer(word)), C.int32_t(wanted), pauses)
	}
}

var (
	poolsMu sync.Mutex
	pools   = map[int]*pool{}
)

// sharedPool returns the pool with so many threads, the caller's included. All devices of the process share it.
func sharedPool(threads int) *pool {
	poolsMu.Lock()
	defer poolsMu.Unlock()
	p := pools[threads]
	if p == nil {
		p = &pool{threads: threads}
		p.offer = sync.NewCond(&p.mu)
		for range threads - 1 {
			go p.help()
		}
		pools[threads] = p
	}
	return p
}

// help is a worker's goroutine.
func (p *pool) help() {
	for {
		l, worker := p.join()
		l.work(worker)
		p.leave(l)
	}
}

// join waits for a launch that wants helpers and takes a place in it.
func (p *pool) join() (*launch, int) {
	p.spin(&p.open, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.first == nil {
		p.offer.Wait()
	}
	l := p.first
	l.joined++
	atomic.AddInt32(&l.running, 1)
	if l.joined == l.wanted {
		p.remove(l)
	}
	return l, l.joined
}

func (p *pool) leave(l *launch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if atomic.AddInt32(&l.running, -1) == 0 {
		l.left.Signal()
	}
}

// run runs the current job of l, with helpers where it has more than one task.
func (p *pool) run(l *launch) {
	wanted := max(min(p.threads, int(l.job.tasks))-1, 0)
	l.split(wanted + 1)
	if wanted == 0 {
		l.work(0)
		return
	}
	p.publish(l, wanted)
	l.work(0)
	p.withdraw(l)
}

func (p *pool) publish(l *launch, wanted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.wanted, l.joined = wanted, 0
	l.next, p.first = p.first, l
	atomic.StoreInt32(&p.open, 1)
	for range wanted {
		p.offer.Signal()
	}
}

// withdraw waits until the helpers have left.
func (p *pool) withdraw(l *launch) {
	p.close(l)
	p.spin(&l.running, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	for atomic.LoadInt32(&l.running) > 0 {
		l.left.Wait()
	}
}

// close takes back the offer of a job that has no tasks left.
func (p *pool) close(l *launch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.joined < l.wanted {
		p.remove(l)
	}
}

func (p *pool) remove(l *launch) {
	at := &p.first
	for *at != l {
		at = &(*at).next
	}
	*at, l.next = l.next, nil
	if p.first == nil {
		atomic.StoreInt32(&p.open, 0)
	}
}

// launch is a prepared call: its jobs run one after the other, each when the one before it has ended.
type launch struct {
	name string
	pool *pool
	jobs []C.struct_job
	uses []access // for the race detector; they keep the memory from the garbage collector, too

	job     *C.struct_job    // the current one
	shares  []C.struct_share // of its tasks, for every worker of the pool
	workers int              // that have a share

	// Guarded by pool.mu.
	next           *launch
	wanted, joined int
	running        int32      // helpers; read without the lock by whoever spins
	left           *sync.Cond // the last helper has left
}

// Kernel implements runtime.Launch.
func (l *launch) Kernel() string { return l.name }

// Run computes on the caller's goroutine and the pool's. It does not allocate.
func (l *launch) Run() error {
	for _, u := range l.uses {
		u.report()
	}
	for i := range l.jobs {
		l.job = &l.jobs[i]
		l.pool.run(l)
	}
	return nil
}

// split gives each of so many workers its share of the current job.
func (l *launch) split(workers int) {
	l.workers = workers
	tasks, n := int64(l.job.tasks), int64(workers)
	for w := range n {
		l.shares[w].next, l.shares[w].end = C.int64_t(tasks*w/n), C.int64_t(tasks*(w+1)/n)
	}
}

func (l *launch) work(worker int) {
	C.plimsoll_work(l.job, unsafe.SliceData(l.shares), C.int64_t(l.workers), C.int64_t(worker))
}
