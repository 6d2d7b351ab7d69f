package train

import (
	"time"

	"plimsoll/executor"
)

// Idle is the share of the steps' time in which the device, or the mean of several, computed nothing, and of what that is the sum.
type Idle struct {
	Share  float64 `json:"share"`
	Data   float64 `json:"data"`             // the batch was not made yet
	Batch  float64 `json:"batch"`            // it was brought to where the step reads it: copied to the device, or normalized there
	Copies float64 `json:"copies"`           // ops or updates waited for what is offloaded
	Host   float64 `json:"host"`             // everything else: launches, the result's way back, what is logged; messages between devices
	Bubble float64 `json:"bubble,omitempty"` // the plan itself lets devices wait for each other
	// Streams are shares of the steps' time in which each stream of a cyclic plan, updates on the host among them, did nothing.
	Streams []StreamIdle `json:"streams,omitempty"`
}

// StreamIdle is the share of time in which a stream did nothing.
type StreamIdle struct {
	Stream string  `json:"stream"`
	Share  float64 `json:"share"`
}

// idleness sums up seconds in which the device worked, and in which it did not.
type idleness struct{ worked, data, batch, copies float64 }

// add counts a timed step.
func (i *idleness) add(r *executor.Times, waited time.Duration) {
	i.worked += r.Busy
	i.data += waited.Seconds()
	i.batch += r.Upload
	i.copies += max(r.Sequence+r.Update-r.Busy, 0)
}

// shares returns shares of the seconds that all steps took.
func (i *idleness) shares(all float64) *Idle {
	s := &Idle{Share: max(1-i.worked/all, 0), Data: i.data / all, Batch: i.batch / all, Copies: i.copies / all}
	s.Host = max(s.Share-s.Data-s.Batch-s.Copies, 0)
	return s
}
