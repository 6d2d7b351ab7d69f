package world

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Join meets the other processes: rank 0 listens, the others dial, until all have joined. Only the rendezvous ends with ctx; the world
// goes on until Leave, Fail or the end of another rank. Errors: *MissingError, *RefusalError, *DisagreementError, ErrSecret, ErrIdentity,
// those of ctx and of listening.
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
	r := &rendezvous{w}
	if o.Rank == 0 {
		err = r.host(ctx)
	} else {
		err = r.visit(ctx, patient)
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
	w.inbox = newInbox()
}

// rendezvous lets a process meet all others, and gives its world the link to rank 0.
type rendezvous struct{ *World }

// host is rank 0's way into its own world.
func (r *rendezvous) host(ctx context.Context) error {
	r.local, _, _ = net.SplitHostPort(r.o.Address) // a world of one has none
	r.hub = newHub(r.o, r.guard)
	conn, err := r.hub.open(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s, where rank 0 is to listen, is in use by another program: choose another port (%w)", r.o.Address, err)
	}
	if err != nil {
		return fmt.Errorf("rank 0 listens at %s: %w", r.o.Address, err)
	}
	return r.enterOwn(ctx, conn)
}

// enterOwn takes rank 0's member into the hub, by its end of their connection.
func (r *rendezvous) enterOwn(ctx context.Context, conn net.Conn) error {
	err := r.enter(context.WithoutCancel(ctx), conn) // the hub says when it is over
	if err == nil {
		return nil
	}
	r.hub.running.Wait()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case r.hub.verdict != nil: // it may have fallen before the hub knew its own rank, who was then told nothing
		return r.hub.verdict
	}
	return err
}

const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// visit is the way of another rank: it dials until rank 0 is there and takes it in.
func (r *rendezvous) visit(ctx, patient context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := r.attempt(ctx, patient)
		if err == nil || final(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return r.unmet(ctx, err)
		case <-time.After(pause):
		}
	}
}

// unmet says that the rendezvous has ended without rank 0.
func (r *rendezvous) unmet(ctx context.Context, last error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*MissingError](last); ok {
		return e
	}
	return &MissingError{Missing: []int{0}, Size: r.Size(), Timeout: r.o.Timeout, Address: r.o.Address, last: last}
}

// attempt tries once to reach rank 0 and to be taken in.
func (r *rendezvous) attempt(ctx, patient context.Context) error {
	conn, err := r.o.dial(ctx, r.guard, r.o.Address)
	if err != nil {
		return err
	}
	r.local, _, _ = net.SplitHostPort(conn.LocalAddr().String())
	t := tls.Client(conn, r.guard.client)
	shake, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	if err := t.HandshakeContext(shake); err != nil {
		_ = conn.Close() // nothing was said
		return r.explain(err)
	}
	return r.explain(r.enter(patient, t))
}

// explain says what is wrong with who listens at rank 0's address, or what it finds wrong with us.
func (r *rendezvous) explain(err error) error {
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, errOtherSecret):
		return &RefusalError{OtherSecret, fmt.Sprintf("rank 0 at %s has another secret than rank %d on %s", r.o.Address, r.Rank(), hostName())}
	case rejected(err) || is[*tls.CertificateVerificationError](err):
		return &RefusalError{OtherSecret, fmt.Sprintf("rank 0 at %s and rank %d on %s do not accept each other's certificates: %v", r.o.Address, r.Rank(), hostName(), err)}
	case noTLS:
		return &RefusalError{OtherProtocol, fmt.Sprintf("what listens at %s is no rank 0: another program has this port (%v)", r.o.Address, err)}
	}
	return err
}

// final reports whether another attempt is in vain.
func final(err error) bool {
	if e, ok := errors.AsType[*RefusalError](err); ok {
		return e.Reason != Busy
	}
	return is[*DisagreementError](err) || is[*MissingError](err) || is[*RankError](err) || errors.Is(err, ErrSecret)
}

// enter introduces this process over a connection and waits for everybody. The connection is closed when that fails.
func (r *rendezvous) enter(ctx context.Context, conn net.Conn) (err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	l := newLink(conn, 4*r.o.Longest)
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			l.close()
		}
	}()
	who := r.o.self()
	who.Proof = r.guard.proof(conn)
	frame, err := encode(&message{Kind: hello, Hello: who}, r.o.Longest)
	if err != nil {
		return err
	}
	if err := l.send(frame); err != nil {
		return err
	}
	r.link = l
	return r.await(ctx)
}

// await reads until rank 0 says that everybody is here.
func (r *rendezvous) await(ctx context.Context) error {
	var missing []int
	for {
		m, err := decode(r.link, r.o.Longest)
		switch {
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && len(missing) > 0:
			return &MissingError{Missing: missing, Size: r.Size(), Timeout: r.o.Timeout, Address: r.o.Address}
		case err != nil:
			return err
		case m.Kind == waiting:
			missing = m.Missing
		case m.Kind == refused:
			return m.Refusal.error()
		case m.Kind == welcome && m.Welcome != nil && len(m.Welcome.Hosts) == r.Size():
			r.start = *m.Welcome
			return nil
		}
	}
}
