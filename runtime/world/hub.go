package world

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// strangers is how many connections may be in the lobby.
	strangers = 256
	// longestHello is how many bytes an introduction may have.
	longestHello = 1 << 20
	// mostAhead is how many collectives a rank may have begun that others have not.
	mostAhead = 64
)

// hub is where the members meet: rank 0's other half.
type hub struct {
	o        Options
	guard    *guard
	listener net.Listener // nil for a world of one
	lobby    *Lobby
	running  sync.WaitGroup // goroutines
	ctx      context.Context
	cancel   context.CancelFunc // when the hub has told everybody that it is over

	mu         sync.Mutex
	peers      []*peer // by rank; nil: not here
	turnedAway turnedAway
	started    bool
	verdict    error // with which the rendezvous ended, if it did
	rounds     map[int]*round
	left       int
}

// peer is a member as the hub sees it.
type peer struct {
	*introduction
	link   *link
	status string
	round  int // of its next collective
	left   bool
}

// round is a collective that not all ranks have come to.
type round struct {
	what  string
	first *peer
	parts [][]byte
	came  int
}

func newHub(o Options, g *guard) *hub {
	h := &hub{o: o, guard: g, peers: make([]*peer, o.Size), rounds: map[int]*round{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.lobby = NewLobby(h.ctx, strangers)
	return h
}

// open listens, and takes in rank 0's own member, whose end of the connection it returns. ctx is that of the rendezvous.
func (h *hub) open(ctx context.Context) (net.Conn, error) {
	if h.o.Size > 1 {
		var err error
		if h.listener, err = h.o.listen(ctx, h.guard, h.o.Address); err != nil {
			return nil, err
		}
		h.running.Go(func() {
			h.lobby.Accept(h.listener, &h.running, func(g *Guest) { h.serve(g, tls.Server(g, h.guard.server)) })
		})
	}
	hubs, members := net.Pipe()
	own := h.lobby.own(hubs)
	h.running.Go(func() { h.serve(own, own) })
	h.running.Go(func() { h.watch(ctx) })
	return members, nil
}

// serve is the goroutine that begins with a guest, over a connection through it; one that has become a peer is followed by another.
func (h *hub) serve(g *Guest, conn net.Conn) {
	err := h.admit(g, conn)
	if err == nil {
		return
	}
	h.turnAway(conn, g.explain(err))
	_ = conn.Close() // of a stranger
}

// admit reads who a guest is, and takes it in. Nothing is read of who has not proved that it belongs to this world.
func (h *hub) admit(g *Guest, conn net.Conn) error {
	if t, ok := conn.(*tls.Conn); ok {
		if err := h.shake(t); err != nil {
			return err
		}
	}
	m, err := decode(conn, min(h.o.Longest, longestHello))
	if err != nil {
		return err
	}
	if m.Kind != hello || m.Hello == nil {
		return &formatError{fmt.Errorf("a %.20q before a %s", m.Kind, hello)}
	}
	if !h.guard.proves(conn, m.Hello.Proof) {
		return &RefusalError{OtherSecret, errOtherSecret.Error()}
	}
	if err := g.Leave(); err != nil {
		return err
	}
	return h.enter(conn, m.Hello)
}

// shake proves to both sides that the other belongs to this world.
func (h *hub) shake(conn *tls.Conn) error {
	if !h.guard.open && !loopback(conn.RemoteAddr().String()) {
		return fmt.Errorf("%w: it is not on this machine, and this world has none", ErrSecret)
	}
	return conn.Handshake()
}

// enter takes in who has proved that it belongs here. Who contradicts this world ends the rendezvous for all.
func (h *hub) enter(conn net.Conn, who *introduction) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.verdict != nil {
		return h.verdict
	}
	if h.started || h.ctx.Err() != nil {
		return &RefusalError{Busy, fmt.Sprintf("the world of rank 0 on %s has started without this process", hostName())}
	}
	if err := h.contradiction(who); err != nil {
		h.giveUp(err)
		return err
	}
	p := &peer{introduction: who, link: newLink(conn, 4*h.o.Longest)}
	h.peers[who.Rank] = p
	h.running.Go(func() { h.follow(p) })
	if missing := h.missing(); len(missing) > 0 {
		h.broadcast(&message{Kind: waiting, Missing: missing})
	} else {
		h.begin()
	}
	return nil
}

// contradiction returns why a process cannot be part of this world.
func (h *hub) contradiction(who *introduction) error {
	here := hostName()
	switch {
	case who.Protocol != protocol:
		return &RefusalError{OtherProtocol, fmt.Sprintf("rank 0 on %s speaks version %d, rank %d on %s version %d: all need the same program",
			here, protocol, who.Rank, who.Host, who.Protocol)}
	case who.Size != h.o.Size:
		return &RefusalError{OtherSize, fmt.Sprintf("rank 0 on %s is one of %d processes, rank %d on %s one of %d", here, h.o.Size, who.Rank, who.Host, who.Size)}
	case who.Rank < 0 || who.Rank >= h.o.Size:
		return &RefusalError{BadRank, fmt.Sprintf("a process on %s is rank %d of %d", who.Host, who.Rank, h.o.Size)}
	}
	if p := h.peers[who.Rank]; p != nil {
		return &RefusalError{Duplicate, fmt.Sprintf("two processes are rank %d: %d on %s and %d on %s", who.Rank, p.Process, p.Host, who.Process, who.Host)}
	}
	if e := compare(h.o.Agree, who.Agree); e != nil {
		e.Ranks, e.Hosts = [2]int{0, who.Rank}, [2]string{here, who.Host}
		return e
	}
	return nil
}

// begin starts the world. The epoch and the key are random: a restart shares nothing with earlier starts.
func (h *hub) begin() {
	h.started = true
	random := make([]byte, 8+keyBytes)
	_, _ = rand.Read(random) // it never fails
	m := &message{Kind: welcome, Welcome: &start{Epoch: hex.EncodeToString(random[:8]), Key: random[8:]}}
	for _, p := range h.peers {
		m.Welcome.Hosts = append(m.Welcome.Hosts, p.Host)
	}
	h.broadcast(m)
}

func (h *hub) missing() (all []int) {
	for rank, p := range h.peers {
		if p == nil {
			all = append(all, rank)
		}
	}
	return all
}

// turnAway tells a connection why it is, where it has proved that it may know, and remembers it.
func (h *hub) turnAway(conn net.Conn, err error) {
	if h.ctx.Err() == nil {
		h.remember(source(conn.RemoteAddr()), err)
	}
	if r := refusalOf(err); r != nil {
		if frame, err := encode(&message{Kind: refused, Refusal: r}, h.o.Longest); err == nil {
			_ = conn.SetDeadline(time.Now().Add(linger))
			_, _ = conn.Write(frame) // who has gone need not know
		}
	}
}

func (h *hub) remember(from string, err error) {
	h.mu.Lock()
	who, first := h.turnedAway.add(from, err)
	h.mu.Unlock()
	if first && h.o.Note != nil {
		h.o.Note("turned away " + who)
	}
}

// watch is the goroutine that waits: for the rendezvous to be complete, then for beats.
func (h *hub) watch(rendezvous context.Context) {
	ticker := time.NewTicker(h.o.Heartbeat)
	defer ticker.Stop()
	awake := wakefulness{patience: h.o.Patience}
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-rendezvous.Done():
			h.expire(rendezvous)
			rendezvous = context.Background()
		case <-ticker.C:
			h.check(awake.slept())
		}
	}
}

// expire ends a rendezvous that was not complete in time.
func (h *hub) expire(rendezvous context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.started:
	case errors.Is(rendezvous.Err(), context.DeadlineExceeded):
		h.giveUp(&MissingError{Missing: h.missing(), Size: h.o.Size, Timeout: h.o.Timeout, Address: h.o.Address, Refused: h.turnedAway.list()})
	default:
		h.giveUp(&RankError{Rank: 0, Host: hostName(), Why: Failed, Text: "interrupted during the rendezvous"})
	}
}

// check ends the world when a member is silent. When this process has slept itself, it begins to listen anew.
func (h *hub) check(slept bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.peers {
		switch {
		case p == nil || !h.started:
		case slept:
			p.link.forgive()
		case p.link.silence() > h.o.Patience:
			h.end(&RankError{Why: Silent, Silence: h.o.Patience}, p)
			return
		}
	}
}

// follow is the goroutine that reads what a member says.
func (h *hub) follow(p *peer) {
	defer p.link.close()
	for {
		m, err := decode(p.link, h.o.Longest)
		if err != nil {
			h.lose(p, err)
			return
		}
		h.take(p, m)
	}
}

// lose ends the world of a member whose connection is lost, or who sends what is no message. Before the start it may come again.
func (h *hub) lose(p *peer, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ctx.Err() != nil:
	case !h.started:
		h.peers[p.Rank] = nil
		h.broadcast(&message{Kind: waiting, Missing: h.missing()})
	case lost(err):
		h.end(&RankError{Why: Died}, p)
	default:
		h.end(&RankError{Why: Failed, Text: err.Error()}, p)
	}
}

// take does what a member says.
func (h *hub) take(p *peer, m *message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started || h.ctx.Err() != nil {
		return
	}
	switch m.Kind {
	case beat:
		p.status = clip(m.Status, longestStatus)
		h.tell(p, &message{Kind: beaten, Sent: m.Sent, Now: time.Now().UnixNano(), Statuses: h.statuses()})
	case post:
		h.broadcast(&message{Kind: post, Topic: m.Topic, Data: m.Data, From: p.Rank})
	case gather:
		h.gather(p, m)
	case fail:
		h.fail(p, m.Failure)
	case leave:
		h.leave(p)
	default:
		h.end(&RankError{Why: Failed, Text: fmt.Sprintf("sent a message of kind %.20q", m.Kind)}, p)
	}
}

func (h *hub) statuses() []string {
	all := make([]string, len(h.peers))
	for rank, p := range h.peers {
		all[rank] = p.status
	}
	return all
}

// gather adds a member's part to a collective, and sends the parts out when all are here.
func (h *hub) gather(p *peer, m *message) {
	r := h.rounds[m.Round]
	if r == nil {
		r = &round{what: m.What, first: p, parts: make([][]byte, len(h.peers))}
		h.rounds[m.Round] = r
	}
	switch {
	case m.Round != p.round || len(h.rounds) > mostAhead:
		h.end(&RankError{Why: Failed, Text: fmt.Sprintf("came to collective %d instead of %d, of %d that others have not come to", m.Round, p.round, len(h.rounds))}, p)
		return
	case m.What != r.what:
		h.end(&RankError{Why: Failed, Text: fmt.Sprintf("collective %d is %.40s, but %.40s for rank %d on %s", m.Round, m.What, r.what, r.first.Rank, r.first.Host)}, p)
		return
	}
	p.round++
	r.parts[p.Rank] = m.Data
	if r.came++; r.came == len(h.peers) {
		delete(h.rounds, m.Round)
		h.broadcast(&message{Kind: gathered, Round: m.Round, Parts: r.parts})
	}
}

// fail ends the world as a member says.
func (h *hub) fail(p *peer, said *RankError) {
	e := &RankError{Why: Failed}
	if said != nil {
		p.status = clip(said.Status, longestStatus)
		e.Text = clip(said.Text, longestFailure)
		if said.Why == Left {
			e.Why = Left
		}
	}
	h.end(e, p)
}

// leave ends the world when all members have left it.
func (h *hub) leave(p *peer) {
	if p.left {
		return
	}
	p.left = true
	if h.left++; h.left == len(h.peers) {
		h.conclude(&message{Kind: left})
	}
}

// end ends the world for what one of its members did.
func (h *hub) end(e *RankError, p *peer) {
	e.Rank, e.Host, e.Status = p.Rank, p.Host, p.status
	h.conclude(&message{Kind: fail, Failure: e})
}

// giveUp ends the rendezvous for all.
func (h *hub) giveUp(err error) {
	h.verdict = err
	h.conclude(&message{Kind: refused, Refusal: refusalOf(err)})
}

// conclude is the last that the hub says.
func (h *hub) conclude(last *message) {
	if h.ctx.Err() != nil {
		return
	}
	h.cancel()
	h.broadcast(last)
	for _, p := range h.peers {
		if p != nil {
			p.link.finish()
		}
	}
	if h.listener != nil {
		_ = h.listener.Close() // nobody else comes
	}
}

// broadcast tells all members who are here.
func (h *hub) broadcast(m *message) {
	frame, err := encode(m, h.o.Longest)
	if err != nil {
		h.end(&RankError{Why: Failed, Text: "to all ranks: " + err.Error()}, h.peers[0])
		return
	}
	for _, p := range h.peers {
		if p != nil {
			h.send(p, frame)
		}
	}
}

func (h *hub) tell(p *peer, m *message) {
	frame, err := encode(m, h.o.Longest)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	h.send(p, frame)
}

// send sends to a member, who is lost when it does not read.
func (h *hub) send(p *peer, frame []byte) {
	if err := p.link.send(frame); errors.Is(err, errLinkFull) {
		h.end(&RankError{Why: Failed, Text: err.Error()}, p)
	}
}
