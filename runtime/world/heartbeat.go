package world

import (
	"slices"
	"time"
)

const (
	// firstBeats follow each other at once, so that the clocks' offset is known from the start.
	firstBeats = 8
	// window is how many round trips are remembered.
	window = 64
)

// clock estimates the offset between two clocks from round trips: that of the fastest of the last ones.
type clock struct {
	trips [window]struct{ took, offset time.Duration }
	n     int
}

func (c *clock) add(sent, theirs, received int64) {
	trip := &c.trips[c.n%window]
	trip.took = time.Duration(received - sent)
	trip.offset = time.Duration(theirs - (sent + (received-sent)/2))
	c.n++
}

func (c *clock) offset() time.Duration {
	known := c.trips[:min(c.n, window)]
	if len(known) == 0 {
		return 0
	}
	best := known[0]
	for _, t := range known[1:] {
		if t.took < best.took {
			best = t
		}
	}
	return best.offset
}

// Offset returns what to add to this process's clock for rank 0's, from the fastest of the last round trips of heartbeats.
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

// wakefulness tells a process that it has been stopped itself: then it has heard nobody, and nobody is to blame.
type wakefulness struct {
	patience time.Duration
	last     time.Time
}

// slept is asked at every heartbeat.
func (a *wakefulness) slept() bool {
	now := time.Now()
	gap := now.Sub(a.last)
	first := a.last.IsZero()
	a.last = now
	return !first && gap > a.patience/2
}
