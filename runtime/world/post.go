package world

import (
	"fmt"
	"sync"
)

// inbox keeps posted messages until they are handled, in their order.
type inbox struct {
	mu       sync.Mutex
	changed  *sync.Cond
	handlers map[string]func(from int, data []byte)
	ready    []*message            // of topics that are handled
	kept     map[string][]*message // of the others
	bytes    int                   // of both
	over     bool                  // nothing more arrives
}

func newInbox() *inbox {
	in := &inbox{handlers: map[string]func(int, []byte){}, kept: map[string][]*message{}}
	in.changed = sync.NewCond(&in.mu)
	return in
}

// handle lets a function handle the messages of a topic.
func (in *inbox) handle(topic string, do func(from int, data []byte)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.handlers[topic] = do
	in.ready = append(in.kept[topic], in.ready...)
	delete(in.kept, topic)
	in.changed.Broadcast()
}

// put keeps a message for its handler, and returns the bytes of all that wait.
func (in *inbox) put(m *message) (bytes int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.handlers[m.Topic] != nil {
		in.ready = append(in.ready, m)
	} else {
		in.kept[m.Topic] = append(in.kept[m.Topic], m)
	}
	in.bytes += m.size()
	in.changed.Broadcast()
	return in.bytes
}

// next waits for a message that has a handler; nil when nothing more arrives.
func (in *inbox) next() (*message, func(from int, data []byte)) {
	in.mu.Lock()
	defer in.mu.Unlock()
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

// close ends what next waits for: after what has come at a good end, at once otherwise.
func (in *inbox) close(good bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over = true; !good {
		in.ready = nil
	}
	in.changed.Broadcast()
}

// Post sends a message to all, this process included. Messages of all ranks arrive everywhere in one order. It waits while much has not
// gone out. Errors: the cause of the world's end, ErrTooLong.
func (w *World) Post(topic string, data []byte) error {
	return w.send(&message{Kind: post, Topic: topic, Data: data}, (*link).sendWithRoom)
}

// Handle says what to do with the messages of a topic; those that came before are kept until then. One message is handled at a time, by a
// goroutine of the world.
func (w *World) Handle(topic string, do func(from int, data []byte)) { w.inbox.handle(topic, do) }

// arrive keeps a message for its handler. More than fits in four of the longest messages is too much to keep.
func (w *World) arrive(m *message) {
	if w.inbox.put(m) > 4*w.o.Longest {
		w.giveUp(Failed, fmt.Errorf("messages of topic %.40q are not handled: %d MiB wait", m.Topic, 4*w.o.Longest>>20))
	}
}

// size is about what a posted message takes.
func (m *message) size() int { return len(m.Data) + len(m.Topic) + 256 }

// handle is the goroutine that handles messages. After a good end it handles what has come.
func (w *World) handle() {
	for {
		m, do := w.inbox.next()
		if m == nil {
			return
		}
		do(m.From, m.Data)
	}
}
