package tcp

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"plimsoll/runtime/world"
)

const (
	// handshake is how long a process that is dialled may take to prove that it belongs to this world.
	handshake = 10 * time.Second
	// strangers is how many connections may be in the lobby beside those that are expected.
	strangers = 64
	// tries is how often a process is dialled, with a pause between that begins with firstPause and doubles.
	tries      = 8
	firstPause = 20 * time.Millisecond
	nonceBytes = 32
)

// ErrStranger says that what was connected to is no process of this world.
var ErrStranger = errors.New("tcp: it cannot prove that it belongs to this world")

// opening is the ways of this process while they are made.
type opening struct {
	*fabric
	ctx       context.Context
	key       []byte
	outs, ins []*end
	arrived   chan arrival
	tasks     sync.WaitGroup
}

// arrival is a connection that has proved whose it is, or why there is none.
type arrival struct {
	end  **end // its place
	conn net.Conn
	ring *ring
	err  error
}

// connect makes the ways that begin here by dialing, and those that end here by listening.
func (f *fabric) connect(ctx context.Context, listeners []net.Listener, addresses [][]byte, ways []world.Way) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(f.ctx, func() { cancel(context.Cause(f.ctx)) })()
	o := &opening{fabric: f, ctx: ctx, key: f.world.Key("tcp"), arrived: make(chan arrival)}
	expected := o.prepare(ways)
	lobby := world.NewLobby(ctx, expected+strangers)
	for _, l := range listeners {
		o.tasks.Go(func() { lobby.Accept(l, &o.tasks, o.welcome) })
	}
	for way, e := range o.outs {
		if e != nil {
			o.tasks.Go(func() { o.dial(way, string(addresses[e.To])) })
		}
	}
	err := o.collect(expected)
	cancel(nil)
	closeListeners(listeners) // which ends accept
	o.tasks.Wait()
	return o.publish(err)
}

func closeListeners(all []net.Listener) {
	for _, l := range all {
		_ = l.Close() // nobody else comes
	}
}

// prepare makes the ends that are here, without connections, and counts them.
func (o *opening) prepare(ways []world.Way) (n int) {
	o.outs, o.ins = make([]*end, len(ways)), make([]*end, len(ways))
	for i, w := range ways {
		if w.From == o.world.Rank() {
			o.outs[i], n = &end{Way: w}, n+1
		}
		if w.To == o.world.Rank() {
			o.ins[i], n = &end{Way: w}, n+1
		}
	}
	return n
}

// collect takes connections until all ends have one.
func (o *opening) collect(expected int) error {
	for expected > 0 {
		select {
		case <-o.ctx.Done():
			return context.Cause(o.ctx)
		case a := <-o.arrived:
			switch e := *a.end; {
			case a.err != nil:
				return &LostError{Way: e.Way, toward: fmt.Sprintf("to rank %d", e.To), err: a.err}
			case e.conn != nil: // it came twice
				_ = a.conn.Close()
			default:
				e.conn, e.ring, expected = a.conn, a.ring, expected-1
			}
		}
	}
	return nil
}

// publish makes the ways those of the fabric, or closes them.
func (o *opening) publish(err error) error {
	o.mu.Lock()
	o.fabric.outs, o.fabric.ins = o.outs, o.ins
	o.mu.Unlock()
	if err == nil && o.fabric.ctx.Err() != nil {
		err = context.Cause(o.fabric.ctx)
	}
	if err != nil {
		o.closeAll()
	}
	return err
}

// arrive hands a connection to collect.
func (o *opening) arrive(a arrival) {
	select {
	case o.arrived <- a:
	case <-o.ctx.Done():
		if a.conn != nil {
			_ = a.conn.Close() // it came too late
		}
	}
}

// dial opens a way that begins here.
func (o *opening) dial(way int, address string) {
	conn, err := o.reach(way, address)
	var r *ring
	if err == nil {
		if r, err = o.offer(conn); err != nil {
			_ = conn.Close() // it is lost
		}
	}
	o.arrive(arrival{&o.outs[way], conn, r, err})
}

// reach connects to the process that a way ends at. It tries again when the connection ends before that process has proved that it
// belongs to this world: in a crowd of strangers any connection may give way.
func (o *opening) reach(way int, address string) (conn net.Conn, err error) {
	for try := range tries {
		if conn, err = o.dialHere(o.ctx, o.outs[way].To); err != nil {
			conn, err = o.world.Dial(o.ctx, address)
		}
		if err != nil {
			return nil, err
		}
		if err = o.ask(conn, way); err == nil {
			return conn, nil
		}
		_ = conn.Close() // of a stranger, or it is lost
		if errors.Is(err, ErrStranger) {
			return nil, err
		}
		select {
		case <-o.ctx.Done():
			return nil, err
		case <-time.After(firstPause << try):
		}
	}
	return nil, err
}

// offer offers a ring to the process that a way ends at.
func (o *opening) offer(conn net.Conn) (*ring, error) {
	defer o.limited(conn)()
	return offerRing(conn)
}

// welcome takes a guest that proves which way it is.
func (o *opening) welcome(g *world.Guest) {
	way, r, err := o.answer(g)
	if err != nil {
		_ = g.Close() // of a stranger
		return
	}
	o.arrive(arrival{&o.ins[way], g.Conn, r, nil})
}

// limited makes a connection fail when the opening ends or when it takes too long; release takes that back.
func (o *opening) limited(conn net.Conn) (release func()) {
	_ = conn.SetDeadline(time.Now().Add(handshake)) // what follows fails on a connection that is lost
	stop := context.AfterFunc(o.ctx, func() { _ = conn.SetDeadline(time.Now()) })
	return func() {
		if stop() {
			_ = conn.SetDeadline(time.Time{})
		}
	}
}

// ask proves to the listener that this process belongs to the world, and asks for the same. On the wire the listener sends 32 random
// bytes. The dialer sends 32 random bytes, the channel's number (8 bytes, big-endian) and a proof. The listener sends a proof and,
// on one machine, the ring.
func (o *opening) ask(conn net.Conn, way int) error {
	defer o.limited(conn)()
	var theirs [nonceBytes]byte
	if err := readFull(conn, theirs[:]); err != nil {
		return err
	}
	ours := nonce()
	number := binary.BigEndian.AppendUint64(nil, uint64(way))
	said := append(append(ours[:], number...), o.proof("dials", theirs[:], ours[:], number)...)
	if _, err := conn.Write(said); err != nil {
		return err
	}
	var proof [sha256.Size]byte
	if err := readFull(conn, proof[:]); err != nil {
		return err
	}
	if !hmac.Equal(proof[:], o.proof("listens", theirs[:], ours[:], number)) {
		return ErrStranger
	}
	return nil
}

// answer is the listener's side, and returns which way it is.
func (o *opening) answer(conn *world.Guest) (way uint64, r *ring, err error) {
	ours := nonce()
	if _, err := conn.Write(ours[:]); err != nil {
		return 0, nil, err
	}
	var said [nonceBytes + 8 + sha256.Size]byte
	if err := readFull(conn, said[:]); err != nil {
		return 0, nil, err
	}
	theirs, number, proof := said[:nonceBytes], said[nonceBytes:nonceBytes+8], said[nonceBytes+8:]
	if !hmac.Equal(proof, o.proof("dials", ours[:], theirs, number)) {
		return 0, nil, ErrStranger
	}
	way = binary.BigEndian.Uint64(number)
	if way >= uint64(len(o.ins)) || o.ins[way] == nil {
		return 0, nil, fmt.Errorf("tcp: way %d does not end here", way)
	}
	if err := conn.Leave(); err != nil { // before the dialer counts on it
		return 0, nil, err
	}
	defer o.limited(conn.Conn)()
	if _, err = conn.Write(o.proof("listens", ours[:], theirs, number)); err == nil {
		r, err = takeRing(conn.Conn)
	}
	return way, r, err
}

func nonce() (n [nonceBytes]byte) {
	_, _ = rand.Read(n[:]) // it never fails
	return n
}

// proof is a statement about a connection that only a process with the epoch's key can make.
func (o *opening) proof(side string, listener, dialer, way []byte) []byte {
	mac := hmac.New(sha256.New, o.key)
	for _, part := range [][]byte{[]byte(side), listener, dialer, way} {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// readFull reads all of p; the end of the connection is unexpected wherever it comes.
func readFull(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
