package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/receipt"
	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// trainFlags are the flags of plimsoll train.
type trainFlags struct {
	job      jobFlags
	rate     rateFlags
	how      measureFlags
	options  strategyFlags
	link     linkFlags
	memory   units.Size
	strategy string
	steps    int
	cache    cacheFlags
	keep     keepFlags
	clip     float64
	eval     int
	onNaN    string
	init     string
	metrics  string
	pipe     trainPipeFlags
	world    worldFlags

	processes   *train.World // nil: this one alone
	memoryGiven bool         // --memory is not the default
}

// cacheFlags say where the measured chain is from.
type cacheFlags struct {
	file string
	none bool
}

func (f *cacheFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "profile", "", "chain file of this model (default: measured, and kept in the user's cache folder)")
	cmd.Flags().BoolVar(&f.none, "no-cache", false, "measure the chain even when a measurement is kept")
}

// chain returns the measured chain of a job, with the link that plans may use.
func (a *app) chain(ctx context.Context, job *train.Job, f cacheFlags, link linkFlags, m train.Measure) (*chain.Chain, error) {
	c, err := a.measured(ctx, job, f, m)
	if err != nil {
		return nil, err
	}
	return link.chain(c)
}

func (a *app) measured(ctx context.Context, job *train.Job, f cacheFlags, m train.Measure) (*chain.Chain, error) {
	if f.file != "" {
		c, err := job.ReadChain(f.file)
		if errors.Is(err, train.ErrOtherModel) && job.Images() > job.Config.Batch {
			err = fmt.Errorf("%w; --batch %d is divided into %d parts: the chain is that of %d images", err, job.Images(), job.Images()/job.Config.Batch, job.Config.Batch)
		}
		return c, usage(err)
	}
	folder, err := profilesFolder()
	if f.none || err != nil { // a user without a home has no cache
		a.note("measuring %s", job.Model)
		return job.Profile(ctx, m)
	}
	c, hit, err := job.Cached(ctx, folder, m)
	if hit {
		a.note("measured before: %s (--no-cache measures again)", job.Model)
	}
	if errors.Is(err, train.ErrNotKept) {
		a.note("%v", err)
		err = nil
	}
	return c, err
}

// profilesFolder is where measured chains are kept.
func profilesFolder() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "plimsoll", "profiles"), err
}

func (a *app) train() *cobra.Command {
	f := &trainFlags{}
	cmd := command("train", "Measure, plan and train under a memory limit", `Measure a model, plan its step under a memory limit, train along the plan, and evaluate on held-out samples.

The limit is that of the device's arena and counts everything in it: weights, gradients, optimizer state, activations. A
share is one of the peak of store-all, the step that recomputes nothing. Whatever the limit and the strategy, the weights
after a step are the same bits.

The folder of --out gets chain.json, plan.json, log.jsonl (a line a step), checkpoints, final.safetensors, report.html and
trace.json. A run that was interrupted or killed goes on from its last checkpoint with --resume and ends with the same bits,
also under another limit or strategy. Ctrl-C finishes the step and saves a checkpoint; a second one exits at once.

On one device, --accumulate N runs the batch in N parts and adds their gradients up: an alternative to a plan, or beside one, for the
limit is then that of a part's step, which is planned. It costs nothing where small batches are as fast as large ones, and is another
computation: BatchNorm sees parts, where a plan's bits are those of the whole batch.

A model whose optimizer state, or whose weights, do not fit beside the activations keeps them in page-locked host memory with
--offload-state: they pass through a window of the arena, and the bits stay the same.

Several --devices train as a pipeline: the limit is that of each device's arena, and a share is one of what the device that
needs most needs of a plan without a limit. With a flush (--strategy gpipe, 1f1b-flush, ...) --batch is divided into
--microbatches, and the weights are the same bits on any number of devices. Otherwise every batch is a step of its own whose
weights may be older: the pipeline empties at checkpoints, evaluations and Ctrl-C, and where it does is part of what is trained.
--plan runs a plan of plimsoll plan, or anybody's, as it is, when it keeps the rules that plimsoll check knows.

With --world the devices are those of several processes, on one machine or on many, which launchers start: plimsoll launch,
torchrun, srun, mpiexec, Kubernetes. Rank 0 measures, plans, logs and writes; the weights are those of one process with all
devices, bit for bit. Every process gets the same flags. --out is on storage that all of them share, or on
disks of their own: each writes what its stages have, and --resume finds out who has what.`, nil)
	cmd.Example = `  plimsoll train -m resnet32 --data digits --memory 40% --steps 600 --out runs/a
  plimsoll train -m resnet20 --data glyphs --batch 64 --memory 200MiB --strategy rotor --steps 1000
  plimsoll train -m resnet20 --data glyphs --devices "cpu*4" --batch 64 --strategy 1f1b-flush --microbatches 8 --steps 1000
  plimsoll train -m resnet20 --data glyphs --devices "cpu*4" --batch 64 --plan p.json --profile c.json --steps 1000
  plimsoll launch -n 4 -- train --world auto -m resnet20 --data glyphs --devices cpu --batch 64 --strategy 1f1b-flush --steps 1000`
	f.register(a, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.world.check(cmd); err != nil {
			return err
		}
		if err := firstOf(f.checkSums(), f.checkDivided()); err != nil {
			return err
		}
		return f.world.within(cmd.Context(), a, f.job.devices, func(w *train.World) error {
			f.processes = w
			if err := firstOf(f.options.check(cmd.Flags()), f.prepare(cmd)); err != nil {
				return err
			}
			return a.runTrain(cmd.Context(), f)
		})
	}
	return cmd
}

func (f *trainFlags) register(a *app, cmd *cobra.Command) {
	f.job.register(a, cmd)
	f.job.registerOffload(cmd)
	f.rate.register(cmd)
	f.how.register(cmd)
	f.options.register(cmd)
	f.options.registerTolerance(cmd)
	f.link.register(cmd)
	f.cache.register(cmd)
	s := cmd.Flags()
	f.memory = units.Size{Share: 1}
	s.Var(&f.memory, "memory", "memory limit of the arena: 4GiB, 512MB, 123, or a share as 40%")
	s.StringVar(&f.strategy, "strategy", auto.Name, "strategy; plimsoll plan --list shows them")
	s.IntVar(&f.steps, "steps", 100, "training steps")
	s.Float64Var(&f.clip, "clip-norm", 0, "clip the gradients to this norm, all of them together (default: no clipping)")
	s.IntVar(&f.eval, "eval-every", 0, "steps between evaluations on held-out samples (default: at the end alone)")
	s.Var(newOneOf(&f.onNaN, "stop", "skip"), "on-nan", "when a step is not finite: stop, or skip it")
	s.StringVar(&f.init, "init", "", "safetensors file with torchvision's or Hugging Face's names: weights to begin with")
	s.StringVar(&f.metrics, "metrics", "", "serve Prometheus metrics at this address, as in 127.0.0.1:9090")
	f.keep.register(cmd)
	f.pipe.register(cmd)
	f.world.register(cmd)
}

func (a *app) runTrain(ctx context.Context, f *trainFlags) (err error) {
	if err := f.bring(ctx, a); err != nil {
		return err
	}
	if a.rank > 0 {
		return a.runFollower(ctx, f)
	}
	listener, err := listen(f.metrics)
	if err != nil {
		return err
	}
	if listener != nil {
		defer func() { _ = listener.Close() }() // once more, when it served
	}
	p, err := f.begin(a)
	if err != nil {
		return err
	}
	run := f.processes.Name()
	place, err := a.openFolder(ctx, &f.keep, f.steps, run)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, place.Close()) }()
	if err := f.tellFolder(ctx, run); err != nil {
		return err
	}
	r, err := f.open(ctx, a, place, p)
	if err != nil {
		return err
	}
	was, err := place.ended(r)
	if err != nil {
		return err
	}
	if was != nil {
		if err := a.tell(ctx, r); err != nil {
			return err
		}
		return a.print(was.Summary, func(w io.Writer) { fmt.Fprint(w, was.Text) })
	}
	if err := a.planRest(ctx, f, place, r, p); err != nil {
		return firstOf(err, closeFrom(r))
	}
	defer func() { _ = closeFrom(r) }() // of a file that was read
	m := newMetrics(r)
	if listener != nil {
		defer m.serve(listener, patience)()
		a.noteMetrics(listener.Addr())
	}
	return a.trainAndWrite(ctx, place, r, m)
}

// runFollower is runTrain of a process other than rank 0, which plans and writes what is not a shard.
func (a *app) runFollower(ctx context.Context, f *trainFlags) (err error) {
	p, err := f.begin(a)
	if err != nil {
		return err
	}
	place, err := f.followFolder(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, place.Close()) }()
	r, err := f.open(ctx, a, nil, p)
	if err != nil {
		return err
	}
	if r.Saves, err = f.keep.follow(place); err != nil {
		return err
	}
	done, err := a.told(ctx, f, r)
	defer func() { _ = closeFrom(r) }() // of a file that was read
	if done || err != nil {
		return err
	}
	_, err = r.Do(ctx)
	return err
}

func closeFrom(r *train.Run) error {
	if r.From == nil {
		return nil
	}
	return r.From.Close()
}

// trainFigures is what train prints as JSON.
type trainFigures struct {
	train.Summary
	Receipt *receipt.Receipt `json:"receipt,omitempty"` // of the step in the middle, on one device
}

// trainAndWrite trains, writes the run's folder and prints the summary.
func (a *app) trainAndWrite(ctx context.Context, place *runFolder, r *train.Run, m *metrics) error {
	log, err := place.begin(r)
	if err != nil {
		return place.unusable(err)
	}
	s := a.newStatus(r)
	r.Record = func(rec train.Record) error {
		m.record(rec)
		s.step(rec)
		return log.add(rec, r.SavesAfter(rec.Step+1))
	}
	r.Evaluated = func(e train.Evaluation) error {
		m.eval(e)
		s.eval(e)
		return log.add(e, false)
	}
	r.Saved = func(step int, err error) {
		m.saved(step, err)
		s.saved(step, err)
	}
	noted := a.noteWhenEnded(ctx, "interrupted: what has begun is finished first; a second signal ends the run at once")
	out, err := r.Do(ctx)
	noted()
	lost := log.close()
	if err != nil {
		return err
	}
	figures := &trainFigures{Summary: out.Summary}
	if r.Pipe == nil {
		if figures.Receipt, err = bench.RunReceipt(r, out); err != nil {
			return firstOf(out.Unsaved, err)
		}
	}
	// What could not be written does not keep what was trained from being shown.
	failure := firstOf(lost, place.end(r, out, figures))
	return firstOf(out.Unsaved, failure, a.print(figures, func(w io.Writer) { figures.write(w, r) }))
}

// write prints a run for people.
func (t *trainFigures) write(w io.Writer, r *train.Run) {
	if t.Pipe != nil {
		writePipeSummary(w, r, &t.Summary)
		return
	}
	writeSummary(w, r, &t.Summary)
	if t.Receipt != nil {
		step := "the step in the middle"
		if r.Job.Parts > 1 {
			step = "the last part of " + step
		}
		fmt.Fprintf(w, "\nwhere the gap between the predicted and the measured time of %s comes from:\n", step)
		_ = bench.RunReceiptTable(t.Receipt).Text(w) // as all that is printed
	}
}

// planning is how a run is measured and planned.
type planning struct {
	choice  *choice // on one device
	rate    train.Rate
	measure train.Measure
}

// begin checks the flags.
func (f *trainFlags) begin(a *app) (p *planning, err error) {
	p = &planning{}
	if f.pipe.devices == 0 {
		if p.choice, err = choose(f.strategy, auto.Options{}); err != nil {
			return nil, err
		}
	}
	if p.rate, err = f.rate.rate(f.job.optimizer, f.steps); err != nil {
		return nil, err
	}
	if p.measure, err = f.how.measure(a.progress("profile")); err != nil {
		return nil, err
	}
	p.measure.Halves = f.pipe.halves()
	return p, f.check()
}

// open opens what is trained.
func (f *trainFlags) open(ctx context.Context, a *app, place *runFolder, p *planning) (*train.Run, error) {
	if f.processes != nil {
		f.job.processes = f.processes.Size()
		f.job.threads, f.job.local = cmp.Or(f.job.threads, f.processes.Threads()), f.processes.Local()
	}
	f.job.microbatches, f.job.peerBandwidth = f.pipe.parts(), f.pipe.links.peerBandwidth
	f.job.onSkip = func(err error) { a.note("passed over: %v", err) }
	if err := f.findBatch(ctx, a, p); err != nil {
		return nil, err
	}
	job, err := f.job.open()
	if err != nil {
		return nil, err
	}
	r := &train.Run{
		Job: job, Steps: f.steps, Rate: p.rate, MaxNorm: float32(f.clip), SkipNotFinite: f.onNaN == "skip", EvalEvery: f.eval,
		Init: f.init, Saves: place.keep(), HostLimit: f.link.memory.Bytes,
	}
	if f.pipe.devices == 0 {
		r.HostLimit = job.HostLimit(r.HostLimit)
		f.options.HostMemory = job.Work.HostRoom(r.HostLimit)
	}
	if r.World = f.processes; r.World != nil {
		if err := f.agree(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return r, a.fits(r)
}

// check refuses what no run can do.
func (f *trainFlags) check() error {
	switch {
	case f.memory.IsZero():
		return usage(fmt.Errorf("--memory is 0: give it, as in --memory 4GiB or --memory 40%%"))
	case !(f.clip >= 0 && f.clip <= math.MaxFloat32):
		return usage(fmt.Errorf("--clip-norm is %v: give a positive number, or 0 for no clipping", f.clip))
	case f.eval < 0:
		return usage(fmt.Errorf("--eval-every is %d: give a number of steps, or 0 for the end alone", f.eval))
	case f.init != "":
		if _, err := os.Stat(f.init); err != nil {
			return usage(fmt.Errorf("--init: %w", err))
		}
	}
	return firstOf(f.keep.check(), f.link.check())
}

// findBatch replaces --batch max by a number.
func (f *trainFlags) findBatch(ctx context.Context, a *app, p *planning) error {
	if !f.job.largest {
		return nil
	}
	switch {
	case f.pipe.devices > 0 || f.job.parts > 0:
		return usage(errors.New("--batch max is for one device and whole batches: give a number of images"))
	case f.memoryGiven && f.memory.Share > 0:
		return usage(fmt.Errorf("--batch max with --memory %v: what is it a share of? give bytes, as in 8GiB, or leave it out to use what the device has", &f.memory))
	}
	f.job.largest = false
	job, err := f.job.open()
	if err != nil {
		return err
	}
	if !f.memoryGiven {
		f.memory, f.memoryGiven = units.Size{Bytes: job.Device.Memory}, true
	}
	limit, err := a.limit(f, job)
	if err != nil {
		return err
	}
	q := train.FitRequest{Limit: limit, Options: f.options.Options}
	q.Options.HostMemory = job.Work.HostRoom(job.HostLimit(f.link.memory.Bytes))
	n, err := job.LargestBatch(ctx, q, planner.KindOf(p.choice.Strategy))
	if err != nil {
		return err
	}
	if n == 0 {
		sample := fmt.Sprintf("image of %d pixels", job.Config.Image)
		if job.Tokens() > 0 {
			sample = fmt.Sprintf("sample of %s", units.Count(job.Tokens(), "token"))
		}
		return noFit{fmt.Errorf("--batch max: not one %s fits in %s", sample, units.Bytes(limit))}
	}
	a.note("--batch max: %s fit in %s (give --batch %d to train the same elsewhere)", job.Samples(n), units.Bytes(limit), n)
	if all := job.Set.TrainLen(); all > 0 && int64(n) > all { // 0: they never end
		a.note("--batch max: all %s of %s", job.Samples(int(all)), job.Data)
		n = int(all)
	}
	f.job.config.Batch = n
	return nil
}

// limit returns the bytes of the arena: --memory, or without it what store-all and the next batch take, as far as the device has that.
func (a *app) limit(f *trainFlags, job *train.Job) (int64, error) {
	all, err := job.StoreAllBytes()
	if err != nil {
		return 0, err
	}
	limit, has := f.memory.Of(all), job.Device.Memory
	switch {
	case !f.memoryGiven && limit <= has:
		return min(limit+job.StagedBytes(), has), nil
	case limit <= has:
		return limit, nil
	case f.memoryGiven:
		return 0, noFit{fmt.Errorf("--memory %v is %s, and %s has %s: give at most that, or leave it out to use all", &f.memory, units.Bytes(limit), job.Device.Name, units.Bytes(has))}
	}
	a.note("store-all takes %s and %s has %s: that is the limit", units.Bytes(all), job.Device.Name, units.Bytes(has))
	return has, nil
}

// planStep plans the step of a run, and notes what auto chose.
func (a *app) planStep(ctx context.Context, r *train.Run, s *choice, f *trainFlags) (err error) {
	r.Plan, err = r.Job.Plan(ctx, r.Chain, s.Strategy, r.Limit, f.options.Options)
	if s.report != nil && err == nil {
		a.note("auto: %s", s.report.Why())
	}
	return err
}

// writeSummary prints a run for people.
func writeSummary(out io.Writer, r *train.Run, s *train.Summary) {
	all, _ := r.Job.StoreAllBytes() // it was planned with
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "trained\t%s on %s, %s of %s, %s\n", r.Job.Model, r.Job.Data, units.Count(s.Steps, "step"), r.Job.Samples(r.Job.Images()), r.Job.Rate(s.ImagesPerS))
	if n := r.Job.Parts; n > 1 {
		fmt.Fprintf(w, "\t%d parts of %s a step, each of which runs the plan\n", n, r.Job.Samples(r.Job.Config.Batch))
	}
	fmt.Fprintf(w, "loss\t%.4f in the last step\n", s.Loss)
	fmt.Fprintf(w, "accuracy\t%s\n", r.Job.Held(float64(s.TestLoss), s.Accuracy, s.MeanIoU, s.TestSamples))
	fmt.Fprintf(w, "limit\t%s, %s of store-all's %s\n", units.Bytes(s.LimitBytes), share(float64(s.LimitBytes), float64(all)), units.Bytes(all))
	fmt.Fprintf(w, "peak\tpredicted %s, measured %s\n", units.ExactBytes(s.PredictedPeakBytes), units.ExactBytes(s.MeasuredPeakBytes))
	if s.StagedBytes > 0 {
		fmt.Fprintf(w, "batches\tas bytes, beside the step before, to %s of the arena\n", units.Bytes(s.StagedBytes))
	}
	writeStep(w, s)
	fmt.Fprintf(w, "data\tsteps waited for it %s of their time\n", share(s.DataWaitShare, 1))
	if i := s.Idle; i != nil {
		fmt.Fprintf(w, "idle\tthe device computed nothing in %s of it: data %s, copies of batches %s, of offloaded bytes %s, the host %s\n",
			share(i.Share, 1), share(i.Data, 1), share(i.Batch, 1), share(i.Copies, 1), share(i.Host, 1))
	}
	writeIncidents(w, s)
	fmt.Fprintf(w, "weights\tsha256 %s\n", s.WeightsSHA256)
	_ = w.Flush() // of a buffer
}

// writeStep prints the time of a step. The simulation does not know the transfers of offloaded state: what they add is
// between nothing hidden and all that can be.
func writeStep(w io.Writer, s *train.Summary) {
	x := s.State
	if x == nil {
		fmt.Fprintf(w, "step\tpredicted %s, measured %s (%s)\n", units.Seconds(s.PredictedS), units.Seconds(s.MeasuredS), schedule.Name(s.Strategy, s.Winner))
		writeDrift(w, s.Drift)
		return
	}
	fmt.Fprintf(w, "step\tpredicted %s without the state's transfers, %s to %s with them, measured %s (%s)\n", units.Seconds(s.PredictedS),
		units.Seconds(x.LeastS), units.Seconds(x.MostS), units.Seconds(s.MeasuredS), schedule.Name(s.Strategy, s.Winner))
	fmt.Fprintf(w, "state\t%s: %s in host memory, a window of %s in the arena\n", offloadedText[x.Offloading], units.Bytes(x.HostBytes), units.Bytes(x.WindowBytes))
	fmt.Fprintf(w, "\t%s to the device and %s back a step, %s of the link; the step waited %s for it\n", units.Bytes(x.ToDeviceBytes),
		units.Bytes(x.ToHostBytes), units.Seconds(x.TransferS), units.Seconds(s.StateWaitS))
}

// writeDrift prints how far the machine went from its profile, and the error of the prediction with and without that.
func writeDrift(w io.Writer, d *train.Drift) {
	if d == nil || d.Ops == 0 {
		return
	}
	fmt.Fprintf(w, "drift\tops beside no copy took %.3f times their costs: with that %s are predicted, error %+.1f%% (%+.1f%% to %+.1f%%), without it %+.1f%%\n",
		d.Factor, units.Seconds(d.PredictedS), 100*d.Error, 100*d.Interval[0], 100*d.Interval[1], 100*d.Without)
}

// offloadedText says for people what is offloaded.
var offloadedText = map[string]string{
	executor.OffloadOptimizer.String(): "the optimizer's", executor.OffloadWeights.String(): "weights and the optimizer's",
}

// writeIncidents prints what does not happen in every run.
func writeIncidents(w io.Writer, s *train.Summary) {
	for _, line := range []struct {
		what string
		n    int
		of   string
	}{
		{"resumed\tafter %s\n", s.ResumedFrom, "step"},
		{"skipped\t%s, whose gradients were not finite\n", s.Skipped, "step"},
		{"bad data\t%s, passed over\n", int(s.BadSamples), "sample"},
		{"saved\t%s\n", s.Checkpoints, "checkpoint"},
		{"not saved\t%s\n", s.CheckpointsFailed, "checkpoint"},
	} {
		if line.n > 0 {
			fmt.Fprintf(w, line.what, units.Count(line.n, line.of))
		}
	}
}

// firstOf returns the first error.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
