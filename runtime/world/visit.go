package world

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Times of whoever looks for rank 0.
const (
	betweenDials = 100 * time.Millisecond
	longestDial  = 5 * time.Second
)

// visit meets the other processes at rank 0, which may come later.
func (w *World) visit(ctx context.Context, secure *tls.Config) error {
	conn, err := w.dial(ctx)
	if err != nil {
		return err
	}
	secured := tls.Client(conn, secure)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) }) // what waits ends
	m, err := w.introduce(secured)
	if !stop() {
		err = errors.Join(fmt.Errorf("%w: rank 0 at %s has not begun", context.Cause(ctx), w.opt.Address))
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	w.epoch, w.hosts = m.Text, m.Texts
	w.up = newPeer(secured, nil)
	w.all.Go(func() {
		if w.up.deliver() != nil {
			w.lost()
		}
	})
	w.all.Go(w.listen)
	return nil
}

// dial connects to rank 0.
func (w *World) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: longestDial}
	for {
		conn, err := dialer.DialContext(ctx, "tcp", w.opt.Address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: rank 0 does not listen at %s: %w", context.Cause(ctx), w.opt.Address, err)
		case <-time.After(betweenDials):
		}
	}
}

// introduce presents this process to rank 0 and waits until all have come.
func (w *World) introduce(conn *tls.Conn) (*message, error) {
	err := w.hello().write(conn)
	var m *message
	if err == nil {
		m, err = read(conn, longest)
	}
	alert := tls.AlertError(0)
	switch {
	case errors.Is(err, ErrSecret), errors.As(err, &alert), err != nil && strings.Contains(err.Error(), "tls:"):
		return nil, fmt.Errorf("%w: rank 0 at %s has another one than this process, or another certificate (%w)", ErrSecret, w.opt.Address, err)
	case err != nil:
		return nil, fmt.Errorf("%w: rank 0 at %s does not answer: %w", ErrRendezvous, w.opt.Address, err)
	case m.Kind == refused:
		return nil, fmt.Errorf("%w: rank 0 says: %s", ErrRendezvous, m.Text)
	case m.Kind != welcome || len(m.Texts) != w.opt.Size:
		return nil, fmt.Errorf("%w: rank 0 at %s answers %q", ErrMessage, w.opt.Address, m.Kind)
	}
	return m, nil
}

// listen takes what rank 0 sends.
func (w *World) listen() {
	for {
		m, err := read(w.up.conn, longest)
		if err != nil {
			w.lost()
			return
		}
		w.mu.Lock()
		w.heard = time.Now()
		w.mu.Unlock()
		if w.self.send(m) != nil {
			w.lost()
			return
		}
	}
}

// lost ends the world because rank 0 is gone, behind what it has said before.
func (w *World) lost() {
	_ = w.self.send(&message{Kind: failed, Error: &RankError{Rank: 0, Host: w.hosts[0], Doing: w.doing(0)}}) // or it has ended
}
