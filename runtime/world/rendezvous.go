package world

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Join meets the other processes: rank 0 listens, the others dial, until all are here. ctx is that of the rendezvous; the world goes on
// until Leave, Fail or the end of another rank. Errors: *MissingError, *RefusalError, *DisagreementError, ErrSecret, ErrIdentity, those of
// ctx and of listening.
func Join(ctx context.Context, o Options) (*World, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	g, err := newGuard(&o)
	if err != nil {
		return nil, err
	}
	// Who is with rank 0 leaves it the last word on who is missing, when all give up at the same time.
	patient, cancel := context.WithTimeout(ctx, o.Timeout+2*linger)
	defer cancel()
	ctx, cancelled := context.WithTimeout(patient, o.Timeout)
	defer cancelled()
	w := &World{o: o, guard: g}
	if o.Rank == 0 {
		err = w.host(ctx)
	} else {
		err = w.visit(ctx, patient)
	}
	if err != nil {
		return nil, err
	}
	w.begin()
	return w, nil
}

// begin starts what a member does.
func (w *World) begin() {
	w.prepare()
	w.tasks.Go(w.beat)
	w.tasks.Go(w.handle)
	go w.read()
}

func (w *World) prepare() {
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.closed = make(chan struct{})
	w.waiting = map[int]chan [][]byte{}
	w.statuses = make([]string, w.Size())
	w.inbox = inbox{changed: sync.NewCond(&w.mu), handlers: map[string]func(int, []byte){}, kept: map[string][]*message{}}
}

// host is rank 0's way into its own world.
func (w *World) host(ctx context.Context) error {
	w.local, _, _ = net.SplitHostPort(w.o.Address) // a world of one has none
	w.hub = newHub(w.o, w.guard)
	conn, err := w.hub.open(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s, where rank 0 is to listen, is in use by another program: choose another port (%w)", w.o.Address, err)
	}
	if err != nil {
		return fmt.Errorf("rank 0 listens at %s: %w", w.o.Address, err)
	}
	return w.enterOwn(ctx, conn)
}

// enterOwn takes rank 0's member into the hub, by its end of their connection.
func (w *World) enterOwn(ctx context.Context, conn net.Conn) error {
	err := w.enter(context.WithoutCancel(ctx), conn) // the hub says when it is over
	if err == nil {
		return nil
	}
	w.hub.running.Wait()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case w.hub.verdict != nil: // it may have fallen before the hub knew its own rank, who was then told nothing
		return w.hub.verdict
	}
	return err
}

const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// visit is the way of another rank: it dials until rank 0 is there and takes it in.
func (w *World) visit(ctx, patient context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := w.attempt(ctx, patient)
		if err == nil || final(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return w.unmet(ctx, err)
		case <-time.After(pause):
		}
	}
}

// unmet says that the rendezvous has ended without rank 0.
func (w *World) unmet(ctx context.Context, last error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*MissingError](last); ok {
		return e
	}
	return &MissingError{Missing: []int{0}, Size: w.Size(), Timeout: w.o.Timeout, Address: w.o.Address, last: last}
}

// attempt tries once to reach rank 0 and to be taken in.
func (w *World) attempt(ctx, patient context.Context) error {
	conn, err := w.o.dial(ctx, w.guard, w.o.Address)
	if err != nil {
		return err
	}
	w.local, _, _ = net.SplitHostPort(conn.LocalAddr().String())
	t := tls.Client(conn, w.guard.client)
	shake, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	if err := t.HandshakeContext(shake); err != nil {
		_ = conn.Close() // nothing was said
		return w.explain(err)
	}
	return w.explain(w.enter(patient, t))
}

// explain says what is wrong with who listens at rank 0's address, or what it finds wrong with us.
func (w *World) explain(err error) error {
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, errOtherSecret):
		return &RefusalError{OtherSecret, fmt.Sprintf("rank 0 at %s has another secret than rank %d on %s", w.o.Address, w.Rank(), hostName())}
	case rejected(err) || is[*tls.CertificateVerificationError](err):
		return &RefusalError{OtherSecret, fmt.Sprintf("rank 0 at %s and rank %d on %s do not accept each other's certificates: %v", w.o.Address, w.Rank(), hostName(), err)}
	case noTLS:
		return &RefusalError{OtherProtocol, fmt.Sprintf("what listens at %s is no rank 0: another program has this port (%v)", w.o.Address, err)}
	}
	return err
}

// rejected reports whether the other side of a handshake has ended it: it did not accept who we are.
func rejected(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "remote error" // of crypto/tls, which has no type for it
}

// final reports whether another attempt is in vain.
func final(err error) bool {
	if e, ok := errors.AsType[*RefusalError](err); ok {
		return e.Reason != Busy
	}
	return is[*DisagreementError](err) || is[*MissingError](err) || is[*RankError](err) || errors.Is(err, ErrSecret)
}

// enter introduces this process over a connection and waits for everybody. The connection is closed when that fails.
func (w *World) enter(ctx context.Context, conn net.Conn) (err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	l := newLink(conn, 4*w.o.Longest)
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			l.close()
		}
	}()
	who := w.o.self()
	who.Proof = w.guard.proof(conn)
	frame, err := encode(&message{Kind: hello, Hello: who}, w.o.Longest)
	if err != nil {
		return err
	}
	if err := l.send(frame); err != nil {
		return err
	}
	w.link = l
	return w.await(ctx)
}

// await reads until rank 0 says that everybody is here.
func (w *World) await(ctx context.Context) error {
	var missing []int
	for {
		m, err := decode(w.link, w.o.Longest)
		switch {
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && len(missing) > 0:
			return &MissingError{Missing: missing, Size: w.Size(), Timeout: w.o.Timeout, Address: w.o.Address}
		case err != nil:
			return err
		case m.Kind == waiting:
			missing = m.Missing
		case m.Kind == refused:
			return m.Refusal.error()
		case m.Kind == welcome && m.Welcome != nil && len(m.Welcome.Hosts) == w.Size():
			w.start = *m.Welcome
			return nil
		}
	}
}
