package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/internal/visible"
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

func (a *app) newStatus(r *train.Run) *status {
	return &status{
		app: a, steps: r.Steps, job: r.Job, limit: r.Plan.Limit, live: a.err.terminal() && !a.quiet,
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
	text := fmt.Sprintf("step %d of %d: loss %.4f, accuracy %.1f%%, %s, %s left",
		s.seen, s.steps, float64(r.Loss), 100*r.Accuracy, s.job.Rate(float64(s.job.Images())/perStep), units.Seconds(perStep*float64(s.steps-s.seen)))
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
	s.app.note("after %s: loss %.4f, accuracy %s", units.Count(e.Done, "step"), float64(e.Loss), s.job.Held(float64(e.Loss), e.Accuracy, e.MeanIoU, e.Samples))
}

// saved shows an attempt to save a checkpoint. One that failed is said even with --quiet.
func (s *status) saved(step int, err error) {
	if err != nil {
		s.app.warn("after step %d: %s", step, failureOf("", err).Error)
	}
}

// erase is what a terminal takes to begin its line anew.
const erase = "\r\x1b[K"

// draw rewrites the last line of a terminal.
func (a *app) draw(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line = visible.Text(line)
	if width := a.err.width(); width > 1 { // some say 0
		line = string([]rune(line)[:min(len([]rune(line)), width-1)])
	}
	fmt.Fprint(a.err, erase+line)
	a.drawn = true
}

// note writes a line about the run to standard error.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		a.warn(format, args...)
	}
}

// noteWhenEnded notes something when the context ends. What it returns is called at the end of what the context is for, and waits
// for a note that has begun.
func (a *app) noteWhenEnded(ctx context.Context, text string) (done func()) {
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		a.note("%s", text)
	})
	return func() {
		if !stop() {
			<-said
		}
	}
}

// warn writes a line to standard error, --quiet or not.
func (a *app) warn(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line := visible.Clip(visible.Lines(fmt.Sprintf(format, args...)))
	if a.drawn {
		line, a.drawn = erase+line, false
	}
	fmt.Fprintln(a.err, strings.TrimRight(line, "\n"))
}
