package world

import (
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// linger is how long the end of a world waits for the other side to have read it.
	linger = time.Second
	// room is how many bytes wait to be written before Post waits, too.
	room = 1 << 20
)

// link is one end of a connection. Frames go out in the order given, by a goroutine of its own, so that nobody who sends waits for a
// slow reader.
type link struct {
	conn net.Conn
	most int // bytes that may wait

	mu      sync.Mutex
	changed *sync.Cond
	queue   [][]byte
	queued  int  // bytes
	closing bool // nothing more is taken; what waits goes out
	heard   time.Time
	written chan struct{}
}

var (
	errLinkClosed = errors.New("the connection is closed")
	errLinkFull   = errors.New("it does not read what it is sent")
)

func newLink(conn net.Conn, most int) *link {
	l := &link{conn: conn, most: most, heard: time.Now(), written: make(chan struct{})}
	l.changed = sync.NewCond(&l.mu)
	go l.write()
	return l
}

// Read reads, and knows when it did last.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.conn.Read(p)
	l.forgive()
	return n, err
}

// silence returns for how long nothing has come.
func (l *link) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.heard)
}

// forgive begins silence anew.
func (l *link) forgive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now()
}

// send takes a frame to be written, and never waits.
func (l *link) send(frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.take(frame)
}

// sendWithRoom is send, but waits while much is waiting.
func (l *link) sendWithRoom(frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.queued > min(room, l.most/4) && !l.closing {
		l.changed.Wait()
	}
	return l.take(frame)
}

func (l *link) take(frame []byte) error {
	if l.closing {
		return errLinkClosed
	}
	if l.queued+len(frame) > l.most {
		return errLinkFull
	}
	l.queue, l.queued = append(l.queue, frame), l.queued+len(frame)
	l.changed.Broadcast()
	return nil
}

// finish writes what waits and says that nothing follows; within linger, reading and writing end.
func (l *link) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closing {
		l.closing = true
		l.changed.Broadcast()
		_ = l.conn.SetDeadline(time.Now().Add(linger)) // of a connection that may be lost
	}
}

// close waits for the writer and closes the connection; after finish.
func (l *link) close() {
	l.finish()
	<-l.written
	_ = l.conn.Close() // what it was for has been said
}

// write is the goroutine that writes.
func (l *link) write() {
	defer close(l.written)
	for {
		frame, ok := l.next()
		if !ok {
			break
		}
		if _, err := l.conn.Write(frame); err != nil {
			l.drop()
			return
		}
		l.mu.Lock()
		l.queued -= len(frame)
		l.changed.Broadcast()
		l.mu.Unlock()
	}
	closing := l.conn.Close // of a net.Pipe: what was written has been read
	if half, ok := l.conn.(interface{ CloseWrite() error }); ok {
		closing = half.CloseWrite
	}
	_ = closing() // the other side may be gone
}

func (l *link) next() (frame []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closing {
		l.changed.Wait()
	}
	if len(l.queue) == 0 {
		return nil, false
	}
	frame, l.queue = l.queue[0], l.queue[1:]
	return frame, true
}

// drop forgets waiting messages. Messages that the other side sent before the connection was lost can still be read.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing, l.queue, l.queued = true, nil, 0
	l.changed.Broadcast()
	_ = l.conn.SetDeadline(time.Now().Add(linger)) // of a connection that is lost
}
