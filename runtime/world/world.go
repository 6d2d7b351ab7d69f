// Package world is the processes that train one model together: who they are, how they meet, and how all of them end when one does. It
// carries their messages beside the tensors, and has the interface of transports that move tensors between their devices. Membership
// is static: a launcher starts all processes, and starts them again. Rank 0 holds the hub, at which the members of all ranks meet. The
// hub gives all messages one order. The package knows nothing of plans.
package world

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

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
	inbox    *inbox
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

// Listen listens at a free port for other processes of this world, and returns the address at which they reach it. The peer of a
// connection may be anybody.
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

// Fail tells everybody that this rank has failed, and ends the world. It returns when that is on its way.
func (w *World) Fail(err error) {
	w.giveUp(Failed, err)
	<-w.closed
}

// Leave ends the world when all ranks leave it. All messages that a rank posted before have then been handled. It is not called
// by a handler. Errors: the cause of another end; when ctx ends first, the world does, too.
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
		w.inbox.close(errors.Is(cause, ErrLeft))
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
