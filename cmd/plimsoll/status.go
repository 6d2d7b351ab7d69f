package main

import (
	"fmt"
	"time"

	"plimsoll/executor/train"
	"plimsoll/internal/units"
)

// status shows how far a run is: one line that is rewritten on a terminal, a line now and then elsewhere.
type status struct {
	app         *app
	steps       int
	job         *train.Job
	limit       int64
	live        bool
	every       int // steps between lines, where they are not rewritten
	shown       time.Time
	start       time.Time // of the first step of this process
	first, seen int       // steps done before it, and now; seen is -1 before it
}

// refresh is the time between two drawings of a live line.
const refresh = 100 * time.Millisecond

func newStatus(a *app, r *train.Run) *status {
	return &status{
		app: a, steps: r.Steps, job: r.Job, limit: r.Plan.Limit, live: a.stderr.terminal() && !a.quiet,
		every: max(r.Steps/10, 1), seen: -1,
	}
}

// step shows a step when it is time to.
func (s *status) step(r train.Record) {
	if s.seen < 0 {
		s.first, s.start = r.Step, time.Now().Add(-time.Duration((r.Seconds+r.DataWaitS)*float64(time.Second)))
	}
	s.seen = r.Step + 1
	last := s.seen == s.steps
	switch {
	case s.live && (last || time.Since(s.shown) >= refresh):
		s.shown = time.Now()
		s.app.draw(s.line(r))
	case !s.live && (last || s.seen%s.every == 0):
		s.app.note("%s", s.line(r))
	}
}

// line returns the state of a run in one line, the most important first.
func (s *status) line(r train.Record) string {
	done := s.seen - s.first
	perStep := time.Since(s.start).Seconds() / float64(done)
	accuracy := ""
	if s.job.Config.Loss.Predicts() {
		accuracy = fmt.Sprintf("accuracy %.1f%%, ", 100*r.Accuracy)
	}
	text := fmt.Sprintf("step %d of %d: loss %.4f, %s%s, %s left",
		s.seen, s.steps, float64(r.Loss), accuracy, s.job.Rate(float64(s.job.Images())/perStep), units.Seconds(perStep*float64(s.steps-s.seen)))
	if s.app.verbose {
		text += fmt.Sprintf(", memory %s of %s", units.Bytes(r.PeakBytes), units.Bytes(s.limit))
	}
	if r.Skipped {
		text += "; skipped: the gradients are not finite"
	}
	return text
}

// eval shows an evaluation.
func (s *status) eval(e train.Evaluation) {
	accuracy := ""
	if s.job.Config.Loss.Predicts() {
		accuracy = "accuracy "
	}
	s.app.note("after %s: loss %.4f, %s%s", units.Count(e.Done, "step"), float64(e.Loss), accuracy, s.job.Held(e.Loss, e.Accuracy, e.MeanIoU, e.Samples))
}

// saved shows an attempt to save a checkpoint. One that failed is said even with --quiet.
func (s *status) saved(step int, err error) {
	if err != nil {
		s.app.warn("after step %d: %s", step, failureOf("", err).Error)
	}
}
