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
	"strings"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/receipt"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
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
	table    string // file for the tables of commands
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
	cmd.Flags().StringVar(&f.file, "profile", "", "chain file of this model (default: measured once, and kept)")
	optionsOf(cmd).BoolVar(&f.none, "profile.no-cache", false, "")
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
			err = fmt.Errorf("%w; --batch %d is divided into %d parts: the chain is that of %s", err, job.Images(), job.Images()/job.Config.Batch, job.Samples(job.Config.Batch))
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
		a.note("measured before: %s (--option profile.no-cache measures again)", job.Model)
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
	cmd := command("train", "Measure, plan and train under a memory limit", `Measure a model, plan its training step under a memory limit, train along the plan, and evaluate.

--memory limits the device's arena: weights, gradients, optimizer state and activations together. Whatever the limit, the
trained weights are the same bits.`, nil)
	cmd.Example = `  plimsoll train -m resnet32 --data digits --memory 40% --steps 600 --out runs/a
  plimsoll train -m gpt2-4-64 --memory 35% --batch 16 --steps 200 --optimizer adamw
  plimsoll train -m resnet20 --data glyphs --batch 64 --devices "cpu*4" --strategy 1f1b-flush`
	setDetails(cmd, trainDetails)
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
			if err := f.prepare(cmd); err != nil {
				return err
			}
			return a.runTrain(cmd.Context(), f)
		})
	}
	return cmd
}

// trainDetails is the end of the help text.
const trainDetails = `A share of --memory is one of the peak of store-all, the step that recomputes nothing.

The folder of --out gets chain.json, plan.json, log.jsonl (a line a step), checkpoints, final.safetensors, report.html and trace.json.
--resume continues a run that was interrupted or killed from its last checkpoint. The run ends with the same bits, also under another
limit or strategy. Ctrl-C finishes the step and saves a checkpoint; a second one exits at once.

--accumulate N runs the batch on one device in N parts and adds up their gradients. The limit is then that of a part's step, which is
planned. BatchNorm sees parts, so the weights differ from the weights of whole batches.

--offload-state keeps the optimizer's state, or weights too, in page-locked host memory. They pass through a window of the arena, and
the bits stay the same.

Several --devices train as a pipeline. The limit is that of each device's arena. A share is one of the largest need of a device under a
plan without a limit. With a flush (--strategy gpipe, 1f1b-flush, ...) --batch is divided into --microbatches, and the weights are the
same bits on any number of devices. Without a flush, each batch is a step and its weights may be stale. The pipeline drains at
checkpoints, evaluations and Ctrl-C; draining at other steps changes the result. --plan runs a plan file, ours or not, when it keeps the
rules that plimsoll check knows.

With --world the devices belong to several processes, on one machine or on many. Launchers start them with the same flags: plimsoll
launch, torchrun, srun, mpiexec, Kubernetes. Rank 0 measures, plans, logs and writes. The weights have the bits of one process with all
devices. --out is on shared storage or on a disk of each machine: each process writes its stages, and --resume finds them.

More: docs/training.md, docs/pipelines.md, docs/machines.md`

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
	s.Var(&f.memory, "memory", "memory limit of the arena: 4GiB, or a share as 40%")
	s.StringVar(&f.strategy, "strategy", auto.Name, "strategy (plimsoll plan --list shows them)")
	s.IntVar(&f.steps, "steps", 100, "training steps")
	s.Float64Var(&f.clip, "clip-norm", 0, "clip the norm of all gradients together to this (default: no clipping)")
	s.IntVar(&f.eval, "eval-every", 0, "steps between evaluations on held-out samples (default: the end)")
	s.Var(newOneOf(&f.onNaN, "stop", "skip"), "on-nan", "when a step is not finite: stop, or skip it")
	s.StringVar(&f.init, "init", "", "safetensors file to begin with, named as torchvision or Hugging Face do")
	s.StringVar(&f.metrics, "metrics", "", "serve Prometheus metrics at this address, as in 127.0.0.1:9090")
	f.keep.register(cmd)
	f.pipe.register(cmd)
	f.world.register(cmd)
	debugOf(cmd).StringVar(&f.table, "table", "", "")
	a.registerVerbose(cmd)
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
	if err := writeTables(f.table, r); err != nil {
		return err
	}
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
	return firstOf(out.Unsaved, failure, a.print(figures, func(w io.Writer) { figures.write(w, r, a.verbose) }))
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
	f.job.start = f.init
	if err := f.findBatch(ctx, a, p); err != nil {
		return nil, err
	}
	spec, err := f.job.spec()
	if err != nil {
		return nil, err
	}
	spec.Choices = place.choices()
	job, err := f.processes.OpenJob(ctx, spec)
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
	return firstOf(f.keep.check(), f.link.check(), writable("--debug table", f.table))
}

// findBatch replaces --batch max by a number.
func (f *trainFlags) findBatch(ctx context.Context, a *app, p *planning) error {
	if !f.job.largest {
		return nil
	}
	switch {
	case f.pipe.devices > 0 || f.job.parts > 0:
		return usage(errors.New("--batch max is for one device and whole batches: give a number of samples"))
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
		a.note("auto: %s", strings.ReplaceAll(s.report.Why(), "\n", "\nauto: "))
	}
	return err
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
