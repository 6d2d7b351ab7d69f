package world

import (
	"slices"
	"time"
)

// firstBeats follow each other at once, so that the clocks' offset is known from the start.
const firstBeats = 8

// Offset returns the time to add to this process's clock to get rank 0's, from the fastest of the last round trips of
// heartbeats.
func (w *World) Offset() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Rank() == 0 {
		return 0
	}
	return w.clock.offset()
}

// Statuses returns the latest of each rank, as old as a heartbeat or two.
func (w *World) Statuses() []string {
	own := w.o.status()
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(w.statuses)
	all[w.Rank()] = own
	return all
}

// beat is the goroutine that says that this rank is alive, and watches the hub.
func (w *World) beat() {
	ticker := time.NewTicker(w.o.Heartbeat)
	defer ticker.Stop()
	awake := wakefulness{patience: w.o.Patience}
	for {
		w.sendBeat()
		select {
		case <-w.ctx.Done():
			return
		case <-ticker.C:
		}
		if awake.slept() {
			w.link.forgive()
		}
		if w.link.silence() > w.o.Patience {
			w.end(w.lost(Silent), func() {})
		}
	}
}

func (w *World) sendBeat() {
	_ = w.send(&message{Kind: beat, Sent: time.Now().UnixNano(), Status: w.o.status()}, (*link).send) // whoever reads finds out that the hub is lost
}

// measure learns from the hub's answer to a beat.
func (w *World) measure(m *message) {
	w.mu.Lock()
	w.clock.add(m.Sent, m.Now, time.Now().UnixNano())
	if len(m.Statuses) == w.Size() {
		w.statuses = m.Statuses
	}
	early := w.clock.n < firstBeats
	w.mu.Unlock()
	if early {
		w.sendBeat()
	}
}
