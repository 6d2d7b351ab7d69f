//go:build cgo && unix

package mpi

// #include "abi.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"plimsoll/runtime/world"
)

// ErrClosed says that a fabric was closed.
var ErrClosed = errors.New("mpi: the fabric is closed")

// fabric is the ways of one process. No call of MPI waits: what takes time is begun, and looked at until it is done or the world ends.
type fabric struct {
	*library
	*world.HostBytes
	world *world.World
	ctx   context.Context // ends with the world, or with Close
	end   context.CancelCauseFunc

	using     sync.RWMutex // held by what calls MPI
	open      bool
	broken    atomic.Bool // a message was given up
	outs, ins []*end      // by way; nil where the way does not begin or end here
}

// end is one end of a way.
type end struct {
	world.Way
	calls *C.struct_mpi
	peer  C.int // MPI's rank of the other end
	tag   C.int

	mu     sync.Mutex // one message at a time
	p      []byte
	pins   runtime.Pinner // of p while MPI has it
	handle C.handle       // of what was begun
	err    error          // which broke the way
}

func newFabric(w *world.World, l *library) *fabric {
	f := &fabric{world: w, library: l}
	f.HostBytes = world.NewHostBytes(w, world.Carrier{Name: "mpi", Open: f.openWays, Send: f.send, Receive: f.receive, Close: f.close})
	f.ctx, f.end = context.WithCancelCause(w.Context())
	return f
}

// openWays opens ways. Its first call in a process starts MPI, for which all processes of the world must have been started by
// one mpiexec. Errors: *world.DisagreementError when lists or libraries differ.
func (f *fabric) openWays(ctx context.Context, ways []world.Way) error {
	ctx, cancel := context.WithTimeout(ctx, f.world.Timeout())
	defer cancel()
	if err := f.world.AgreeOnWays(ctx, ways, map[string]string{"the MPI library": f.version}); err != nil {
		return err
	}
	if err := f.init(ctx); err != nil {
		return err
	}
	ranks, err := f.ranks(ctx)
	if err != nil {
		return err
	}
	if most := int(f.begun.most); f.tags+len(ways) > most {
		return fmt.Errorf("mpi: %d ways: %s has tags up to %d", f.tags+len(ways), f.version, most)
	}
	f.using.Lock()
	defer f.using.Unlock()
	f.outs, f.ins = make([]*end, len(ways)), make([]*end, len(ways))
	for i, w := range ways {
		if w.From == f.world.Rank() {
			f.outs[i] = &end{Way: w, calls: f.calls, peer: C.int(ranks[w.To]), tag: C.int(f.tags + i)}
		}
		if w.To == f.world.Rank() {
			f.ins[i] = &end{Way: w, calls: f.calls, peer: C.int(ranks[w.From]), tag: C.int(f.tags + i)}
		}
	}
	f.tags += len(ways)
	return nil
}

// init starts MPI once. It waits for the other processes, one of which may fail meanwhile.
func (f *fabric) init(ctx context.Context) error {
	if f.open {
		return nil
	}
	started := make(chan error, 1)
	go func() { started <- f.start() }()
	select {
	case err := <-started:
		if f.open = err == nil; f.open {
			go f.progress(f.begun.rank)
		}
		return err
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	case <-ctx.Done():
		return fmt.Errorf("mpi: MPI_Init_thread has not returned: %w", context.Cause(ctx))
	}
}

// ranks returns MPI's ranks, by rank of the world.
func (f *fabric) ranks(ctx context.Context) ([]int, error) {
	if got, want := int(f.begun.size), f.world.Size(); got != want {
		return nil, fmt.Errorf("mpi: the world has %d processes, MPI_COMM_WORLD %d: start all with the mpiexec of %s", want, got, f.version)
	}
	texts, err := f.world.AllGather(ctx, []byte(strconv.Itoa(int(f.begun.rank))))
	if err != nil {
		return nil, err
	}
	ranks, whose := make([]int, len(texts)), map[int]int{}
	for rank, text := range texts {
		n, err := strconv.Atoi(string(text))
		if other, twice := whose[n]; err != nil || n < 0 || n >= len(texts) || twice {
			return nil, fmt.Errorf("mpi: rank %d is %q in MPI_COMM_WORLD, as is rank %d: start all with one mpiexec", rank, text, other)
		}
		ranks[rank], whose[n] = n, rank
	}
	return ranks, nil
}

// pace is how often progress is made while nobody waits.
const pace = 5 * time.Millisecond

// progress calls MPI now and then: what it has taken of a message and not yet passed on moves only while something calls it. It looks
// for what nobody sends, a message of this process to itself with the last tag.
func (f *fabric) progress(self C.int) {
	e := &end{calls: f.calls, peer: self, tag: f.begun.most}
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-ticks.C:
			f.using.RLock()
			if f.ctx.Err() == nil {
				f.make(e, (*end).find)
			}
			f.using.RUnlock()
		}
	}
}

func (f *fabric) send(way int, p []byte) error {
	return f.carry(f.outs[way], p, func(e *end) error { return f.move(e, "MPI_Isend_c", (*end).send) })
}

func (f *fabric) receive(way int, p []byte) error { return f.carry(f.ins[way], p, f.take) }

// carry moves a message at an end of a way.
func (f *fabric) carry(e *end, p []byte, by func(*end) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	f.using.RLock()
	defer f.using.RUnlock()
	if e.err == nil {
		e.p = p
		e.err = by(e)
		e.p = nil
	}
	if e.err != nil {
		f.broken.Store(true)
	}
	return e.err
}

// take looks for the message before anything is given to MPI, so its size is known, and while it waits nobody writes into p.
func (f *fabric) take(e *end) error {
	found, err := f.until(e, "MPI_Improbe", (*end).find)
	if err != nil {
		return err
	}
	if found.bytes != C.count(len(e.p)) {
		return &world.SizeError{Way: e.Way, Sent: uint64(found.bytes), Expected: len(e.p)}
	}
	e.handle = found.handle
	return f.move(e, "MPI_Imrecv_c", (*end).take)
}

// move gives MPI the memory of a message, and takes it back when it has been moved.
func (f *fabric) move(e *end, name string, begin func(*end) C.struct_outcome) error {
	e.pins.Pin(unsafe.SliceData(e.p))
	o, err := f.until(e, name, begin)
	if e.handle = o.handle; err == nil {
		_, err = f.until(e, "MPI_Test", (*end).test)
	}
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.left = append(f.left, e)
		return err
	}
	e.pins.Unpin()
	return nil
}

// until makes a call until what it asks for is there.
func (f *fabric) until(e *end, name string, call func(*end) C.struct_outcome) (o C.struct_outcome, err error) {
	for began := time.Now(); ; nap(began) {
		if f.ctx.Err() != nil {
			return o, context.Cause(f.ctx)
		}
		o = f.make(e, call)
		if err := f.failure(name, o.error); err != nil {
			return o, f.world.Cause(f.ctx, fmt.Errorf("way %s: %w", e.Name, err), f.world.Patience())
		}
		if o.done != 0 {
			return o, nil
		}
	}
}

// close makes what waits fail. At the good end of a world it ends MPI, too, and waits for the others. Where one has failed, or a message
// was given up, MPI has no good end: the launcher is left to see how the process exits.
func (f *fabric) close() error {
	f.end(ErrClosed)
	f.using.Lock() // what waits has ended
	defer f.using.Unlock()
	if cause := context.Cause(f.world.Context()); !f.open || f.broken.Load() || cause != nil && !errors.Is(cause, world.ErrLeft) {
		return nil
	}
	f.open = false
	return f.finalize(f.world.Patience())
}
