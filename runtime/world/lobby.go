package world

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// firstBytes is how long a connection may say nothing.
	firstBytes = time.Second
	// handshake is how long a connection may take to say who it is.
	handshake = 10 * time.Second
)

// Lobby holds the connections that have not said who they are, so that strangers cannot keep members out.
//
// Invariants:
//  1. The lobby holds at most a stated number of connections. In a full one a newcomer takes the place of a guest (victim).
//  2. A guest that says nothing for a second fails to read, and so does one that has not left the lobby after 10 s.
//  3. Every guest fails to read when the lobby's context ends.
type Lobby struct {
	ctx  context.Context
	most int

	mu     sync.Mutex
	guests []*Guest // the oldest first
}

// NewLobby returns an empty lobby for at most so many connections.
func NewLobby(ctx context.Context, most int) *Lobby { return &Lobby{ctx: ctx, most: most} }

// Guest is a connection in a lobby.
type Guest struct {
	net.Conn
	lobby *Lobby
	from  string // whose connections share
	last  time.Time
	stop  func() bool

	mu      sync.Mutex
	spoken  bool
	evicted bool
}

// Accept takes connections until the lobby's context ends, and serves each on a goroutine of tasks. serve closes the connection, or calls
// Leave with success.
func (l *Lobby) Accept(listener net.Listener, tasks *sync.WaitGroup, serve func(*Guest)) {
	for l.ctx.Err() == nil {
		conn, err := listener.Accept()
		if err != nil { // too many files are open, say
			time.Sleep(10 * time.Millisecond)
			continue
		}
		g := l.enter(conn)
		tasks.Go(func() {
			defer g.leave()
			serve(g)
		})
	}
}

// own returns a guest that takes no place and has no deadline: it ends with the lobby's context alone.
func (l *Lobby) own(conn net.Conn) *Guest {
	g := &Guest{Conn: conn, lobby: l, from: source(conn.RemoteAddr()), spoken: true}
	g.stop = context.AfterFunc(l.ctx, func() { _ = conn.SetDeadline(time.Now()) })
	return g
}

// enter makes a connection a guest.
func (l *Lobby) enter(conn net.Conn) *Guest {
	g := l.own(conn)
	g.spoken, g.last = false, time.Now().Add(handshake)
	g.extend(time.Now().Add(firstBytes))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests = append(l.guests, g)
	if len(l.guests) > l.most {
		i := l.victim()
		l.guests[i].evict()
		l.guests = slices.Delete(l.guests, i, i+1)
	}
	return g
}

// victim returns the guest that gives way: the oldest of the address with the most guests.
func (l *Lobby) victim() int {
	guests, most := map[string]int{}, 0
	for _, g := range l.guests {
		guests[g.from]++
		most = max(most, guests[g.from])
	}
	return slices.IndexFunc(l.guests, func(g *Guest) bool { return guests[g.from] == most })
}

func (l *Lobby) remove(g *Guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests = slices.DeleteFunc(l.guests, func(other *Guest) bool { return other == g })
}

// source returns the part of an address that shares one allowance. It is an IPv4 address, or the network of an IPv6 address, from
// which one machine can have any number of addresses.
func source(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil { // a socket of this machine
		return a.String()
	}
	ip := at.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.WithZone("").Prefix(64) // an IPv6 address has as many bits
	return network.String()
}

// Read reads. The first bytes give the guest the rest of its time.
func (g *Guest) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if n > 0 && !g.spoke() {
		g.mu.Lock()
		g.spoken = true
		g.mu.Unlock()
		g.extend(g.last)
	}
	return n, err
}

// extend moves the deadline, unless the lobby's context has ended meanwhile.
func (g *Guest) extend(until time.Time) {
	_ = g.SetDeadline(until) // reading fails on a connection that is lost
	if g.lobby.ctx.Err() != nil {
		_ = g.SetDeadline(time.Now())
	}
}

// Leave ends the limits of a guest that has said who it is. It fails where the guest has had to give way before: then its connection is
// closed.
func (g *Guest) Leave() error {
	if g.leave() {
		_ = g.SetDeadline(time.Time{}) // reading fails on a connection that is lost
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.evicted {
		return errGaveWay
	}
	return nil
}

// leave gives the guest's place back, and reports whether its limits had not ended.
func (g *Guest) leave() bool {
	g.lobby.remove(g)
	return g.stop()
}

func (g *Guest) spoke() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.spoken
}

// evict ends a guest that gives way.
func (g *Guest) evict() {
	g.mu.Lock()
	g.evicted = true
	g.mu.Unlock()
	_ = g.Close() // reading fails
}

// explain says why a guest failed: with err, unless the lobby ended it.
func (g *Guest) explain(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.evicted:
		return errGaveWay
	case !g.spoken:
		return errSilent
	}
	return err
}
