// Command own-model trains a model of its own on data of its own, under a memory limit or as a pipeline, with checkpoints to go on from and
// a report:
//
//	own-model -memory 50 -out out/a
//	own-model -memory 35 -out out/a -resume -steps 200
//	own-model -devices "cpu*2" -out out/b
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"plimsoll/bench"
	"plimsoll/executor/train"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// settings are the values of the flags.
type settings struct {
	devices string
	memory  int64 // percent of what a step takes that recomputes nothing
	steps   int
	out     string
	resume  bool
}

func main() {
	s := settings{}
	flag.StringVar(&s.devices, "devices", "cpu", `"cpu", or several as in "cpu*2", which are a pipeline`)
	flag.Int64Var(&s.memory, "memory", 100, "limit on one device, in percent of what a step takes that recomputes nothing")
	flag.IntVar(&s.steps, "steps", 100, "steps of the whole run")
	flag.StringVar(&s.out, "out", "out", "folder of checkpoints, weights and report")
	flag.BoolVar(&s.resume, "resume", false, "go on from the latest checkpoint in the folder")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	out, err := s.train(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "own-model:", err)
		os.Exit(1)
	}
	fmt.Printf("%d steps, loss %.4f, %.1f%% of %d held-out images\n", out.Steps, out.Loss, 100*out.Accuracy, out.TestSamples)
	fmt.Printf("peak predicted %d B, measured %d B, limit %d B\nweights %s\n", out.PredictedPeakBytes, out.MeasuredPeakBytes, out.LimitBytes, out.WeightsSHA256)
}

// train measures, plans and trains, and writes the folder. Ctrl-C finishes the step and saves a checkpoint.
func (s settings) train(ctx context.Context) (*train.Outcome, error) {
	run, err := s.plan(ctx)
	if err != nil {
		return nil, err
	}
	run.Saves = train.SavesTo(s.out, 2, 20)
	if s.resume {
		latest, _, err := run.Saves.Dir.Latest() // and those that are damaged
		if err != nil {
			return nil, err
		}
		if _, err := run.Resume(latest); err != nil { // and what is not as it was: the plan may be another
			return nil, errors.Join(err, latest.Close())
		}
		defer func() { _ = latest.Close() }() // of a file that was read
	}
	out, err := run.Do(ctx)
	if err != nil {
		return nil, err
	}
	page, err := bench.RunPage(run, out)
	if err != nil {
		return nil, err
	}
	return out, errors.Join(out.Unsaved, page.WriteFolder(s.out, "report.html"))
}

// plan opens the job, measures its layers and plans them, on one device or on several.
func (s settings) plan(ctx context.Context) (*train.Run, error) {
	spec := train.Spec{
		Model: "stripenet", Config: models.Config{Image: 16, Channels: 1, Batch: 32}, Data: "stripes", Seed: 1,
		Devices: s.devices, Update: kernels.SGD{Momentum: 0.9},
	}
	several := s.devices != "cpu"
	if several {
		spec.Microbatches = 4
	}
	job, err := train.Open(spec)
	if err != nil {
		return nil, err
	}
	run := &train.Run{Job: job, Steps: s.steps, Rate: train.Rate{Peak: 0.05, Steps: s.steps}}
	if run.Chain, err = job.Profile(ctx, train.Measure{Repeats: 3}); err != nil {
		return nil, err
	}
	if several {
		return run, pipe(ctx, run)
	}
	all, err := job.StoreAllBytes()
	if err != nil {
		return nil, err
	}
	best, err := planner.Lookup("rotor-exact")
	if err != nil {
		return nil, err
	}
	run.Plan, err = job.Plan(ctx, run.Chain, best, all*s.memory/100, strategy.Options{})
	return run, err
}

// pipe plans a pipeline with a flush, whose weights are the same bits on any number of devices, without a limit.
func pipe(ctx context.Context, run *train.Run) error {
	targets, err := run.Job.Targets()
	if err != nil {
		return err
	}
	for _, t := range targets {
		err = errors.Join(err, t.Device.Close())
	}
	if err != nil {
		return err
	}
	flush, err := planner.LookupPipeline("1f1b-flush")
	if err != nil {
		return err
	}
	run.Plan, err = run.Job.PlanPipe(ctx, run.Chain, train.PipeRequest{
		Strategy: flush, Platform: pipeline.NewPlatform(len(targets), pipeline.NoLimit, 1e9), Limit: func(most int64) int64 { return most },
		Options: pipeline.Options{Accounting: pipeline.Saved, Microbatches: run.Job.Microbatches},
	})
	return err
}
