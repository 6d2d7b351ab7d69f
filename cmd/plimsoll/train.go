package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/executor/train"
)

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

--offload-state optimizer is --strategy zero-offload: page-locked host memory has the optimizer's state, and the host updates the weights.
--offload-state weights is --strategy layer-window: the weights of two layers are on the device at a time, and the host has all others.

Several --devices train as a pipeline. The limit is that of each device's arena. A share is one of the largest need of a device under a
plan without a limit. With a flush (--strategy gpipe, 1f1b-flush, ...) --batch is divided into --microbatches, and the weights are the
same bits on any number of devices. Without a flush, each batch is a step and its weights may be stale. The pipeline drains at
checkpoints, evaluations and Ctrl-C; draining at other steps changes the result. --plan runs a plan file, ours or not, when it keeps the
rules that plimsoll check knows.

With --world the devices belong to several processes, on one machine or on many. Launchers start them with the same flags: plimsoll
launch, torchrun, srun, mpiexec, Kubernetes. Rank 0 measures, plans, logs and writes. The weights have the bits of one process with all
devices. --out is on shared storage or on a disk of each machine: each process writes its stages, and --resume finds them.

More: docs/training.md, docs/pipelines.md, docs/machines.md`

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
	if r, err = a.planOpened(ctx, f, place, r, p); err != nil {
		return err
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
	if figures.Receipt, err = bench.RunReceipt(r, out); err != nil {
		return firstOf(out.Unsaved, err)
	}
	// What could not be written does not keep what was trained from being shown.
	failure := firstOf(lost, place.end(r, out, figures))
	return firstOf(out.Unsaved, failure, a.print(figures, func(w io.Writer) { figures.write(w, r, a.verbose) }))
}

// open opens what is trained.
func (f *trainFlags) open(ctx context.Context, a *app, place *runFolder, p *planning) (*train.Run, error) {
	if f.processes != nil {
		f.job.processes = f.processes.Size()
		f.job.threads, f.job.local = cmp.Or(f.job.threads, f.processes.Threads()), f.processes.Local()
	}
	f.job.microbatches, f.job.peerBandwidth = f.pipe.stepParts(), f.pipe.links.peerBandwidth
	f.job.hostMemory = f.link.memory
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
	cyclic := f.pipe.movesState()
	if cyclic {
		r.HostLimit = 0 // Check takes it for a pipeline's as long as there is no plan
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
	if cyclic {
		r.HostLimit = job.HostLimit(f.link.memory.Bytes)
	}
	return r, a.fits(r)
}
