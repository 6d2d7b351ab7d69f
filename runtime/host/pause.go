package host

import (
	"sync/atomic"
	"time"
)

// never is abandoned.
var never atomic.Bool

// Pause returns a launch that computes nothing and takes a time: for simulated durations on real streams.
func Pause(name string, d time.Duration) Launch { return pause{name, d} }

// pause is a launch that takes a time.
type pause struct {
	name   string
	length time.Duration
}

// Kernel implements runtime.Launch.
func (p pause) Kernel() string { return p.name }

// Run implements Launch, away from a stream.
func (p pause) Run() error {
	return pauser{abandoned: &never}.until(now()+p.length, true)
}
