// Package tcp moves messages between the processes of a world over TCP: a connection for each way, so that none waits behind another's
// messages, and the sockets' own flow control bounds what is under way. Processes of one machine take sockets of the machine and memory
// that they share.
package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll/runtime/world"
)

// ErrClosed says that a fabric was closed.
var ErrClosed = errors.New("tcp: the fabric is closed")

// fabric is the ways of one process.
type fabric struct {
	world *world.World
	ctx   context.Context // ends with the world, or with Close
	end   context.CancelCauseFunc

	patience time.Duration // with which a lost connection waits for the world to say why

	mu       sync.Mutex
	outs     []*end // by way; nil where the way does not begin here
	ins      []*end // by way; nil where it does not end here
	messages atomic.Int64
	bytes    atomic.Int64
}

// end is one end of a way.
type end struct {
	world.Way
	conn net.Conn
	ring *ring // for long messages on one machine; may be nil

	mu     sync.Mutex // one message at a time
	header [headerBytes]byte
	parts  [2][]byte
	rest   net.Buffers // what is left of parts to write
	err    error       // which broke the way
}

// headerBytes is the length of a message, big-endian, before it.
const headerBytes = 8

// New returns the fabric of a world.
func New(w *world.World) world.Fabric {
	f := &fabric{world: w, patience: w.Patience()}
	f.ctx, f.end = context.WithCancelCause(w.Context())
	context.AfterFunc(f.ctx, f.closeAll)
	return f
}

// Open implements world.Fabric: every process listens, tells the others where, dials for the ways that begin at it, and is there when
// all ways are. Errors: *world.DisagreementError when lists differ.
func (f *fabric) Open(ctx context.Context, ways []world.Way) error {
	ctx, cancel := context.WithTimeout(ctx, f.world.Timeout())
	defer cancel()
	if err := f.world.AgreeOnWays(ctx, ways, nil); err != nil {
		return err
	}
	l, address, err := f.world.Listen(ctx)
	if err != nil {
		return fmt.Errorf("tcp: %w", err)
	}
	listeners := []net.Listener{l}
	if here, err := f.listenHere(ctx); err == nil { // else they come by TCP
		listeners = append(listeners, here)
	}
	addresses, err := f.world.AllGather(ctx, []byte(address))
	if err != nil {
		closeListeners(listeners)
		return err
	}
	if err := f.connect(ctx, listeners, addresses, ways); err != nil {
		return f.cause(err)
	}
	_, err = f.world.AllGather(ctx, nil) // all are open
	return err
}

// Send implements world.Fabric.
func (f *fabric) Send(way int, p []byte) error {
	e, err := f.at(f.outs, way, "begins")
	if err == nil {
		err = e.send(p)
	}
	if err != nil {
		return f.cause(err)
	}
	f.messages.Add(1)
	f.bytes.Add(int64(len(p)))
	return nil
}

// Receive implements world.Fabric.
func (f *fabric) Receive(way int, p []byte) error {
	e, err := f.at(f.ins, way, "ends")
	if err == nil {
		err = e.receive(p)
	}
	if err != nil {
		return f.cause(err)
	}
	return nil
}

// at returns the end of a way that is here.
func (f *fabric) at(ends []*end, way int, does string) (*end, error) {
	if way < 0 || way >= len(ends) || ends[way] == nil {
		return nil, fmt.Errorf("tcp: no open way %d %s at rank %d", way, does, f.world.Rank())
	}
	return ends[way], nil
}

// send writes header and message in one call, without a copy, or all of a long one through the ring.
func (e *end) send(p []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	if int64(len(p)) > e.Bytes {
		return fmt.Errorf("tcp: a message of %d bytes on way %s, of at most %d", len(p), e.Name, e.Bytes)
	}
	binary.BigEndian.PutUint64(e.header[:], uint64(len(p)))
	if e.rings(p) {
		return e.broken("to", e.To, e.ring.write(e.conn, e.header[:], p))
	}
	e.parts = [2][]byte{e.header[:], p}
	e.rest = e.parts[:]
	_, err := e.rest.WriteTo(e.conn)
	e.parts = [2][]byte{} // p is the caller's again
	return e.broken("to", e.To, err)
}

// receive reads a message of exactly len(p) bytes.
func (e *end) receive(p []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	if err := readFull(e.conn, e.header[:]); err != nil {
		return e.broken("from", e.From, err)
	}
	if n := binary.BigEndian.Uint64(e.header[:]); n != uint64(len(p)) {
		e.err = &world.SizeError{Way: e.Way, Sent: n, Expected: len(p)}
		return e.err
	}
	if e.rings(p) {
		return e.broken("from", e.From, e.ring.read(e.conn, p))
	}
	return e.broken("from", e.From, readFull(e.conn, p))
}

// rings reports whether a message goes through the ring.
func (e *end) rings(p []byte) bool { return e.ring != nil && len(p) >= shortest }

// broken keeps the error that broke a way: nothing can follow half a message.
func (e *end) broken(toward string, rank int, err error) error {
	if err != nil {
		e.err = &LostError{Way: e.Way, toward: fmt.Sprintf("%s rank %d", toward, rank), err: err}
	}
	return e.err
}

// Sent implements world.Fabric.
func (f *fabric) Sent() (messages, bytes int64) { return f.messages.Load(), f.bytes.Load() }

// Close implements world.Fabric.
func (f *fabric) Close() error {
	f.end(ErrClosed)
	f.closeAll()
	return nil
}

func (f *fabric) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ends := range [][]*end{f.outs, f.ins} {
		for _, e := range ends {
			if e != nil && e.conn != nil {
				_ = e.conn.Close() // what waits fails
			}
		}
	}
}
