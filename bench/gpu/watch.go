package main

import (
	"time"

	"plimsoll/internal/units"
)

// watchEvery is how often NVML is asked while something runs.
const watchEvery = 20 * time.Millisecond

// byNVML writes what NVML says, which is 0 where it says nothing.
func byNVML(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return units.Bytes(bytes)
}

// watch asks NVML for the memory in use on the device until it is stopped. Function stop returns by how much that rose at most: the
// arena, and the context with its code; 0 where there is no NVML.
func (p *part) watch() (stop func() int64) {
	before := used(p.Environment.Bus)
	most, end, done := before, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for before > 0 {
			select {
			case <-end:
				return
			case <-time.After(watchEvery):
				most = max(most, used(p.Environment.Bus))
			}
		}
	}()
	return func() int64 {
		close(end)
		<-done
		return most - before
	}
}
