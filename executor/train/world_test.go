package train

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plimsoll/executor/checkpoint"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/freeport/freeporttest"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
	"plimsoll/runtime/world"
	"plimsoll/runtime/world/tcp"
)

// inWorld lets as many processes as do has do something together; all of them are this one.
func inWorld(t *testing.T, do ...func(w *World) error) []error {
	t.Helper()
	address := freeporttest.Address(t)
	errs := make([]error, len(do))
	var all sync.WaitGroup
	for rank, f := range do {
		all.Go(func() {
			doing := &Doing{}
			m, err := world.Join(t.Context(), world.Options{Identity: world.Identity{Rank: rank, Size: len(do), Address: address}, Timeout: time.Minute, Status: doing.String})
			if errs[rank] = err; err != nil {
				return
			}
			w, err := NewWorld(t.Context(), m, tcp.New(m), 1, doing)
			if err == nil {
				err = f(w)
			}
			if errs[rank] = err; err != nil && !errors.Is(err, ErrInterrupted) {
				w.Fail(err)
				return
			}
			errs[rank] = errors.Join(err, w.Leave(t.Context()))
		})
	}
	all.Wait()
	return errs
}

// member returns the run of a process whose only device is one of those of a plan.
func member(t *testing.T, r *Run, w *World) *Run {
	t.Helper()
	q := *r
	spec := r.Job.Spec
	spec.Devices, spec.Config.Batch = "cpu", r.Job.Images()
	q.Job, q.World = opened(t, spec), w
	return &q
}

// TestJobsOfOneWorldRepeatChoices: whatever the processes would choose, their kernels' libraries are told the choices of rank 0.
func TestJobsOfOneWorldRepeatChoices(t *testing.T) {
	t.Parallel()
	open := func(w *World) error {
		s := tiny(8)
		s.Kernels.Choices = fmt.Appendf(nil, `["of rank %d"]`, w.Rank())
		j, err := w.OpenJob(t.Context(), s)
		if err == nil && string(j.Kernels.Choices) != `["of rank 0"]` {
			t.Errorf("rank %d repeats %s", w.Rank(), j.Kernels.Choices)
		}
		return err
	}
	for _, err := range inWorld(t, open, open, open) {
		must(t, err)
	}
}

// A result that comes before a process has begun the pass that counts it waits for that.
func TestResultsThatComeEarly(t *testing.T) {
	t.Parallel()
	for _, err := range inWorld(t, func(w *World) error {
		c := &pipelineEngine{parts: 2, current: currentPass{early: map[int]pipe.Result{}}, states: &states{}}
		m := newMembers(c, w)
		stop := m.listen(t.Context())
		defer stop()
		later := make(chan struct{})
		hear(w, "later", func(_, _ int) { close(later) })
		m.tell(pipe.Result{Loss: 3})
		w.post("later", 0)
		<-later
		if c.current.next != 0 {
			t.Errorf("%d results are counted before any pass", c.current.next)
		}
		m.results()
		m.await(1)
		if c.current.next != 1 || c.current.sum.Loss != 3 {
			t.Errorf("%d results are counted, loss %v", c.current.next, c.current.sum.Loss)
		}
		return nil
	}) {
		must(t, err)
	}
}

// Processes that are asked to stop, each at a time of its own, save one checkpoint. If as many processes go on from it, they end as a run
// that nobody has stopped. Each of them has the losses and evaluations of one process.
// If processes stop at different times, only this test finds an asynchronous run with different checkpoints.
func TestRunsOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		strategy     string
		microbatches int
	}{{"1f1b-flush", 4}, {"contiguous", 1}} {
		const devices, steps = 3, 24
		one := pipeRun(t, piped(t, devices, c.microbatches, 8), c.strategy, devices, steps)
		one.EvalEvery, one.Saves = 8, Saves{Dir: checkpoint.NewDir(t.TempDir(), 3), Every: 5} // where it empties is part of what is trained
		want := done(t, one)
		r := rand.New(rand.NewPCG(1, 7))
		for try := range 3 {
			dir := checkpoint.NewDir(filepath.Join(t.TempDir(), fmt.Sprint(try)), 3)
			var processes []func(w *World) error
			for range devices {
				wait := time.Duration(r.IntN(60)) * time.Millisecond
				processes = append(processes, func(w *World) error {
					ctx, cancel := context.WithTimeout(t.Context(), wait)
					defer cancel()
					q := member(t, one, w)
					q.Saves = Saves{Dir: dir, Every: 5}
					out, err := q.Do(ctx)
					if err == nil {
						return sameRun(want, out)
					}
					return err
				})
			}
			errs := inWorld(t, processes...)
			if errs[0] == nil && errs[1] == nil && errs[2] == nil {
				continue // it was faster
			}
			for rank, err := range errs {
				if !errors.Is(err, ErrInterrupted) || err.Error() != errs[0].Error() {
					t.Fatalf("%s: rank %d: %v, rank 0: %v", c.strategy, rank, err, errs[0])
				}
			}
			found, _, err := dir.Latest()
			must(t, err)
			step := found.Step
			must(t, found.Close())
			processes = processes[:0]
			for range devices {
				processes = append(processes, func(w *World) error {
					q := member(t, one, w)
					q.Saves = Saves{Dir: dir, Every: 5}
					c, err := dir.Open(step)
					if err != nil {
						return err
					}
					defer func() { _ = c.Close() }()
					if _, err := q.Resume(c); err != nil {
						return err
					}
					q.Past = History{Steps: slices.Clone(want.History.Steps[:step])}
					out, err := q.Do(t.Context())
					if err == nil && one.Plan.IsFlush() && out.WeightsSHA256 != want.WeightsSHA256 {
						err = fmt.Errorf("weights %s, want %s", out.WeightsSHA256, want.WeightsSHA256)
					}
					return err
				})
			}
			for rank, err := range inWorld(t, processes...) {
				if err != nil {
					t.Errorf("%s: rank %d: %v", c.strategy, rank, err)
				}
			}
		}
	}
}

// If a run goes on from a step that was evaluated, no process evaluates that step again, though only rank 0 has the log.
func TestEvaluationsAreMadeOnce(t *testing.T) {
	t.Parallel()
	one := pipeRun(t, piped(t, 2, 2, 8), "gpipe", 2, 4)
	one.EvalEvery = 2
	want := done(t, one)
	dir := checkpoint.NewDir(t.TempDir(), 3)
	train := func(steps int, from int64) []error {
		each := func(w *World) error {
			q := member(t, one, w)
			q.Steps, q.Saves = steps, Saves{Dir: dir, Every: 2}
			if from > 0 {
				c, err := dir.Open(from)
				if err != nil {
					return err
				}
				defer func() { _ = c.Close() }()
				if _, err := q.Resume(c); err != nil {
					return err
				}
			}
			if w.Rank() == 0 {
				q.Past = History{Steps: slices.Clone(want.History.Steps[:from]), Evals: slices.Clone(want.History.Evals[:from/2])}
			}
			out, err := q.Do(t.Context())
			if err == nil && out.History.Evals[len(out.History.Evals)-1].Correct != want.History.Evals[steps/2-1].Correct {
				err = fmt.Errorf("evaluations %v, want %v", out.History.Evals, want.History.Evals)
			}
			return err
		}
		return inWorld(t, each, each)
	}
	for _, err := range append(train(2, 0), train(4, 2)...) {
		must(t, err)
	}
}

// cut is a transport by which no evaluation gets through.
type cut struct {
	world.Transport
	ways []world.Way
}

func (c *cut) Open(ways []world.Way) error {
	c.ways = ways
	return c.Transport.Open(ways)
}

func (c *cut) Receive(way int, dst runtime.Span) (runtime.Launch, error) {
	if strings.Contains(c.ways[way].Name, "evaluation") {
		return host.Func{Name: "receive", Do: func() error { return errors.New("the cable is cut") }}, nil
	}
	return c.Transport.Receive(way, dst)
}

// A process that fails while all evaluate is named, without the streams that waited for it, and so is the checkpoint that stands; no
// other is tried.
func TestAProcessThatFailsInAnEvaluation(t *testing.T) {
	t.Parallel()
	one := pipeRun(t, piped(t, 2, 2, 8), "gpipe", 2, 4)
	one.EvalEvery = 2
	dir := checkpoint.NewDir(t.TempDir(), 3)
	train := func(w *World) error {
		q := member(t, one, w)
		q.Saves = Saves{Dir: dir, Every: 2}
		q.Saved = func(_ int, err error) { must(t, err) }
		c, err := dir.Open(2)
		if err != nil {
			q.Steps = 2
		} else if _, err := q.Resume(c); err != nil {
			return err
		} else {
			defer func() { _ = c.Close() }()
		}
		_, err = q.Do(t.Context())
		return err
	}
	for _, err := range inWorld(t, train, train) {
		must(t, err)
	}
	errs := inWorld(t, train, func(w *World) error {
		w.transport = &cut{Transport: w.transport}
		return train(w)
	})
	want := regexp.MustCompile(`^rank 1 on \S+ failed: .*the cable is cut.*; the checkpoint of step 2 stands: the same command with --resume goes on from there$`)
	if e, ok := errors.AsType[*world.RankError](errs[0]); !ok || e.Rank != 1 || !want.MatchString(errs[0].Error()) {
		t.Errorf("%v", errs)
	}
}

// sameRun compares what two runs have trained and logged.
func sameRun(want, got *Outcome) error {
	if want.WeightsSHA256 != got.WeightsSHA256 || len(want.History.Steps) != len(got.History.Steps) || len(want.History.Evals) != len(got.History.Evals) {
		return fmt.Errorf("weights %s, %d steps, %d evaluations; want %s, %d, %d", got.WeightsSHA256, len(got.History.Steps), len(got.History.Evals),
			want.WeightsSHA256, len(want.History.Steps), len(want.History.Evals))
	}
	for i, s := range want.History.Steps {
		if g := got.History.Steps[i]; g.Loss != s.Loss || g.Accuracy != s.Accuracy {
			return fmt.Errorf("step %d: %+v, want %+v", i, g, s)
		}
	}
	return nil
}

// A process that fails ends all others, which say which one and why.
func TestAProcessThatFails(t *testing.T) {
	t.Parallel()
	one := pipeRun(t, piped(t, 2, 2, 8), "gpipe", 2, 1000)
	errs := inWorld(t, func(w *World) error {
		_, err := member(t, one, w).Do(t.Context())
		return err
	}, func(w *World) error {
		q := member(t, one, w)
		q.Record = func(r Record) error {
			if r.Step == 3 {
				return errors.New("it has had enough")
			}
			return nil
		}
		_, err := q.Do(t.Context())
		return err
	})
	e, ok := errors.AsType[*world.RankError](errs[0])
	if !ok || e.Rank != 1 || errs[1] == nil {
		t.Errorf("%v", errs)
	}
}
