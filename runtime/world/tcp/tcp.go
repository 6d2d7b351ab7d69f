// Package tcp moves messages between the processes of a world over TCP. It has a connection for each way, so that none waits behind
// another's messages, and the sockets' own flow control bounds what is under way. Processes of one machine take sockets of the machine
// and memory that they share.
package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"plimsoll/runtime/world"
)

// ErrClosed says that a fabric was closed.
var ErrClosed = errors.New("tcp: the fabric is closed")

// fabric is the ways of one process.
type fabric struct {
	*world.HostBytes
	world *world.World
	ctx   context.Context // ends with the world, or with Close
	end   context.CancelCauseFunc

	patience time.Duration // with which a lost connection waits for the world to say why

	mu   sync.Mutex
	outs []*end // by way; nil where the way does not begin here
	ins  []*end // by way; nil where it does not end here
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

// New returns the transport of a world.
func New(w *world.World) world.Transport { return newFabric(w).HostBytes }

func newFabric(w *world.World) *fabric {
	f := &fabric{world: w, patience: w.Patience()}
	f.HostBytes = world.NewHostBytes(w, world.Carrier{Name: "tcp", Open: f.open, Send: f.send, Receive: f.receive, Close: f.close})
	f.ctx, f.end = context.WithCancelCause(w.Context())
	context.AfterFunc(f.ctx, f.closeAll)
	return f
}

// open opens ways: every process listens, tells the others where, dials for the ways that begin at it, and is there when all ways are.
// Errors: *world.DisagreementError when lists differ.
func (f *fabric) open(ctx context.Context, ways []world.Way) error {
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

func (f *fabric) send(way int, p []byte) error { return f.cause(f.outs[way].send(p)) }

func (f *fabric) receive(way int, p []byte) error { return f.cause(f.ins[way].receive(p)) }

// send writes header and message in one call, without a copy, or all of a long one through the ring.
func (e *end) send(p []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
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

func (f *fabric) close() error {
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
