package host

import "time"

// Pause returns a launch that computes nothing and takes a time: for simulated durations on real streams.
func Pause(name string, d time.Duration) Launch {
	return Func{Name: name, Do: func() error {
		pauseUntil(now()+d, true)
		return nil
	}}
}
