package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/models/data"
	"plimsoll/planner/pipeline"
)

// PipeSummary is how a pipeline used its devices.
type PipeSummary struct {
	Versions     pipeline.Versions `json:"weight_versions"`
	Microbatches int               `json:"microbatches"`     // of a step
	UpdateSteps  int               `json:"steps_per_update"` // more than 1 where an update takes several minibatches
	Devices      []DeviceSummary   `json:"devices"`
}

// DeviceSummary is the memory of one device, in bytes, as it was laid out.
type DeviceSummary struct {
	Name          string `json:"name"`
	Stages        []int  `json:"stages"`
	PeakBytes     int64  `json:"predicted_peak_bytes"`
	ExtentBytes   int64  `json:"extent_bytes"`
	StaticBytes   int64  `json:"static_bytes"`
	WeightsBytes  int64  `json:"weights_bytes"` // all versions
	MessagesBytes int64  `json:"messages_bytes"`
	WorkingBytes  int64  `json:"working_bytes"`
	InFlightBytes int64  `json:"in_flight_bytes"`
}

// convoy is the loop of a pipeline: between its steps the pipeline is empty. Of a flush plan that is after every step. An
// asynchronous plan empties only where it must, at checkpoints and evaluations, and when the run is interrupted: how often that
// is, is part of what is trained.
//
// Invariants: as of loop, with steps counted when their loss is known; the pipeline's weights are those after step steps
// whenever pass returns without an error.
type convoy struct {
	*loop
	x     *pipe.Executor
	feed  *feed
	parts int // microbatches of a step

	// Of the pass that runs, under the lock of the executor's Done.
	stop   context.CancelCauseFunc
	early  map[int]pipe.Result // results of microbatches that follow one still to come
	next   int                 // the microbatch whose result is next
	sum    pipe.Result         // of the step that is next
	since  time.Time
	idle   time.Duration // that the feed had waited for data then
	failed bool
}

// doPipe is Do on several devices.
func (r *Run) doPipe(ctx context.Context) (out *Outcome, err error) {
	on, err := r.Job.Targets()
	if err != nil {
		return nil, err
	}
	defer func() {
		if !errors.As(err, new(*pipe.StuckError)) { // a stream that is stuck would hold Close, too
			err = errors.Join(err, closeTargets(on))
		}
	}()
	out = &Outcome{History: r.Past, Summary: r.pipeSummary()}
	c := &convoy{parts: r.Job.Microbatches, early: map[int]pipe.Result{}}
	if r.From != nil {
		c.next = int(r.From.Step) * c.parts
	}
	// What is on its way when ctx ends is finished, and needs its data.
	if c.feed, err = r.Job.newFeed(context.WithoutCancel(ctx), r.Job.train, c.next); err != nil {
		return nil, err
	}
	defer c.feed.from.Close()
	limits := make([]int64, len(on))
	for i := range limits {
		limits[i] = r.Pipe.Limit
	}
	o := r.Pipe.options()
	o.Feed, o.Seed, o.Rate, o.Limits = c.feed, r.Job.Seed, r.updateRate, limits
	o.Done, o.First, o.Patience = c.told, c.next, r.Pipe.Patience
	c.x, err = pipe.New(r.Job.Work, on, r.Pipe.Costs, r.Pipe.Plan, o)
	if err != nil {
		return nil, err
	}
	if err := r.begin(c.x, out); err != nil {
		return nil, err
	}
	for i := range on {
		out.Pipe.Devices[i].Name = on[i].Device.Info().Name
	}
	out.HostBytes = c.x.HostBytes()
	c.loop = &loop{Run: r, m: c, out: out, step: out.ResumedFrom, saved: -1}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	out.WeightsSHA256, err = hash(c.x)
	return out, err
}

// updateRate returns the learning rate of an update.
func (r *Run) updateRate(update int) float32 { return r.Rate.At(update * r.Pipe.unit()) }

// updateOf returns the update that a step is part of: groups begin where the run has gone on from, whatever plan it had before.
func (r *Run) updateOf(step int) int {
	begun := 0
	if r.From != nil {
		begun = int(r.From.Step)
	}
	unit := r.Pipe.unit()
	return begun/unit + (step-begun)/unit
}

// pipeSummary is what is known of a pipeline before it runs.
func (r *Run) pipeSummary() Summary {
	p := r.Pipe
	extent, _ := p.extent()
	s := Summary{
		Steps: r.Steps, Strategy: p.Plan.Strategy, LimitBytes: p.Limit, PredictedS: p.PredictedSeconds(),
		PredictedPeakBytes: p.PredictedPeak(), ExtentBytes: extent,
		Pipe: &PipeSummary{Versions: p.versions(), Microbatches: r.Job.Microbatches, UpdateSteps: p.unit()},
	}
	for d, m := range p.Needs {
		at := DeviceSummary{
			Stages: []int{}, PeakBytes: m.Peak, ExtentBytes: m.Extent, StaticBytes: m.Static, WeightsBytes: m.Weights,
			MessagesBytes: m.Messages, WorkingBytes: m.Working, InFlightBytes: m.InFlight,
		}
		for i, st := range p.Plan.Stages {
			if slices.Contains(st.Devices, d) {
				at.Stages = append(at.Stages, i)
			}
		}
		s.Pipe.Devices = append(s.Pipe.Devices, at)
	}
	return s
}

// run trains to the last step and evaluates.
func (c *convoy) run(ctx context.Context) error {
	for {
		if err := c.evaluateIfDue(ctx); err != nil {
			return err
		}
		if c.step >= c.Steps {
			c.finish()
			return nil
		}
		if ctx.Err() != nil {
			return c.interrupt()
		}
		before := c.step
		if err := c.pass(ctx, c.segment()); err != nil {
			return c.broken(err)
		}
		if c.step > before && c.SavesAfter(c.step) {
			c.save()
		}
	}
}

// segment returns how many steps go through the pipeline from empty to empty.
func (c *convoy) segment() int {
	unit := c.Pipe.unit()
	if c.Pipe.Plan.IsFlush() {
		return unit
	}
	end := c.Steps
	for _, every := range []int{c.Saves.Every, c.EvalEvery} {
		if every > 0 {
			end = min(end, (c.step/every+1)*every)
		}
	}
	return (end - c.step + unit - 1) / unit * unit
}

// pass sends so many steps through the pipeline; fewer when ctx ends meanwhile: those that have begun, and what their updates
// take.
func (c *convoy) pass(ctx context.Context, steps int) error {
	enough := ctx.Done()
	ctx, c.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	defer c.stop(nil)
	start := time.Now()
	c.since, c.idle = start, c.feed.from.Waited()
	err := c.x.RunUntil(ctx, enough, steps*c.parts)
	c.busy += time.Since(start)
	return err
}

// told takes the result of a microbatch; those of several devices may come in another order than they count.
func (c *convoy) told(r pipe.Result) {
	if c.failed {
		return
	}
	c.early[r.Minibatch] = r
	for r, ok := c.early[c.next]; ok; r, ok = c.early[c.next] {
		delete(c.early, c.next)
		if err := c.count(r); err != nil {
			c.failed = true
			c.stop(err)
			return
		}
	}
}

// count adds the next microbatch to its step.
func (c *convoy) count(r pipe.Result) error {
	if !finite(r.Loss) {
		return c.notFinite(r)
	}
	c.next++
	c.sum.Loss += r.Loss / float64(c.parts)
	c.sum.Correct += r.Correct
	if c.next%c.parts != 0 {
		return nil
	}
	sum := c.sum
	c.sum = pipe.Result{}
	return c.add(sum)
}

// add counts a step.
func (c *convoy) add(sum pipe.Result) error {
	now, idle := time.Now(), c.feed.from.Waited()
	seconds, waited := now.Sub(c.since).Seconds(), idle-c.idle
	rec := Record{
		Step: c.step, Loss: Number(sum.Loss), Accuracy: float64(sum.Correct) / float64(c.Job.Images()),
		Rate: float64(c.updateRate(c.updateOf(c.step))), Norm: Number(math.NaN()), Seconds: seconds,
		DataWaitS: waited.Seconds(), PeakBytes: c.Pipe.PredictedPeak(),
	}
	c.since, c.idle = now, idle
	c.waited += waited
	c.step++
	c.times = append(c.times, seconds)
	c.out.History.Steps = append(c.out.History.Steps, rec)
	if c.Record == nil {
		return nil
	}
	return c.Record(rec)
}

// notFinite says where a loss is not finite.
func (c *convoy) notFinite(r pipe.Result) error {
	plan := c.Pipe.Plan
	last, k := len(plan.Stages)-1, plan.Repeats()
	i := slices.IndexFunc(plan.Tasks, func(t pipeline.Task) bool {
		return t.Kind == pipeline.F && t.Stage == last && (t.Shift-r.Minibatch)%k == 0
	})
	return &pipe.TaskError{
		Device: plan.Tasks[i].Device, Task: fmt.Sprintf("F%d", last), Minibatch: r.Minibatch,
		Err: fmt.Errorf("%w: loss %v at step %d: lower --lr", ErrDiverged, r.Loss, c.step),
	}
}

// broken says what stands after a pass that failed.
func (c *convoy) broken(err error) error {
	if safe, dir := c.safe(); dir && safe > 0 {
		return fmt.Errorf("%w; the checkpoint of step %d stands: the same command with --resume goes on from there", err, safe)
	}
	return err
}

// safe returns the steps of the latest checkpoint, and whether the run has a folder for them.
func (c *convoy) safe() (steps int, dir bool) {
	if c.From != nil {
		steps = int(c.From.Step)
	}
	return max(c.saved, steps), c.Saves.Dir != nil
}

// Tensors implements trained.
func (c *convoy) Tensors() []executor.Tensor { return c.x.Tensors() }

// Read implements trained. What is not finite is not read, and so not saved: the norm of the gradients, which would have told,
// is not known where they are on several devices.
func (c *convoy) Read(t executor.Tensor, dst []float32) error {
	if err := c.x.Read(t, dst); err != nil {
		return err
	}
	if i := slices.IndexFunc(dst, func(v float32) bool { return !finite(float64(v)) }); i >= 0 {
		return fmt.Errorf("%w: element %d of the %s of %s is %v", ErrDiverged, i, t.Role, t.Name, dst[i])
	}
	return nil
}

// Write implements trained.
func (c *convoy) Write(t executor.Tensor, src []float32) error { return c.x.Write(t, src) }

// Evaluate implements trained: every test sample once.
func (c *convoy) Evaluate(ctx context.Context) (Score, error) {
	var s Score
	batches, err := data.NewLoader(ctx, c.Job.test, 0, 0, 0)
	if err != nil {
		return s, err
	}
	defer batches.Close()
	x := &examiner{from: batches, batch: c.Job.Config.Batch}
	classes := c.Job.Config.Classes
	err = c.x.Evaluate(ctx, x, int(c.Job.test.Steps()), func(_ int, logits []float32) error {
		sheet := x.sheets[0]
		x.sheets = x.sheets[1:]
		for i := range sheet.fresh {
			s.add(logits[i*classes:(i+1)*classes], int(sheet.labels[i]))
		}
		return nil
	})
	return s, err
}

// examiner serves test batches, which come in order, and keeps their labels until the predictions are there.
type examiner struct {
	from   *data.Loader
	batch  int
	sheets []sheet
}

type sheet struct {
	fresh  int
	labels []int32
}

// Images implements pipeline.Feed.
func (x *examiner) Images(_ int, dst []float32) error {
	labels := make([]int32, x.batch)
	fresh, err := x.from.Next(dst, labels)
	if errors.Is(err, io.EOF) {
		panic("BUG: an evaluation asks for more batches than there are")
	}
	x.sheets = append(x.sheets, sheet{fresh, labels})
	return err
}

// Labels implements pipeline.Feed; an evaluation asks for none.
func (x *examiner) Labels(int, []int32) error { return nil }
