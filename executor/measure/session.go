package measure

import (
	"cmp"
	"time"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// ProfileOptions are how a model is measured.
type ProfileOptions struct {
	Warmup  int // steps of each exercise before the measured ones
	Repeats int // measured steps of each exercise
	// Enough ends the repeats of an exercise whose measured steps have taken so long together; 0: never. Long steps vary less.
	Enough time.Duration
	Seed   uint64
	// Halves measures the two halves of every backward as well: the chain then has the fields backward_input_s and
	// backward_weight_s.
	Halves bool
	// OpenHost opens what updates the host memory of a device: see library.OpenHost. Where it, or what it returns, is nil, updates on the host are
	// not measured.
	OpenHost func(runtime.Device) (kernels.Updater, error)
	Progress func(done, total int) // called after every step; may be nil
}

// rounds returns how many rounds a measurement in turns has: as many as there are measured steps, and at most so many.
func (o *ProfileOptions) rounds(most int) int { return min(most, max(o.Repeats, 1)) }

// lasting returns how long a measurement takes that takes so long with fullRepeats: with fewer measured steps less.
func (o *ProfileOptions) lasting(full time.Duration) time.Duration {
	return full * time.Duration(o.rounds(fullRepeats)) / fullRepeats
}

// fullRepeats are the measured steps from which on measurements take their full time.
const fullRepeats = 3

// session is a profile while it is made: how the parts of one measure, and what they share.
type session struct {
	*executor.Workload
	open        func() (executor.Target, error)
	lib         kernels.Library // as that of all targets
	limit       int64
	hostLimit   int64 // bytes of host memory that the device gives, 0: not known
	load        func(Batch) error
	opt         ProfileOptions
	samples     *Samples
	steps, done int
}

// step counts a step.
func (s *session) step() {
	if s.done++; s.opt.Progress != nil {
		s.opt.Progress(s.done, s.steps)
	}
}

// with runs do with an exercise on a fresh target, with room for a measurement of the link in an arena of limit bytes.
func (s *session) with(x *Exercise, probe windows, limit int64, do func(*OpTimer) error) (err error) {
	target, err := s.open()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, target.Device.Close()) }()
	t, err := x.startBeside(target, s.opt.Seed, probe, limit, s.load)
	if err != nil {
		return err
	}
	return do(t)
}
