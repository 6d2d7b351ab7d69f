package host

import (
	"sync/atomic"
	"time"
)

// never is abandoned.
var never atomic.Bool

// Pause returns a launch that computes nothing and takes a time: for simulated durations on real streams.
func Pause(name string, d time.Duration) Launch {
	return Func{Name: name, Do: func() error {
		pauseUntil(now()+d, true, &never)
		return nil
	}}
}
