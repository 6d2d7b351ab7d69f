package world

import (
	"errors"
	"net"
	"sync"
	"time"
)

// peer is the other end of a control connection. Messages to it wait in a queue, so that whoever sends never waits for it; the queue of
// a process with itself is a peer without a connection.
type peer struct {
	conn    net.Conn // nil: this process
	receive func(*message)

	mu     sync.Mutex
	moved  *sync.Cond
	queue  []*message
	busy   bool // one is on its way
	closed bool
}

// mostQueued is how many messages wait for a process that does not take them: more are a fault.
const mostQueued = 1 << 16

var errQueue = errors.New("it does not take what it is told")

func newPeer(conn net.Conn, receive func(*message)) *peer {
	p := &peer{conn: conn, receive: receive}
	p.moved = sync.NewCond(&p.mu)
	return p
}

// send queues a message.
func (p *peer) send(m *message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == mostQueued {
		return errQueue
	}
	if !p.closed {
		p.queue = append(p.queue, m)
		p.moved.Broadcast()
	}
	return nil
}

// deliver hands on what is queued until the peer is closed. Errors: those of the connection.
func (p *peer) deliver() error {
	for {
		m := p.next()
		if m == nil {
			return nil
		}
		if p.conn == nil {
			p.receive(m)
		} else if err := m.write(p.conn); err != nil {
			return err
		}
	}
}

func (p *peer) next() *message {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	p.moved.Broadcast()
	for len(p.queue) == 0 && !p.closed {
		p.moved.Wait()
	}
	if len(p.queue) == 0 {
		return nil
	}
	m := p.queue[0]
	p.queue[0], p.queue = nil, p.queue[1:]
	p.busy = true
	return m
}

// flush waits until all that is queued has gone, at most so long.
func (p *peer) flush(most time.Duration) {
	late := time.AfterFunc(most, p.close)
	defer late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for (len(p.queue) > 0 || p.busy) && !p.closed {
		p.moved.Wait()
	}
}

// close ends the connection.
func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.moved.Broadcast()
	if p.conn != nil {
		_ = p.conn.Close() // nobody reads from it any more
	}
}
