package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/receipt"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
)

// registerVerbose registers the flag of commands that print statistics on request.
func (a *app) registerVerbose(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.verbose, "verbose", "v", false, "print statistics too: drift, gaps, intervals, idle times")
}

// summary prints a finished run for people, one fact a line.
type summary struct {
	*train.Summary
	run     *train.Run
	verbose bool // statistics too
	w       *tabwriter.Writer
}

// write prints a run for people.
func (t *trainFigures) write(out io.Writer, r *train.Run, verbose bool) {
	s := &summary{&t.Summary, r, verbose, tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	s.trained()
	if s.Pipe != nil {
		s.devices()
	} else {
		s.device()
	}
	s.times()
	s.incidents()
	s.line("weights\tsha256 %s", s.WeightsSHA256)
	_ = s.w.Flush() // of a buffer
	if t.Receipt != nil && verbose {
		step := "the step in the middle"
		switch {
		case r.Job.Parts > 1:
			step = "the last part of " + step
		case t.Receipt.Steps > 1:
			step = fmt.Sprintf("the %d steps in the middle", t.Receipt.Steps)
		}
		fmt.Fprintf(out, "\nthe gap between the predicted and the measured time of %s, by cause:\n", step)
		_ = bench.RunCauses(t.Receipt).Text(out) // as all that is printed
	}
}

func (s *summary) line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// statistic prints a line with --verbose.
func (s *summary) statistic(format string, args ...any) {
	if s.verbose {
		s.line(format, args...)
	}
}

// trained prints what was trained, and how well.
func (s *summary) trained() {
	job := s.run.Job
	s.line("trained\t%s on %s", job.Model, job.Data)
	s.line("steps\t%d of %s", s.Steps, job.Samples(job.Images()))
	s.line("speed\t%s", job.Rate(s.SamplesPerS))
	s.line("loss\t%.4f in the last step", s.Loss)
	held := job.Held(s.TestLoss, s.Accuracy, s.MeanIoU, s.TestSamples)
	if job.Config.Loss != kernels.CrossEntropy {
		s.line("held out\tloss %.4f, %s", s.TestLoss, held)
		return
	}
	s.line("accuracy\t%s", held)
}

// device prints the plan and the memory of a run on one device.
func (s *summary) device() {
	job := s.run.Job
	all, _ := job.StoreAllBytes() // it was planned with
	if n := job.Parts; n > 1 {
		s.line("parts\t%d of %s a step, each runs the plan", n, job.Samples(job.Config.Batch))
	}
	s.line("limit\t%s, %s of store-all's %s", units.Bytes(s.LimitBytes), share(float64(s.LimitBytes), float64(all)), units.Bytes(all))
	s.line("peak\tpredicted %s, measured %s", units.ExactBytes(s.PredictedPeakBytes), units.ExactBytes(s.MeasuredPeakBytes))
	if s.StagedBytes > 0 {
		s.statistic("batches\t%s of the arena for the next batch, as bytes", units.Bytes(s.StagedBytes))
	}
	s.line("strategy\t%s", pipeline.Name(s.Strategy, s.Winner))
}

// times prints how long a step takes beside the prediction, and why.
func (s *summary) times() {
	s.line("step\tpredicted %s, measured %s", units.Seconds(s.PredictedS), units.Seconds(s.MeasuredS))
	if s.PredictedRunS > 0 {
		s.line("run\tpredicted %s, measured %s, with its first and its last step", units.Seconds(s.PredictedRunS), units.Seconds(s.MeasuredRunS))
	}
	if s.Pipe != nil {
		s.together()
	}
	s.drift()
	s.statistic("data\t%s of the time steps waited for data", share(s.DataWaitShare, 1))
	s.idle()
}

// idle prints how long the devices computed nothing, and why.
func (s *summary) idle() {
	i := s.Idle
	switch {
	case i == nil:
		return
	case s.Pipe != nil && len(s.Pipe.Devices) > 1:
		s.statistic("idle\t%s of the time the devices computed nothing:", share(i.Share, 1))
		s.statistic("\t%s by the plan, %s for data, %s for messages and the host", share(i.Bubble, 1), share(i.Data, 1), share(i.Host, 1))
	default:
		s.statistic("idle\t%s of the time the device computed nothing:", share(i.Share, 1))
		s.statistic("\t%s for data, %s for copies of batches,", share(i.Data, 1), share(i.Batch, 1))
		s.statistic("\t%s for copies of offloaded bytes, %s for the host", share(i.Copies, 1), share(i.Host, 1))
		for _, x := range i.Streams {
			s.statistic("\t%s of the time the stream %s did nothing", share(x.Share, 1), x.Stream)
		}
	}
}

// drift prints how far the machine went from its profile, and the error of the prediction with and without that.
func (s *summary) drift() {
	d := s.Drift
	if d == nil || d.Ops == 0 {
		return
	}
	change, way := 100*(d.Factor-1), "slower"
	if change < 0 {
		change, way = -change, "faster"
	}
	s.statistic("drift\tcompute was %.1f%% %s than profiled; error %+.1f%%, or %+.1f%% with that corrected", change, way, 100*d.Without, 100*d.Error)
	s.statistic("\t%+.1f%% to %+.1f%% as steps vary, with that corrected", 100*d.Interval[0], 100*d.Interval[1])
}

// devices prints the plan and the memory of a run along a pipeline plan.
func (s *summary) devices() {
	p, job := s.Pipe, s.run.Job
	if len(p.Devices) > 1 {
		s.line("pipeline\t%s, weights %s, %d devices with at most %s each", pipeline.Name(s.Strategy, s.Winner), p.Versions, len(p.Devices), units.Bytes(s.LimitBytes))
	} else {
		s.line("schedule\t%s, weights %s, on one device with at most %s", s.Strategy, p.Versions, units.Bytes(s.LimitBytes))
	}
	if p.Microbatches > 1 {
		s.line("\t%d microbatches of %s a step", p.Microbatches, job.Samples(job.Config.Batch))
	}
	if p.UpdateSteps > 1 {
		s.line("\tan update takes %d steps", p.UpdateSteps)
	}
	for i := range p.Devices {
		s.memory(&p.Devices[i])
	}
}

// together prints what devices and processes cost each other.
func (s *summary) together() {
	p := s.Pipe
	if p.Shared != nil {
		s.line("\t%v", p.Shared)
		if own := p.Shared.OwnS; own > 0 {
			s.line("\t%s on devices of their own", units.Seconds(own))
		}
	}
	if x := p.Slowest; x != nil {
		s.line("slowest\t%s of %s: %s, planned %s", x.Task, x.Name, units.Seconds(x.Measured), units.Seconds(x.Planned))
		s.line("\t%.1f times as slow as the other tasks, each against the plan", x.Factor)
	}
	if p.Sums != "" {
		s.line("sums\tby %s: bits may differ from run to run", p.Sums)
	}
	if x := p.Sent; x != nil {
		s.line("sent\t%s in %s between processes", units.ExactBytes(x.Bytes), units.Count(int(x.Messages), "message"))
		if x.DeviceBytes > 0 {
			s.line("NCCL\t%s of the GPUs' memory beside the arenas", units.ExactBytes(x.DeviceBytes))
		}
	}
}

// memory prints a device of a pipeline.
func (s *summary) memory(d *train.DeviceSummary) {
	peak := units.ExactBytes(d.PeakBytes)
	if d.MeasuredPeakBytes > 0 {
		peak = fmt.Sprintf("predicted %s, measured %s", peak, units.ExactBytes(d.MeasuredPeakBytes))
	}
	s.line("%s\tstages %v: peak %s", d.Name, d.Stages, peak)
	s.statistic("\t%s laid out", units.ExactBytes(d.ExtentBytes))
	if d.OffloadedBytes > 0 {
		s.line("\t%s of page-locked host memory for offloads", units.ExactBytes(d.OffloadedBytes))
	}
}

// incidents prints events that most runs do not have.
func (s *summary) incidents() {
	for _, line := range []struct {
		text string
		n    int
		of   string
	}{
		{"resumed\tafter %s", s.ResumedFrom, "step"},
		{"skipped\t%s, whose gradients were not finite", s.Skipped, "step"},
		{"bad data\t%s, passed over", int(s.BadSamples), "sample"},
		{"saved\t%s", s.Checkpoints, "checkpoint"},
		{"not saved\t%s", s.CheckpointsFailed, "checkpoint"},
	} {
		if line.n > 0 {
			s.line(line.text, units.Count(line.n, line.of))
		}
	}
}

// trainFigures is the JSON of train.
type trainFigures struct {
	train.Summary
	Receipt *receipt.Receipt `json:"receipt,omitempty"` // of the step in the middle
}
