package world

import "sync"

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

// size is about what a posted message takes.
func (m *message) size() int { return len(m.Data) + len(m.Topic) + 256 }
