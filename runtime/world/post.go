package world

import (
	"fmt"
	"sync"
)

// inbox keeps posted messages until they are handled, in their order.
type inbox struct {
	changed  *sync.Cond // of the world's mutex
	handlers map[string]func(from int, data []byte)
	ready    []*message            // of topics that are handled
	kept     map[string][]*message // of the others
	bytes    int                   // of both
	over     bool                  // nothing more arrives
}

// Post sends a message to all, this process included. Messages of all ranks arrive everywhere in one order. It waits while much has not
// gone out. Errors: the cause of the world's end, ErrTooLong.
func (w *World) Post(topic string, data []byte) error {
	return w.send(&message{Kind: post, Topic: topic, Data: data}, (*link).sendWithRoom)
}

// Handle says what to do with the messages of a topic; those that came before are kept until then. One message is handled at a time, by a
// goroutine of the world.
func (w *World) Handle(topic string, do func(from int, data []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inbox.handlers[topic] = do
	w.inbox.ready = append(w.inbox.kept[topic], w.inbox.ready...)
	delete(w.inbox.kept, topic)
	w.inbox.changed.Broadcast()
}

// arrive keeps a message for its handler. More than fits in four of the longest messages is too much to keep.
func (w *World) arrive(m *message) {
	w.mu.Lock()
	in := &w.inbox
	if in.handlers[m.Topic] != nil {
		in.ready = append(in.ready, m)
	} else {
		in.kept[m.Topic] = append(in.kept[m.Topic], m)
	}
	in.bytes += m.size()
	full := in.bytes > 4*w.o.Longest
	in.changed.Broadcast()
	w.mu.Unlock()
	if full {
		w.giveUp(Failed, fmt.Errorf("messages of topic %.40q are not handled: %d MiB wait", m.Topic, 4*w.o.Longest>>20))
	}
}

// size is about what a posted message takes.
func (m *message) size() int { return len(m.Data) + len(m.Topic) + 256 }

// handle is the goroutine that handles messages. After a good end it handles what has come.
func (w *World) handle() {
	for {
		m, do := w.nextPost()
		if m == nil {
			return
		}
		do(m.From, m.Data)
	}
}

func (w *World) nextPost() (*message, func(from int, data []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := &w.inbox
	for len(in.ready) == 0 && !in.over {
		in.changed.Wait()
	}
	if len(in.ready) == 0 {
		return nil, nil
	}
	m := in.ready[0]
	in.ready, in.bytes = in.ready[1:], in.bytes-m.size()
	return m, in.handlers[m.Topic]
}

// closeInbox ends handle: after what has come at a good end, at once otherwise.
func (w *World) closeInbox(good bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inbox.over = true
	if !good {
		w.inbox.ready = nil
	}
	w.inbox.changed.Broadcast()
}
