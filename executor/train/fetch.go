package train

import (
	"time"

	"plimsoll/executor"
)

// fetcher brings the batches of a run to the page-locked memory of its executor, and where they are staged on to the device: while a
// step runs, the batch of the next one.
type fetcher struct {
	to    *Runner
	from  loader
	there bool // the batch of the next step is, or err in its place
	err   error
}

// get makes sure that the batch of the next step is there, and returns how long it had to wait until it was made.
func (f *fetcher) get() (waited time.Duration, err error) {
	if !f.there {
		waited = f.fetch()
	}
	f.there = false
	return waited, f.err
}

func (f *fetcher) fetch() time.Duration {
	before := f.from.Waited()
	if _, _, f.err = f.from.next(f.to); f.err == nil {
		f.err = f.to.Stage()
	}
	f.there = true
	return f.from.Waited() - before
}

// step runs a step on the batch that is there. Where more follow it fetches the next batch meanwhile, and returns by how much that
// was late: the step had ended, and the batch was not made.
func (f *fetcher) step(number uint64, rate float32, more bool) (res *executor.Result, late time.Duration, err error) {
	start := time.Now()
	if err := f.to.Begin(number, rate); err != nil {
		return nil, 0, err
	}
	f.to.Swap()
	if more {
		late = f.fetch()
	}
	fetched := time.Since(start)
	res, err = f.to.End()
	if err != nil {
		return nil, 0, err
	}
	return res, max(min(late, fetched-time.Duration(res.Device*float64(time.Second))), 0), nil
}

// Idle is the share of the steps' time in which the device computed nothing, and of what that is the sum.
type Idle struct {
	Share  float64 `json:"share"`
	Data   float64 `json:"data"`   // the batch was not made yet
	Batch  float64 `json:"batch"`  // it was brought to where the step reads it: copied to the device, or normalized there
	Copies float64 `json:"copies"` // ops or updates waited for what is offloaded
	Host   float64 `json:"host"`   // everything else: launches, the result's way back, what is logged
}

// idleness sums up seconds in which the device worked, and in which it did not.
type idleness struct{ worked, data, batch, copies float64 }

// add counts a timed step.
func (i *idleness) add(r *executor.Result, waited time.Duration) {
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
