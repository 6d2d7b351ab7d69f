package host

import (
	"fmt"
	"math"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll/internal/cores"
	"plimsoll/runtime"
)

// Stream is a ring of commands and the goroutine that runs them in order. Commands have numbers, 1, 2, ...; a point
// of the stream is the number of the last command before it.
//
// When the ring is full (Config.Queue commands are waiting), issuing blocks until one has run. That cannot deadlock:
// a command waits only for commands issued before it. A launch must not issue to, or synchronize with, its own stream.
//
// A thread wakes up late, the more so the busier the machine is. So that delays do not add up, pauses and throttled copies end at
// scheduled instants. A command is due to begin when it is issued, its predecessor was due to end, and the events it waits for were due,
// however late that is noticed. A copy without a throttle ends when it really ends. A kernel's launch is due to end when it has.
type Stream struct {
	device *Device
	name   string
	memory memory
	chaos  *chaos
	exited chan struct{}

	mu       sync.Mutex
	more     *sync.Cond // for the runner: a command was issued, or the stream closes
	progress *sync.Cond // for everybody else: command wanted has run, or the stream closes
	ring     []command
	due      []time.Duration // when the latest commands that have run were due to end, each in its slot
	issued   uint64          // number of the latest command
	done     uint64          // number of the latest command that has run
	queued   atomic.Uint64   // issued, and
	ran      atomic.Uint64   // done, for whoever polls
	wanted   uint64          // the first number that one of them waits for
	closing  bool
	failedAt uint64 // number of the command that failed, 0 when none did
	err      error  // why; a *runtime.StreamError
}

var _ runtime.Stream = (*Stream)(nil)

const directions = 2 // of copies: to the device and to the host

// computing is the name of the stream that computes where others only copy, or update on the host.
const computing = "compute"

var quiet sync.Once // when a stream first computes

func newStream(d *Device, name string, index int) *Stream {
	s := &Stream{
		device: d,
		name:   name,
		memory: d.memory,
		chaos:  newChaos(d.config.Chaos, index),
		exited: make(chan struct{}),
		ring:   make([]command, d.config.Queue),
		due:    make([]time.Duration, d.config.Queue),
		wanted: math.MaxUint64,
	}
	s.more = sync.NewCond(&s.mu)
	s.progress = sync.NewCond(&s.mu)
	go s.run()
	return s
}

// Name returns the name given to NewStream.
func (s *Stream) Name() string { return s.name }

// Launch queues work that implements Launch.
func (s *Stream) Launch(l runtime.Launch) error {
	work, ok := l.(Launch)
	if !ok {
		return s.wrap("launch", runtime.ErrForeignLaunch)
	}
	return s.issue(command{kind: launching, work: work})
}

// Copy queues a copy between the spaces of the device.
func (s *Stream) Copy(dst, src runtime.Span) error {
	if err := s.memory.CheckCopy(dst, src); err != nil {
		return err
	}
	return s.issue(command{
		kind: copying,
		to:   dst, dst: s.memory.bytes(dst),
		from: src, src: s.memory.bytes(src),
		link: s.device.linkBetween(dst.Space, src.Space),
	})
}

// CopyPeer queues a copy from the arena to that of another host device.
func (s *Stream) CopyPeer(peer runtime.Device, dst, src runtime.Span) error {
	p, ok := peer.(*Device)
	if !ok || p == nil {
		return s.wrap("copy to peer", runtime.ErrForeignPeer)
	}
	if p == s.device {
		return s.Copy(dst, src)
	}
	theirs, err := p.enter()
	if err != nil {
		return s.wrap("copy to peer", err)
	}
	if err := s.memory.CheckPeerCopy(theirs.Extent, dst, src); err != nil {
		p.leave()
		return err
	}
	return s.issue(command{
		kind: copying,
		to:   dst, dst: theirs.bytes(dst),
		from: src, src: s.memory.bytes(src),
		link: s.device.linkTo(p),
		peer: p,
	})
}

// Record queues a mark for ev.
func (s *Stream) Record(ev runtime.Event) error {
	e, ok := ev.(*Event)
	if !ok || e == nil || e.device != s.device {
		return s.wrap("record", runtime.ErrForeignEvent)
	}
	return s.issue(command{kind: recording, event: e})
}

// Wait queues a wait for the point that ev marks now.
func (s *Stream) Wait(ev runtime.Event) error {
	e, ok := ev.(*Event)
	if !ok || e == nil {
		return s.wrap("wait", runtime.ErrForeignEvent)
	}
	return s.issue(command{kind: waiting, point: e.latest()})
}

// Synchronize waits for everything issued so far.
func (s *Stream) Synchronize() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return s.wrap("synchronize", runtime.ErrClosed)
	}
	return s.await(s.issued)
}

// issue queues a command. When the stream has stopped the command is queued all the same, to be skipped: an event
// that it records must not stay pending.
func (s *Stream) issue(c command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closing && s.issued-s.done == uint64(len(s.ring)) {
		s.wait(s.done + 1)
	}
	if s.closing {
		c.release()
		return s.wrap(c.kind.String(), runtime.ErrClosed)
	}
	s.issued++
	c.issued = now()
	*s.slot(s.issued) = c
	if c.kind == recording {
		c.event.mark(point{s, s.issued})
	}
	s.queued.Store(s.issued)
	s.more.Signal()
	return s.err
}

// await waits until command n has run; the caller holds s.mu. The error is of n or of one before it.
func (s *Stream) await(n uint64) error {
	for s.done < n {
		s.wait(n)
	}
	if s.failedAt != 0 && s.failedAt <= n {
		return s.err
	}
	return nil
}

// wait waits until command n may have run, and is woken for no command before it that nobody else waits for: a step has hundreds. The caller
// holds s.mu.
func (s *Stream) wait(n uint64) {
	s.wanted = min(s.wanted, n)
	s.progress.Wait()
}

// dueAt returns when command n, which has run, was due to end: or another one behind it, when that is too long ago to be known. The caller
// holds s.mu.
func (s *Stream) dueAt(n uint64) time.Duration {
	slots := uint64(len(s.due))
	if n+slots <= s.done {
		n = s.done + 1 - slots
	}
	return s.due[n%slots]
}

func (s *Stream) slot(n uint64) *command { return &s.ring[n%uint64(len(s.ring))] }

// run is the stream's goroutine. Only it writes done, failedAt and err.
//
// Where a device has the process to itself, the stream that computes keeps its thread. Copies wake others up at every op, and a goroutine
// that goes on on the next free thread is soon on the core of its own helpers. Ops took 0.2 ms longer beside copies of 0.05 ms without.
// It then needs a processor of Go's beside those that copies in both directions hold.
func (s *Stream) run() {
	defer close(s.exited)
	due := longAgo
	var keeps, polls bool
	for {
		if polls {
			poll(&s.queued, s.ran.Load()+1)
		}
		c := s.next()
		if c == nil {
			return
		}
		if c.computes() {
			quiet.Do(quietMonitor)
		}
		if c.computes() && !keeps && alone() {
			keeps = true
			goruntime.LockOSThread()
			cores.Lend(directions)
			defer cores.Lend(-directions)
			switch {
			case !s.device.config.OwnCore:
				defer goruntime.UnlockOSThread()
			case s.name != computing:
				yieldCore() // the thread ends with the stream
			default:
				defer goruntime.UnlockOSThread()
				if polls = reserveCore(); polls {
					defer releaseCore()
				}
			}
		}
		if polls && c.kind == waiting && c.point.stream != nil {
			poll(&c.point.stream.ran, c.point.n)
		}
		s.chaos.delay()
		due = max(due, c.issued)
		err := s.err
		if err == nil {
			due, err = s.execute(due, c)
		}
		s.chaos.delay()
		if s.finish(c, due, err) && !keeps { // a thread that is kept has no goroutine to go on with
			goruntime.Gosched()
		}
	}
}

// poll waits until a count has reached n, or for so long that whoever waits had better sleep.
func poll(count *atomic.Uint64, n uint64) {
	const longest, looks = 5 * time.Millisecond, 100
	for begun := now(); count.Load() < n && now()-begun < longest; {
		for i := 0; i < looks && count.Load() < n; i++ {
		}
	}
}

// next returns the next command, which stays in its slot until finish, or nil when the stream has closed.
func (s *Stream) next() *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done == s.issued && !s.closing {
		s.more.Wait()
	}
	if s.done == s.issued {
		return nil
	}
	return s.slot(s.done + 1)
}

// execute runs a command that was due to begin at an instant, and returns when it was due to end.
func (s *Stream) execute(begin time.Duration, c *command) (due time.Duration, err error) {
	if due, err = c.run(begin, &s.device.config, &s.device.abandoned); err != nil {
		return due, &runtime.StreamError{Device: s.device.config.Name, Stream: s.name, Op: c.String(), Err: err}
	}
	return due, nil
}

// finish ends a command, and reports whether somebody who waits for it should go on first. It goes on with the thread that is here
// already, and with the data that this thread has just written. A thread that is woken for it waits for its turn where all cores
// compute: four devices of one process on two cores are 12 % slower without (bench/results/processes.md). For one device alone a core
// is soon free.
func (s *Stream) finish(c *command, due time.Duration, err error) (handsOver bool) {
	recorded := c.kind == recording
	if recorded {
		c.event.complete(point{s, s.done + 1}, err)
	}
	c.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	*c = command{}
	s.done++
	s.ran.Store(s.done)
	s.due[s.done%uint64(len(s.due))] = due
	if err != nil && s.err == nil {
		s.failedAt, s.err = s.done, err
	}
	if s.done < s.wanted {
		return false
	}
	s.progress.Broadcast()
	s.wanted = math.MaxUint64 // until those who go on waiting say so again
	return recorded && !alone()
}

// close lets the stream run what was issued and ends it.
func (s *Stream) close() {
	s.mu.Lock()
	s.closing = true
	s.more.Signal()
	s.progress.Broadcast()
	s.mu.Unlock()
	<-s.exited
}

func (s *Stream) wrap(op string, err error) error {
	return fmt.Errorf("%s: stream %s: %s: %w", s.device.config.Name, s.name, op, err)
}
