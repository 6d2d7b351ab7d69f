package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/stats"
	"plimsoll/planner/pipeline"
)

// pipelineEngine trains on devices that play tables: between its passes the pipeline is empty. In a flush plan that is after every step.
// An asynchronous plan empties only where it must, at checkpoints and evaluations, and when the run is interrupted: how often that is, is
// part of what is trained. Checkpoints are saved in shards while the run goes on (states); along a sequence, in one file between steps.
//
// Invariant: steps are counted when their loss is known; the pipeline's weights are those after step steps whenever pass returns without
// an error.
type pipelineEngine struct {
	*loop
	x      *pipe.Executor
	on     []executor.Target
	feed   *feed
	parts  int            // microbatches of a step
	along  *alongSequence // nil: the plan is no sequence
	states *states
	others *members // the processes of the run; nil: this one is alone
	deaf   func()   // ends hearing what the others tell; nil before that begins
	given  int      // steps behind which a state was last given to be saved
	passed []int    // steps of each segment of a cyclic plan that went through

	current currentPass
	timings [][]pipe.Timing // of the latest steps with a flush
	results int             // of a period that is not whole, without a flush
	periodS float64         // and the times between them
	origins []time.Time     // from which their times count, or from which a pass without a flush does
}

// currentPass is the pass that runs, under its lock: results of other processes come by messages, whenever they do.
type currentPass struct {
	sync.Mutex
	stop   context.CancelCauseFunc
	early  map[int]pipe.Result // results of microbatches that follow one still to come
	next   int                 // the microbatch whose result is next
	sum    pipe.Result         // of the step that is next
	since  time.Time
	idle   time.Duration // that the feed had waited for data then
	failed bool
}

// openPipeline binds the plan to the devices, on which it measures a step with a flush.
func openPipeline(ctx context.Context, l *loop) (*pipelineEngine, error) {
	c := &pipelineEngine{loop: l, parts: l.Job.parts(), current: currentPass{early: map[int]pipe.Result{}}}
	if !l.Plan.IsPipeline() {
		c.along = &alongSequence{}
	}
	if err := c.bind(ctx); err != nil {
		return nil, c.close(err)
	}
	return c, nil
}

func (c *pipelineEngine) bind(ctx context.Context) (err error) {
	r, out := c.Run, c.out
	if c.on, err = r.Job.Targets(); err != nil {
		return err
	}
	c.current.next = c.step * c.parts
	c.states = newStates(r, c.parts, c.step)
	// Minibatches that are in flight when ctx ends still finish, and need their data.
	if c.feed, err = r.Job.newFeed(context.WithoutCancel(ctx), r.Plan.Work, c.current.next); err != nil {
		return err
	}
	c.feed.end = r.Steps * c.parts
	if r.World != nil {
		c.feed.wants, c.others = r.wants, newMembers(c, r.World)
	}
	if c.x, err = pipe.New(r.Plan.Work, c.on, r.Plan.Costs, r.Plan.steps(), c.options(r)); err != nil {
		return err
	}
	if c.others != nil {
		c.deaf = c.others.listen(ctx)
	}
	if err := c.restore(); err != nil {
		return err
	}
	if out.HostBytes = c.x.HostBytes(); c.x.SumsAtOnce() {
		out.Pipe.Sums = "ncclAllReduce"
	}
	return c.devices()
}

// close gives the devices of a run back that ends with err, and returns that and what else goes wrong.
func (c *pipelineEngine) close(err error) error {
	if c.deaf != nil {
		c.deaf()
	}
	if c.feed != nil {
		c.feed.from.Close()
	}
	if errors.As(err, new(*pipe.StuckError)) { // a stream that is stuck would hold Close, too
		return err
	}
	if c.x != nil {
		c.states.end()
		c.x.Saved()
	}
	return errors.Join(err, closeTargets(c.on))
}

// restore puts the weights to start from in place. Where the run begins anew, it removes checkpoints that must not meet those that it saves.
func (c *pipelineEngine) restore() (err error) {
	r := c.Run
	if c.others == nil {
		return r.begin(c.x)
	}
	if err := errors.Join(c.others.past(&c.out.History), r.forget()); err != nil {
		return err
	}
	if r.From == nil {
		return r.begin(c.x)
	}
	r.batches, err = c.others.restore(r.From, c.x)
	return err
}

// devices fills in what devices are called, and what New has measured of them.
func (c *pipelineEngine) devices() error {
	out := c.out
	if c.along != nil {
		c.device()
		return nil
	}
	var names []string
	for i := range c.on {
		names = append(names, c.on[i].Device.Info().Name)
	}
	devices := out.Pipe.Devices
	if c.others != nil {
		if err := c.others.report(devices, names); err != nil {
			return err
		}
	} else {
		for i, name := range names {
			devices[i].Name = name
		}
		for _, a := range c.x.Audited() {
			devices[a.Device].MeasuredPeakBytes = a.PeakBytes
		}
	}
	for _, d := range devices {
		out.MeasuredPeakBytes = max(out.MeasuredPeakBytes, d.MeasuredPeakBytes)
	}
	return nil
}

// device fills in what New has measured of the device of a sequence.
func (c *pipelineEngine) device() {
	for _, a := range c.x.Audited() {
		c.out.MeasuredPeakBytes, c.out.ExtentBytes, c.out.CopiesBytes, c.out.Measured.Live = a.PeakBytes, a.ExtentBytes, a.CopiesBytes, a.Live
	}
	c.out.StagedBytes = c.Plan.Work.StagedBytes()
}

// options returns the options of a run's executor.
func (c *pipelineEngine) options(r *Run) pipe.Options {
	o := r.Plan.options()
	o.Feed, o.Seed, o.Rate, o.NoGraph = c.feed, r.Job.Seed, r.Rate.At, r.Job.NoGraph
	o.Limits, o.HostLimit = slices.Repeat([]int64{r.Plan.Limit}, r.Plan.devices()), r.HostLimit
	if o.Done = c.result; c.others != nil {
		o.Done, o.World = c.others.tell, c.others.describe()
	}
	o.Past = pipe.Past{Minibatches: c.current.next, Updates: r.updates()}
	o.Patience, o.MaxNorm = r.Plan.Patience, r.MaxNorm
	o.Audit = r.Plan.IsFlush()
	o.Timed = &pipe.Timed{Periods: r.Plan.timedPeriods(), Ops: c.along != nil}
	switch {
	case c.along != nil:
		c.feed.early = func(m int) bool { return m/c.parts < r.Steps && !r.crossed(m/c.parts, r.EvalEvery) }
	case r.Saves.Dir != nil:
		o.Save = c.states.save
	}
	return o
}

// rateOf returns the learning rate of the update that a step is part of: the rate of the first of its steps. Updates begin
// where the run has gone on from, whatever plan it had before.
func (r *Run) rateOf(step int) float32 { return r.Rate.At(step - (step-r.begun())%r.Plan.unit()) }

// pass trains a step or, without a flush, all steps up to the next evaluation, and tells what became of checkpoints. Errors: ErrInterrupted, when
// ctx has ended meanwhile.
func (c *pipelineEngine) pass(ctx context.Context) error {
	if c.along != nil {
		return c.trainStep(ctx)
	}
	segments := c.segments()
	err := c.send(ctx, segments)
	if errors.Is(err, pipe.ErrEnough) {
		return ErrInterrupted
	}
	if err != nil {
		return c.broken(err)
	}
	if c.Plan.IsCycle() {
		for _, s := range segments {
			c.passed = append(c.passed, s.Minibatches/c.parts)
		}
	}
	c.told()
	return c.time()
}

// gather waits for checkpoints behind the last step, and returns the weights of all processes and their hash.
func (c *pipelineEngine) gather() (trained checkpoint.Model, sha256 string, err error) {
	c.settle()
	switch {
	case c.along != nil:
		sha256, err = hash(c.x)
		return c.x, sha256, err
	case c.others == nil:
		sha256, err = hash(c.x)
		return c, sha256, err
	}
	if trained, sha256, err = c.others.collect(); err != nil {
		err = c.broken(err)
	}
	return trained, sha256, err
}

// time keeps when the tasks of the latest step ran.
func (c *pipelineEngine) time() error {
	if !c.Plan.stepwise() || c.Steps-c.step >= timedSteps {
		return nil
	}
	tasks, err := c.x.Timings()
	c.timings, c.origins = append(c.timings, tasks), append(c.origins, c.x.Origin())
	return err
}

// measure fills in when tasks ran. With a flush these are the tasks of the step in the middle, and its time is the measured
// one. Without a flush they are those of the end of the run.
func (c *pipelineEngine) measure() (err error) {
	switch {
	case c.along != nil:
		return c.measureDevice(&c.along.idle)
	case c.ran == 0:
		return nil
	case c.Plan.IsCycle():
		return c.measureCycle()
	case !c.Plan.stepwise():
		tasks, err := c.x.Timings()
		if err != nil {
			return err
		}
		c.timings, c.origins = [][]pipe.Timing{tasks}, []time.Time{c.x.Origin()}
	}
	if c.others != nil {
		if c.timings, err = c.others.timings(c.timings); err != nil {
			return err
		}
	}
	if !c.Plan.stepwise() {
		c.out.Tasks = c.timings[0]
	} else {
		c.out.Tasks = c.timings[stats.Middle(c.timings, lastEnd)]
		c.out.MeasuredS = lastEnd(c.out.Tasks)
	}
	c.out.Pipe.Slowest = c.slowest(slices.Concat(c.timings...))
	return c.measureTasks()
}

// slowest returns the task that makes others wait, if one does.
func (c *pipelineEngine) slowest(ran []pipe.Timing) *SlowTask {
	t := slowest(c.Plan, ran)
	if t != nil {
		t.Name = c.out.Pipe.Devices[t.Device].Name
	}
	return t
}

// lastEnd returns when the last task or update has ended.
func lastEnd(tasks []pipe.Timing) (end float64) {
	for _, t := range tasks {
		end = max(end, t.End)
	}
	return end
}

// segments returns the segments that go through the pipeline in one run. For a flush plan that is a step, which is logged,
// and can be interrupted, before the next one begins. For an asynchronous plan it is everything up to an evaluation, from
// checkpoint to checkpoint.
func (c *pipelineEngine) segments() (all []pipe.Segment) {
	flush := c.Plan.stepwise()
	for step := c.step; ; {
		n := c.Plan.unit()
		if !flush {
			n = c.segment(step)
		}
		step += n
		all = append(all, pipe.Segment{Minibatches: n * c.parts, Save: c.Saves.Dir != nil && c.SavesAfter(step)})
		if flush || step >= c.Steps || c.crossed(step, c.EvalEvery) {
			return all
		}
	}
}

// segment returns how many steps go through the pipeline from empty to empty, behind so many.
func (c *pipelineEngine) segment(done int) int {
	unit, end := c.Plan.unit(), c.Steps
	for _, every := range []int{c.Saves.Every, c.EvalEvery} {
		if every > 0 {
			end = min(end, (done/every+1)*every)
		}
	}
	return (end - done + unit - 1) / unit * unit
}

// told tells what became of checkpoints.
func (c *pipelineEngine) told() {
	for _, a := range c.states.take() {
		c.attempted(a.step, a.err)
	}
}

// settle waits for the checkpoints that are being saved.
func (c *pipelineEngine) settle() {
	c.x.Saved()
	if c.others != nil && c.given > 0 {
		c.states.settle(c.given)
	}
	c.told()
}

// save saves the state of an empty pipeline, unless that is done.
func (c *pipelineEngine) save() {
	if c.along != nil {
		c.attempted(c.step, c.Saves.Dir.Save(c.x, c.meta(int64(c.step), c.x.Updates())))
		return
	}
	if c.settle(); c.saved == c.step {
		return
	}
	c.given = c.step
	if err := c.x.Save(context.Background()); err != nil {
		c.attempted(c.step, err)
	}
	c.settle()
}

// send sends segments through the pipeline; fewer steps when ctx ends meanwhile: those that have begun, and what their updates
// take.
func (c *pipelineEngine) send(ctx context.Context, segments []pipe.Segment) error {
	enough, within := ctx.Done(), context.WithoutCancel(ctx)
	if c.others != nil { // they agree on an early end
		enough, within = nil, ctx
	}
	ctx, stop := context.WithCancelCause(within)
	defer stop(nil)
	start, first := c.start(stop)
	if c.others != nil {
		c.others.results()
	}
	err := c.x.RunUntil(ctx, enough, segments...)
	c.busy += time.Since(start)
	if c.others != nil && err == nil {
		c.others.await(c.x.Done())
		err = context.Cause(ctx)
	}
	for _, s := range segments {
		if s.Save && first < c.step {
			c.given = min(first+s.Minibatches/c.parts, c.step)
		}
		first += s.Minibatches / c.parts
	}
	return err
}

// start begins to count what comes of a pass, from this time and step on.
func (c *pipelineEngine) start(stop context.CancelCauseFunc) (start time.Time, first int) {
	p := &c.current
	p.Lock()
	defer p.Unlock()
	p.stop, p.since, p.idle = stop, time.Now(), c.feed.from.Waited()
	return p.since, c.step
}

// result takes the result of a microbatch; those of several devices may come in another order than they count.
func (c *pipelineEngine) result(r pipe.Result) {
	p := &c.current
	p.Lock()
	defer p.Unlock()
	if p.failed {
		return
	}
	c.told()
	p.early[r.Minibatch] = r
	for r, ok := p.early[p.next]; ok; r, ok = p.early[p.next] {
		delete(p.early, p.next)
		if err := c.count(r); err != nil {
			p.failed = true
			p.stop(err)
			return
		}
	}
}

// count adds the next microbatch to its step. The norm is known with the last one.
func (c *pipelineEngine) count(r pipe.Result) error {
	if bad := r.Skipped || !finite(r.Loss); bad && !c.SkipNotFinite {
		return c.notFinite(r)
	}
	p := &c.current
	p.next++
	p.sum.Norm, p.sum.Skipped = r.Norm, r.Skipped
	p.sum.Loss += r.Loss
	p.sum.Correct += r.Correct
	p.sum.Counted += r.Counted
	if p.next%c.parts != 0 {
		return nil
	}
	sum := p.sum
	if p.sum = (pipe.Result{}); c.along != nil {
		c.along.sum = &sum
		return nil
	}
	return c.add(sum)
}

// record returns the record of a step.
func (c *pipelineEngine) record(sum pipe.Result) Record {
	return Record{
		Step: c.step, Loss: Number(sum.Loss / float64(c.parts)), Accuracy: Number(accuracy(c.Job.Config.Loss, sum.Correct, sum.Counted)),
		Rate: float64(c.rateOf(c.step)), Norm: Number(sum.Norm), Skipped: sum.Skipped, PeakBytes: c.Plan.PredictedPeak(),
	}
}

// add adds what a step gave and took.
func (c *pipelineEngine) add(sum pipe.Result) error {
	now, idle := time.Now(), c.feed.from.Waited()
	seconds, waited := now.Sub(c.current.since).Seconds(), idle-c.current.idle
	rec := c.record(sum)
	rec.Seconds, rec.DataWaitS = seconds, waited.Seconds()
	c.current.since, c.current.idle = now, idle
	c.waited += waited
	c.addTime(seconds)
	if err := c.loop.add(rec); err != nil {
		return err
	}
	c.tellCounted()
	return nil
}

// addTime counts the time between two results. If a plan has several minibatches a period, their results come close upon each other, and it
// counts the mean of each period.
func (c *pipelineEngine) addTime(seconds float64) {
	n := c.Plan.Repeats()
	if c.Plan.IsFlush() {
		n = 1
	}
	if c.results, c.periodS = c.results+1, c.periodS+seconds; c.results == n {
		c.recent.Add(&executor.Times{Sequence: c.periodS / float64(n)}, 0)
		c.results, c.periodS = 0, 0
	}
}

// tellCounted says that a step is counted, to all processes when whoever logs has logged it.
func (c *pipelineEngine) tellCounted() {
	switch {
	case c.others == nil:
		c.states.count(c.step)
	case c.others.Rank() == 0 && c.Saves.Dir != nil:
		c.others.post(countedTopic, c.step)
	}
}

// notFinite says where a loss is not finite, or that the gradients alone are not.
func (c *pipelineEngine) notFinite(r pipe.Result) error {
	if c.along != nil {
		return &notFiniteError{r}
	}
	plan := c.Plan
	advice := "lower --lr"
	if plan.IsFlush() {
		advice += ", give --clip-norm, or pass over such steps with --on-nan skip"
	}
	if finite(r.Loss) {
		return fmt.Errorf("%w: norm %v at step %d, where every loss is finite: %s", ErrDiverged, r.Norm, c.step, advice)
	}
	last, k := len(plan.Stages)-1, plan.Repeats()
	i := slices.IndexFunc(plan.Tasks, func(t pipeline.Task) bool {
		return t.Kind == pipeline.F && t.Stage == last && (t.Shift-r.Minibatch)%k == 0
	})
	return &pipe.TaskError{
		Device: plan.Tasks[i].Device, Task: fmt.Sprintf("F%d", last), Minibatch: r.Minibatch,
		Err: fmt.Errorf("%w: loss %v at step %d: %s", ErrDiverged, r.Loss, c.step, advice),
	}
}

// broken says what stands after a pass that failed.
func (c *pipelineEngine) broken(err error) error {
	c.states.end()
	if !errors.As(err, new(*pipe.StuckError)) {
		c.settle()
	}
	if safe, dir := c.safe(); dir && safe > 0 {
		return fmt.Errorf("%w; the checkpoint of step %d stands: the same command with --resume goes on from there", err, safe)
	}
	return err
}

// safe returns the steps of the latest checkpoint, and whether the run has a folder for them.
func (c *pipelineEngine) safe() (steps int, dir bool) {
	return max(c.saved, c.begun()), c.Saves.Dir != nil
}

// Tensors implements checkpoint.Model.
func (c *pipelineEngine) Tensors() []executor.Tensor { return c.x.Tensors() }

// Read implements checkpoint.Model. A tensor that is not finite is an error, so that it is not saved.
func (c *pipelineEngine) Read(t executor.Tensor, dst []float32) error {
	return finiteSource{c.x}.Read(t, dst)
}

// Write implements checkpoint.Model.
func (c *pipelineEngine) Write(t executor.Tensor, src []float32) error { return c.x.Write(t, src) }

// Evaluate scores every test sample once.
func (c *pipelineEngine) Evaluate(ctx context.Context) (Score, error) {
	if c.others == nil {
		return c.Job.score(ctx, c.x, c.Plan.Work)
	}
	s, err := c.Job.score(c.others.Context(), c.x, c.Plan.Work) // nothing in a process without the last stage
	if cause := context.Cause(c.others.Context()); err != nil && cause != nil {
		return s, c.broken(cause)
	}
	if err != nil {
		return s, err
	}
	all, err := gather(c.others.Context(), c.others.World, s)
	for _, of := range all {
		if of.Samples > 0 { // of the last stage
			s = of
		}
	}
	return s, err
}
