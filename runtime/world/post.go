package world

import (
	"fmt"
)

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
