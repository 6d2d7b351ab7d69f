package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/report"
	"plimsoll/executor"
	"plimsoll/executor/commands"
	"plimsoll/executor/train"
	"plimsoll/internal/atomicfile"
	"plimsoll/internal/units"
	"plimsoll/planner/residency"
)

func newTrainCommand(a *app) *cobra.Command {
	c := &trainCommand{app: a}
	cmd := command("train", "Measure, plan and train under a memory limit", `Measure a model, plan its training step under a memory limit, train along the plan, and evaluate.

--memory limits the device's arena: weights, gradients, optimizer state and activations together. Whatever the limit, the
trained weights are the same bits.`, nil)
	cmd.Example = `  plimsoll train -m resnet32 --data digits --memory 40% --steps 600 --out runs/a
  plimsoll train -m gpt2-4-64 --memory 35% --batch 16 --steps 200 --optimizer adamw
  plimsoll train -m resnet20 --data glyphs --batch 64 --devices "cpu*4" --strategy 1f1b-flush`
	setDetails(cmd, trainDetails)
	c.register(a, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.world.check(cmd); err != nil {
			return err
		}
		if err := firstOf(c.checkSums(), c.checkDivided()); err != nil {
			return err
		}
		return c.world.within(cmd.Context(), a, c.job.devices, func(w *train.World) error {
			c.processes = w
			if err := c.prepare(cmd); err != nil {
				return err
			}
			return c.run(cmd.Context())
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
On several devices --offload-state optimizer is for schedules with a flush.

Several --devices train as a pipeline. The limit is that of each device's arena. A share is one of the largest need of a device under a
plan without a limit. With a flush (--strategy gpipe, 1f1b-flush, ...) --batch is divided into --microbatches, and the weights are the
same bits on any number of devices. Without a flush, each batch is a step and its weights may be stale. The pipeline drains at
checkpoints, evaluations and Ctrl-C; draining at other steps changes the result. --plan runs a plan file, ours or not, when it keeps the
rules that plimsoll check knows.

With --world the devices belong to several processes, on one machine or on many. Launchers start them with the same flags: plimsoll
launch, torchrun, srun, mpiexec, Kubernetes. Rank 0 measures, plans, logs and writes. The weights have the bits of one process with all
devices. --out is on shared storage or on a disk of each machine: each process writes its stages, and --resume finds them.

More: docs/training.md, docs/pipelines.md, docs/machines.md`

func (c *trainCommand) run(ctx context.Context) (err error) {
	if err := c.bringRun(ctx); err != nil {
		return err
	}
	if c.rank > 0 {
		return c.runFollower(ctx)
	}
	listener, err := listen(c.metrics)
	if err != nil {
		return err
	}
	if listener != nil {
		defer func() { _ = listener.Close() }() // once more, when it served
	}
	p, err := c.begin()
	if err != nil {
		return err
	}
	run := c.processes.Name()
	place, err := openFolder(ctx, c.app, &c.keep, c.steps, run)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, place.Close()) }()
	if err := c.tellFolder(ctx, run); err != nil {
		return err
	}
	r, err := c.open(ctx, place, p)
	if err != nil {
		return err
	}
	was, err := place.ended(r)
	if err != nil {
		return err
	}
	if was != nil {
		if err := tell(ctx, r); err != nil {
			return err
		}
		return c.print(was.Summary, func(w io.Writer) { fmt.Fprint(w, was.Text) })
	}
	if r, err = c.planOpened(ctx, place, r, p); err != nil {
		return err
	}
	defer func() { _ = closeFrom(r) }() // of a file that was read
	if err := writeTables(c.table, r); err != nil {
		return err
	}
	m := newMetrics(r)
	if listener != nil {
		defer m.serve(listener, patience)()
		noteMetrics(c.app, listener.Addr())
	}
	return c.trainAndWrite(ctx, place, r, m)
}

// runFollower is run in a process other than rank 0, which plans and writes what is not a shard.
func (c *trainCommand) runFollower(ctx context.Context) (err error) {
	p, err := c.begin()
	if err != nil {
		return err
	}
	place, err := c.followFolder(ctx)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, place.Close()) }()
	r, err := c.open(ctx, nil, p)
	if err != nil {
		return err
	}
	if r.Saves, err = c.keep.follow(place); err != nil {
		return err
	}
	done, err := c.told(ctx, r)
	defer func() { _ = closeFrom(r) }() // of a file that was read
	if done || err != nil {
		return err
	}
	_, err = r.Do(ctx)
	return err
}

// trainAndWrite trains, writes the run's folder and prints the summary.
func (c *trainCommand) trainAndWrite(ctx context.Context, place *runFolder, r *train.Run, m *metrics) error {
	log, err := place.begin(r)
	if err != nil {
		return place.unusable(err)
	}
	s := newStatus(c.app, r)
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
	noted := c.noteWhenEnded(ctx, "interrupted: what has begun is finished first; a second signal ends the run at once")
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
	// Print the summary even if a file could not be written.
	failure := firstOf(lost, place.end(r, out, figures))
	return firstOf(out.Unsaved, failure, c.print(figures, func(w io.Writer) { figures.write(w, r, c.verbose) }))
}

// planOpened plans what open has opened. Where auto finds no plan of activations alone, it plans what moves weights, gradients and state,
// too: a run of its own. Errors close the run.
func (c *trainCommand) planOpened(ctx context.Context, place *runFolder, r *train.Run, p *planning) (*train.Run, error) {
	err := c.planRun(ctx, place, r, p)
	small, ok := errors.AsType[*executor.TooSmallError](err)
	if !ok || !c.mayMoveState(r.Job) {
		return r, whenFailed(err, r)
	}
	c.note("auto: activations alone need %s: weights, gradients and optimizer state move too (--strategy %s)", units.Bytes(small.Smallest), residency.Search)
	if err := cmp.Or(closeFrom(r), c.moveState()); err != nil {
		return nil, err
	}
	if r, err = c.open(ctx, place, p); err != nil {
		return nil, err
	}
	return r, whenFailed(c.planRun(ctx, place, r, p), r)
}

// whenFailed closes the run of an error.
func whenFailed(err error, r *train.Run) error {
	if err == nil {
		return nil
	}
	return firstOf(err, closeFrom(r))
}

// open opens what is trained.
func (c *trainCommand) open(ctx context.Context, place *runFolder, p *planning) (*train.Run, error) {
	if c.processes != nil {
		c.job.processes = c.processes.Size()
		c.job.kernels.Threads, c.job.local = cmp.Or(c.job.kernels.Threads, c.processes.Threads()), c.processes.Local()
	}
	c.job.microbatches, c.job.peerBandwidth = c.pipe.stepParts(), c.pipe.links.peerBandwidth
	c.job.hostMemory = c.link.memory
	c.job.onSkip = func(err error) { c.note("passed over: %v", err) }
	c.init = cmp.Or(c.init, c.job.weights())
	c.job.start = c.init
	if err := c.findBatch(ctx, p); err != nil {
		return nil, err
	}
	spec, err := c.job.spec()
	if err != nil {
		return nil, err
	}
	spec.Kernels.Choices = place.choices()
	job, err := c.processes.OpenJob(ctx, spec)
	if err != nil {
		return nil, err
	}
	r := &train.Run{
		Job: job, Steps: c.steps, Rate: p.rate, MaxNorm: float32(c.clip), SkipNotFinite: c.onNaN == "skip", EvalEvery: c.eval,
		Init: c.init, Saves: place.keep(), HostLimit: c.link.memory.Bytes,
	}
	cyclic := c.pipe.movesState()
	if cyclic {
		r.HostLimit = 0 // Check takes it for a pipeline's as long as there is no plan
	}
	if c.pipe.devices == 0 {
		r.HostLimit = job.HostLimit(r.HostLimit)
		c.options.HostMemory = job.Work.HostRoom(r.HostLimit)
	}
	if c.job.weights() != "" && job.Config.LoRA.Rank == 0 { // a folder of the model has no place for adapters
		r.Saves = r.Saves.InFolder()
	}
	if r.World = c.processes; r.World != nil {
		if err := c.agree(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	if cyclic {
		r.HostLimit = job.HostLimit(c.link.memory.Bytes)
	}
	return r, fits(c.app, r)
}

// writeTables writes the tables of commands of a planned run to a file: a picture where its name ends with .svg, else text. No path, no
// file.
func writeTables(path string, r *train.Run) error {
	if path == "" {
		return nil
	}
	tables, err := r.Tables()
	if err != nil {
		return fmt.Errorf("--debug table=%s: %w", path, err)
	}
	return atomicfile.WriteFile(path, func(w io.Writer) error {
		if filepath.Ext(path) != ".svg" {
			return commands.Write(w, tables)
		}
		return report.WriteCommands(w, "Commands of "+r.Plan.Strategy, tables)
	})
}
