package world

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// network is one within a test, where time is the test's: connections are pipes.
type network struct {
	mu    sync.Mutex
	conns chan net.Conn // nil: nobody listens
	all   []*wire       // both ends of each
}

// wire is an end of a connection that can be made to swallow what is written, as a process does that has stopped.
type wire struct {
	net.Conn
	mute  atomic.Bool
	dials bool // it is the end of who dialled
}

func (c *wire) Write(p []byte) (int, error) {
	if c.mute.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (n *network) listen(context.Context, *guard, string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns != nil {
		return nil, syscall.EADDRINUSE
	}
	n.conns = make(chan net.Conn)
	return &pipes{network: n, conns: n.conns, closed: make(chan struct{})}, nil
}

func (n *network) dial(ctx context.Context, _ *guard, _ string) (net.Conn, error) {
	n.mu.Lock()
	conns := n.conns
	n.mu.Unlock()
	if conns == nil {
		return nil, syscall.ECONNREFUSED
	}
	a, b := net.Pipe()
	theirs, ours := &wire{Conn: a}, &wire{Conn: b, dials: true}
	select {
	case conns <- theirs:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, theirs, ours)
	return ours, nil
}

// pipes is the listener.
type pipes struct {
	*network
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() {
		close(p.closed)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.network.conns = nil
	})
	return nil
}

func (p *pipes) Addr() net.Addr { return nil }

const secret = "sixteen bytes or more"

// options returns the options of a rank in the network.
func (n *network) options(rank, size int) Options {
	return Options{
		Identity: Identity{Rank: rank, Size: size, LocalRank: -1, Address: "rank0:1"}, Secret: []byte(secret),
		Heartbeat: time.Second, Patience: 10 * time.Second, listen: n.listen, dial: n.dial,
	}
}

// outcome is the result of one Join.
type outcome struct {
	*World
	err error
}

// join joins some ranks at once; change may change the options of each.
func (n *network) join(ctx context.Context, size int, ranks []int, change func(i int, o *Options)) []outcome {
	out := make([]outcome, len(ranks))
	var all sync.WaitGroup
	for i, rank := range ranks {
		o := n.options(rank, size)
		if change != nil {
			change(i, &o)
		}
		all.Go(func() { out[i].World, out[i].err = Join(ctx, o) })
	}
	all.Wait()
	return out
}

// world joins all ranks, which must succeed.
func (n *network) world(t *testing.T, size int, change func(i int, o *Options)) []*World {
	t.Helper()
	var worlds []*World
	for rank, o := range n.join(t.Context(), size, upTo(size), change) {
		if o.err != nil {
			t.Fatalf("rank %d: %v", rank, o.err)
		}
		worlds = append(worlds, o.World)
	}
	return worlds
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// bubble runs a test in which time is its own, and which fails when a goroutine is left.
func bubble(t *testing.T, name string, test func(t *testing.T, n *network)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, &network{}) })
	})
}

// wire returns the end of a member's connection that is its own, or the hub's.
func (n *network) wire(w *World, hubs bool) *wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, c := range n.all {
		if own, ok := w.link.conn.(interface{ NetConn() net.Conn }); ok && own.NetConn() == net.Conn(c) {
			if hubs {
				return n.all[i-1]
			}
			return c
		}
	}
	return nil
}

// ended waits for the end of some worlds and returns their causes.
func ended(worlds ...*World) (causes []error) {
	for _, w := range worlds {
		<-w.Context().Done()
		<-w.closed
		causes = append(causes, context.Cause(w.Context()))
	}
	return causes
}

// wantAll fails unless all causes are of one rank, in the same words.
func wantAll(t *testing.T, causes []error, rank int, why Why, text string) {
	t.Helper()
	for _, cause := range causes {
		e, ok := errors.AsType[*RankError](cause)
		if !ok || e.Rank != rank || e.Why != why || e.Error() != text {
			t.Errorf("%v, want %s", cause, text)
		}
	}
}
