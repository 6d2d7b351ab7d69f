package world

import "time"

// window is how many round trips are remembered.
const window = 64

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
