// Package world is the processes that train one model together: who they are, how they meet, what they tell each other beside the
// tensors, what moves tensors between their devices, and how all of them end when one does. Membership is static: a launcher starts all
// processes, and starts them again. It knows nothing of plans.
//
// Rank 0 holds the hub, at which the members of all ranks meet, its own as well: a star. A member sends its messages to the hub, which
// gives them one order for all.
package world

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// Options say how the processes of a world meet.
type Options struct {
	Identity
	Secret               []byte            // everybody's; empty: only loopback addresses are accepted and dialled
	Certificate, Key, CA string            // files, may be empty; TLS with them instead of the key derived from the secret
	Timeout              time.Duration     // of the rendezvous; 0: 2 minutes
	Heartbeat            time.Duration     // between the beats of a rank; 0: a second
	Patience             time.Duration     // a rank that is silent for so long is lost; 0: 10 seconds
	Agree                map[string]string // what must be the same everywhere (hashes of the program, the seed, ...), by name
	Status               func() string     // what this process does now, for heartbeats; may be nil
	Note                 func(string)      // on rank 0, of who is turned away as it comes; may be nil
	Longest              int               // bytes of the longest message; 0: 64 MiB

	listen func(ctx context.Context, g *guard, address string) (net.Listener, error)
	dial   func(ctx context.Context, g *guard, address string) (net.Conn, error)
}

const (
	defaultTimeout   = 2 * time.Minute
	defaultHeartbeat = time.Second
	defaultPatience  = 10 * time.Second
	defaultLongest   = 64 << 20
	longestStatus    = 200 // bytes
	longestFailure   = 4 << 10
)

func (o *Options) fill() error {
	o.Timeout = orDefault(o.Timeout, defaultTimeout)
	o.Heartbeat = orDefault(o.Heartbeat, defaultHeartbeat)
	o.Patience = orDefault(o.Patience, defaultPatience)
	o.Longest = orDefault(o.Longest, defaultLongest)
	if o.Rank < 0 || o.Rank >= o.Size {
		return fmt.Errorf("%w: rank %d of %d", ErrIdentity, o.Rank, o.Size)
	}
	if o.Patience < 3*o.Heartbeat {
		return fmt.Errorf("%w: a patience of %v with a heartbeat every %v: at least three times as long is needed", ErrIdentity, o.Patience, o.Heartbeat)
	}
	if o.listen == nil {
		o.listen, o.dial = listenAt, dialAt
	}
	return nil
}

func orDefault[T ~int | ~int64](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

func (o *Options) status() string {
	if o.Status == nil {
		return ""
	}
	return clip(o.Status(), longestStatus)
}

// World is the membership of this process.
type World struct {
	o      Options
	guard  *guard
	start  start
	local  string // the host part of an address of this process, as rank 0 reaches it
	hub    *hub   // on rank 0
	link   *link
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  sync.Once
	closed chan struct{} // the connection is
	tasks  sync.WaitGroup

	mu       sync.Mutex
	round    int // of the next collective
	waiting  map[int]chan [][]byte
	statuses []string
	clock    clock
	inbox    inbox
}

// Rank returns which of the processes this is.
func (w *World) Rank() int { return w.o.Rank }

// Size returns how many processes there are.
func (w *World) Size() int { return w.o.Size }

// Hosts returns the names of the machines, by rank.
func (w *World) Hosts() []string { return slices.Clone(w.start.Hosts) }

// Epoch returns the random name of this start.
func (w *World) Epoch() string { return w.start.Epoch }

// Context ends with the world. Its cause is a *RankError when a rank failed, died, was silent or left early, ErrLeft after Leave.
func (w *World) Context() context.Context { return w.ctx }

// Timeout returns how long a rendezvous may take.
func (w *World) Timeout() time.Duration { return w.o.Timeout }

// Patience returns how long a rank may be silent.
func (w *World) Patience() time.Duration { return w.o.Patience }

// Key returns a key that only the processes of this epoch know, another for each purpose.
func (w *World) Key(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, w.start.Key, nil, purpose, keyBytes)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return key
}

// Listen listens at a free port for other processes of this world, and returns the address at which they reach it. What connects may
// be anybody.
func (w *World) Listen(ctx context.Context) (l net.Listener, address string, err error) {
	l, err = w.guard.listen(ctx, w.local, "0")
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return l, net.JoinHostPort(w.local, port), err
}

// Dial connects to what another process has listened at.
func (w *World) Dial(ctx context.Context, address string) (net.Conn, error) {
	return w.guard.dial(ctx, address)
}

// self returns how this process introduces itself.
func (o *Options) self() *introduction {
	return &introduction{Protocol: protocol, Rank: o.Rank, Size: o.Size, Host: hostName(), Process: os.Getpid(), Agree: o.Agree}
}

// hostName is the machine's, for people.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "an unnamed machine"
	}
	return name
}

// Fail tells everybody that this rank has failed, and ends the world. It returns when that is on its way.
func (w *World) Fail(err error) {
	w.giveUp(Failed, err)
	<-w.closed
}

// Leave ends the world when all ranks leave it. What any of them has posted before has then been handled. It is not called by a
// handler. Errors: the cause of another end; when ctx ends first, the world does, too.
func (w *World) Leave(ctx context.Context) error {
	if err := w.send(&message{Kind: leave}, (*link).send); err == nil {
		select {
		case <-w.ctx.Done():
		case <-ctx.Done():
			w.giveUp(Left, context.Cause(ctx))
		}
	}
	<-w.closed
	w.tasks.Wait()
	if err := context.Cause(w.ctx); !errors.Is(err, ErrLeft) {
		return err
	}
	return nil
}

// giveUp ends the world from here, unless it has ended.
func (w *World) giveUp(why Why, err error) {
	e := &RankError{Rank: w.Rank(), Host: w.start.Hosts[w.Rank()], Status: w.o.status(), Why: why, Text: clip(err.Error(), longestFailure), err: err}
	w.end(e, func() { _ = w.send(&message{Kind: fail, Failure: e}, (*link).send) }) // or the hub is gone, which is known
}

// end ends the world once: others is what tells them.
func (w *World) end(cause error, others func()) {
	w.ended.Do(func() {
		others()
		w.cancel(cause)
		w.closeInbox(errors.Is(cause, ErrLeft))
		w.link.finish()
	})
}

// send sends a message to the hub.
func (w *World) send(m *message, by func(*link, []byte) error) error {
	frame, err := encode(m, w.o.Longest)
	if err != nil {
		return err
	}
	if err := by(w.link, frame); err != nil {
		if cause := context.Cause(w.ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

// read is the goroutine that follows the hub.
func (w *World) read() {
	defer close(w.closed)
	for {
		m, err := decode(w.link, w.o.Longest)
		if err != nil {
			w.end(w.lost(Died), func() {})
			break
		}
		w.take(m)
	}
	w.link.close()
	if w.hub != nil {
		w.hub.running.Wait()
	}
}

// lost says that rank 0 is.
func (w *World) lost(why Why) *RankError {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &RankError{Rank: 0, Host: w.start.Hosts[0], Status: w.statuses[0], Why: why}
	if why == Silent {
		e.Silence = w.o.Patience
	}
	return e
}

// take does what a message of the hub says.
func (w *World) take(m *message) {
	switch m.Kind {
	case gathered:
		w.complete(m)
	case post:
		w.arrive(m)
	case beaten:
		w.measure(m)
	case fail:
		if m.Failure != nil {
			w.end(m.Failure, func() {})
		}
	case left:
		w.end(ErrLeft, func() {})
	default: // of a hub that knows more than this member
	}
}
