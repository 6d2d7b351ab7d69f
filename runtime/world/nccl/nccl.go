//go:build cgo && linux

package nccl

// #include "abi.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll/runtime"
	"plimsoll/runtime/world"
)

// scratchBytes are of the memory that stands for an empty message: NCCL does nothing where there is nothing to move.
const scratchBytes = 256

// pace is how often communicators are asked whether they have failed.
const pace = 20 * time.Millisecond

// fabric is the ways of one process.
type fabric struct {
	*library
	world *world.World
	ctx   context.Context // ends with the world, a failure, or Close
	end   context.CancelCauseFunc
	watch sync.WaitGroup

	broken   atomic.Bool // a call has failed, and ctx is about to end
	mu       sync.Mutex
	all      []*end // of this process, of all calls of Open
	ends     []*end // by way; nil where the way does not touch this process
	sums     []*end // by line, likewise
	messages atomic.Int64
	bytes    atomic.Int64
	taken    int64 // memory of devices: bytes
}

// end is one end of a way, or a rank of a line.
type end struct {
	world.Way
	calls   *C.struct_nccl
	device  runtime.Enqueuer
	rank    C.int   // in the communicator: 0 sends, of a way
	ranks   C.int   // of the communicator
	label   string  // "way " and its name
	peer    string  // "rank 3 on node1"
	scratch uintptr // on the device

	mu   sync.Mutex // one call at a time
	comm C.handle   // 0 when there is none, or none any more
}

func newFabric(w *world.World, l *library) *fabric {
	f := &fabric{world: w, library: l}
	f.ctx, f.end = context.WithCancelCause(w.Context())
	return f
}

// Open implements world.Transport. It makes a communicator for each channel, and sends a first message over it, for which NCCL
// connects the two ends. Later messages are given to the GPU without waiting for the other end's process. Errors:
// *world.DisagreementError when lists or versions differ; NCCL's own, with the channel and the other rank.
func (f *fabric) Open(ways []world.Way) error {
	ctx, cancel := f.within()
	defer cancel()
	if err := f.world.AgreeOnWays(ctx, ways, map[string]string{"NCCL's version": f.Version()}); err != nil {
		return err
	}
	ends, makers := make([]*end, len(ways)), make([]int, len(ways))
	for i, w := range ways {
		if makers[i] = w.From; w.From == w.To {
			return fmt.Errorf("nccl: way %s begins and ends at rank %d: the GPUs of one process copy to each other without NCCL", w.Name, w.From)
		}
		ends[i] = f.endOf(w)
	}
	err := f.connectAll(ctx, ends, makers, func(e *end) error { return f.move(ctx, e, e.scratch, 1, 0) })
	if err == nil {
		f.ends = ends
	}
	return err
}

// within bounds the time of opening something.
func (f *fabric) within() (context.Context, context.CancelFunc) {
	timeout := f.world.Timeout()
	return context.WithTimeoutCause(f.world.Context(), timeout, fmt.Errorf("it has not come within %v", timeout))
}

// endOf returns the end of a way that is here, if one is.
func (f *fabric) endOf(w world.Way) *end {
	e := &end{Way: w, calls: f.calls, ranks: 2, label: "way " + w.Name}
	other := w.To
	switch f.world.Rank() {
	case w.From:
	case w.To:
		e.rank, other = 1, w.From
	default:
		return nil
	}
	e.peer = f.name(other)
	return e
}

// name says which process a rank is.
func (f *fabric) name(rank int) string {
	return fmt.Sprintf("rank %d on %s", rank, f.world.Hosts()[rank])
}

// connectAll makes the communicators of ends, whose ids some ranks make, tries each, and follows them. It counts the memory of devices
// that this takes.
func (f *fabric) connectAll(ctx context.Context, ends []*end, makers []int, try func(*end) error) error {
	before := map[runtime.Enqueuer]int64{}
	for _, e := range ends {
		if e == nil {
			continue
		}
		var able bool
		if e.device, able = e.Device.(runtime.Enqueuer); !able {
			return fmt.Errorf("%w: %s is no GPU, and NCCL moves messages between GPUs: tcp and MPI are for all devices", world.ErrTransport, e.Device.Info().Name)
		}
		free, err := e.device.Free()
		if err != nil {
			return err
		}
		before[e.device] = free
	}
	ids, err := f.ids(ctx, makers)
	if err != nil {
		return err
	}
	for i, e := range ends { // in one order everywhere, so nobody waits in a circle
		if e == nil {
			continue
		}
		if err := f.connect(ctx, f.keep(e), ids[i], func() error { return try(e) }); err != nil {
			return f.stop(err)
		}
	}
	f.watch.Go(func() { f.follow(ends) })
	for d, free := range before {
		now, err := d.Free()
		if err != nil {
			return err
		}
		f.taken += max(0, free-now)
	}
	return nil
}

// keep lets an end be closed with the fabric.
func (f *fabric) keep(e *end) *end {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, e)
	return e
}

// ids returns the ids of communicators, which some ranks make: new ones in every start.
func (f *fabric) ids(ctx context.Context, makers []int) ([][]byte, error) {
	var own []byte
	for _, maker := range makers {
		if maker == f.world.Rank() {
			id, err := f.uniqueID()
			if err != nil {
				return nil, err
			}
			own = append(own, id...)
		}
	}
	parts, err := f.world.AllGather(ctx, own)
	if err != nil {
		return nil, err
	}
	ids := make([][]byte, len(makers))
	for i, maker := range makers {
		part := parts[maker]
		if len(part) < idBytes {
			return nil, fmt.Errorf("nccl: rank %d has given no id for communicator %d", maker, i)
		}
		ids[i], parts[maker] = part[:idBytes], part[idBytes:]
	}
	return ids, nil
}

// connect makes the communicator of an end and tries it.
func (f *fabric) connect(ctx context.Context, e *end, id []byte, try func() error) error {
	return e.device.Run(func() error {
		if err := f.await(ctx, e, "ncclCommInitRankConfig", f.call(e, func() C.int { return e.init(id) })); err != nil {
			return err
		}
		if err := e.allocate(); err != nil {
			return err
		}
		if err := try(); err != nil {
			return err
		}
		return f.drain(ctx, e)
	})
}

// drain waits until the default stream has moved the first message.
func (f *fabric) drain(ctx context.Context, e *end) error {
	for began := time.Now(); ; nap(began) {
		if idle, err := e.idle(); idle || err != nil {
			return err
		}
		if code := f.call(e, e.state); code != C.success {
			return f.fail(e, "the first message", code)
		}
		if err := f.over(ctx, e, "the first message"); err != nil {
			return err
		}
	}
}

// gone is the result of call for a communicator that has been aborted.
const gone C.int = -1

// call makes a call of an end. Some of NCCL's may not be made at once, and none after it has aborted.
func (f *fabric) call(e *end, call func() C.int) C.int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.ctx.Err() != nil || f.broken.Load() {
		return gone
	}
	return call()
}

// await waits until what a call has begun is done.
func (f *fabric) await(ctx context.Context, e *end, name string, code C.int) error {
	for began := time.Now(); code == C.in_progress; nap(began) {
		if err := f.over(ctx, e, name); err != nil {
			return err
		}
		code = f.call(e, e.state)
	}
	if code != C.success {
		return f.fail(e, name, code)
	}
	return nil
}

// over says why waiting is of no use any more.
func (f *fabric) over(ctx context.Context, e *end, name string) error {
	if f.ctx.Err() != nil {
		return f.stop(context.Cause(f.ctx))
	}
	if ctx.Err() != nil {
		return f.stop(fmt.Errorf("nccl: %s: %s waits for %s: %w", e.label, name, e.peer, context.Cause(ctx)))
	}
	return nil
}

// fail ends the fabric with the failure of a call. The other end's death is what NCCL notices first, and the world knows a moment later.
func (f *fabric) fail(e *end, name string, code C.int) error {
	if code == gone {
		<-f.ctx.Done()
		return f.stop(context.Cause(f.ctx))
	}
	err := fmt.Errorf("%s at rank %d, with %s: %w", e.label, f.world.Rank(), e.peer, f.reason(e, name, code))
	f.broken.Store(true)
	f.abort()
	return f.stop(f.world.Cause(f.world.Context(), err, f.patience(code)))
}

// patience is how long the world has to tell the cause of a failure. Who sees that the other end is gone hears first what that one, or
// the hub, has to say; mistakes of the program have no other cause.
func (f *fabric) patience(code C.int) time.Duration {
	switch code {
	case C.remote_error:
		return f.world.Patience()
	case C.invalid_argument, C.invalid_usage:
		return 0
	}
	return f.world.Patience() / 2
}

// reason is NCCL's own text.
func (f *fabric) reason(e *end, name string, code C.int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return f.failure(name, e.comm, code)
}

// stop ends the fabric, and returns what it has ended with first.
func (f *fabric) stop(err error) error {
	f.end(err)
	f.abort()
	return context.Cause(f.ctx)
}

// abort aborts all communicators, so that streams that wait for messages go on. It waits for NCCL with patience.
func (f *fabric) abort() {
	f.mu.Lock()
	all := f.all
	f.mu.Unlock()
	var aborts sync.WaitGroup
	for _, e := range all {
		aborts.Go(e.abort)
	}
	done := make(chan struct{})
	go func() { aborts.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(f.world.Patience()):
	}
}

// follow asks the communicators of ends whether they have failed, and ends the world when one has. When the world ends otherwise than
// well, it aborts them.
func (f *fabric) follow(ends []*end) {
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	for {
		select {
		case <-f.ctx.Done():
			if cause := context.Cause(f.ctx); !errors.Is(cause, world.ErrLeft) && !errors.Is(cause, ErrClosed) {
				f.abort()
			}
			return
		case <-ticks.C:
		}
		for _, e := range ends {
			if e == nil {
				continue
			}
			if code := f.call(e, e.state); code != C.success && code != C.in_progress && code != gone {
				f.world.Fail(f.fail(e, "a message", code))
			}
		}
	}
}

// Send implements world.Transport.
func (f *fabric) Send(way int, src runtime.Span) (runtime.Launch, error) {
	return f.ends[way].device.Enqueue("ncclSend", src, func(address, stream uintptr) error { return f.send(way, address, src.Bytes, stream) })
}

// Receive implements world.Transport.
func (f *fabric) Receive(way int, dst runtime.Span) (runtime.Launch, error) {
	return f.ends[way].device.Enqueue("ncclRecv", dst, func(address, stream uintptr) error { return f.receive(way, address, dst.Bytes, stream) })
}

// send has stream move n bytes at ptr, of the device of the way, whose context is current. They may be written again behind it on the
// stream. A message that is longer than the way's is refused here; where both ends differ otherwise, NCCL waits for ever.
func (f *fabric) send(way int, ptr uintptr, n int64, stream uintptr) error {
	if err := f.carry(0, way, "begins", ptr, n, stream); err != nil {
		return err
	}
	f.messages.Add(1)
	f.bytes.Add(n)
	return nil
}

// receive has stream wait for n bytes to ptr, like send.
func (f *fabric) receive(way int, ptr uintptr, n int64, stream uintptr) error {
	return f.carry(1, way, "ends", ptr, n, stream)
}

// carry gives NCCL a message at the end of a way that is here.
func (f *fabric) carry(rank C.int, way int, does string, ptr uintptr, n int64, stream uintptr) error {
	if way < 0 || way >= len(f.ends) || f.ends[way] == nil || f.ends[way].rank != rank {
		return fmt.Errorf("nccl: no open way %d %s at rank %d", way, does, f.world.Rank())
	}
	e := f.ends[way]
	if n < 0 || n > e.Bytes {
		return fmt.Errorf("nccl: a message of %d bytes on way %s, of at most %d", n, e.Name, e.Bytes)
	}
	if n == 0 {
		ptr, n = e.scratch, 1
	}
	return f.move(context.Background(), e, ptr, n, stream)
}

// move gives NCCL a message. NCCL may give it to the stream a moment later, before which nothing may be issued behind it.
func (f *fabric) move(ctx context.Context, e *end, ptr uintptr, n int64, stream uintptr) error {
	name := [...]string{"ncclSend", "ncclRecv"}[e.rank]
	return f.await(ctx, e, name, f.call(e, func() C.int { return e.move(ptr, n, stream) }))
}

// Sent implements world.Transport; an empty message has no bytes.
func (f *fabric) Sent() (messages, bytes int64) { return f.messages.Load(), f.bytes.Load() }

// DeviceBytes implements world.Transport: what is free less since communicators were made.
func (f *fabric) DeviceBytes() int64 { return f.taken }

// Close destroys the communicators at the good end of a world, after Leave, for which the streams must have ended their work; it waits
// for the other ends with patience. Otherwise it aborts them, so that whatever waits goes on.
func (f *fabric) Close() error {
	good := errors.Is(context.Cause(f.ctx), world.ErrLeft)
	f.end(ErrClosed)
	f.watch.Wait()
	var err error
	if good {
		err = f.finish()
	}
	f.abort() // what is left
	return err
}

// finish is a good end: all communicators finalize at once, since each waits for its other end.
func (f *fabric) finish() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	until := time.Now().Add(f.world.Patience())
	codes := make([]C.int, len(f.all))
	for i, e := range f.all {
		codes[i] = e.finalize()
	}
	var errs []error
	for i, e := range f.all {
		for began := time.Now(); codes[i] == C.in_progress && began.Before(until) && time.Now().Before(until); nap(began) {
			codes[i] = e.state()
		}
		if err := f.failure("ncclCommFinalize", e.comm, codes[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s, with %s: %w", e.label, e.peer, err))
			continue
		}
		errs = append(errs, e.device.Run(func() error { return errors.Join(f.failure("ncclCommDestroy", 0, e.destroy()), e.release()) }))
		e.comm = 0
	}
	f.all = nil
	return errors.Join(errs...)
}
