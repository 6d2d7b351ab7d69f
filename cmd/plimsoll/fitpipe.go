package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"plimsoll/executor/train"
	"plimsoll/internal/await"
	"plimsoll/internal/units"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
)

// fitSchedules are the schedules that fit asks: those that most people mean, by what they keep in memory.
var fitSchedules = []string{"gpipe", "1f1b-flush", "gpipe-checkpoint", "1f1b-recompute", defaultFlush, "1f1b", "loadline", defaultPipeline}

// pipeFits is the answer of plimsoll fit for several devices.
type pipeFits struct {
	Model   string `json:"model"`
	Devices int    `json:"devices"`
	Batch   int    `json:"batch"`
	models.SampleSize
	LimitBytes int64           `json:"limit_bytes"` // of each device
	Schedules  []train.PipeFit `json:"schedules"`
}

func (a *app) runFitPipe(ctx context.Context, f *fitFlags, devices int) error {
	switch {
	case f.parts < 0:
		return usage(fmt.Errorf("--microbatches is %d: give a number from 1", f.parts))
	case f.memory.Share > 0:
		return usage(fmt.Errorf("--memory %v of several devices: give bytes, as in 8GiB", &f.memory))
	case f.parts == 0:
		f.parts = 2 * devices
	}
	out := pipeFits{Devices: devices, Batch: f.job.config.Batch, LimitBytes: f.memory.Bytes}
	platform := pipeline.NewPlatform(devices, pipeline.NoLimit, pipeline.Free())
	for _, name := range fitSchedules {
		s, err := planner.LookupPipeline(name)
		if err != nil {
			return err
		}
		if f.job.microbatches = 1; s.Type == pipeline.Flushing {
			f.job.microbatches = f.parts
		}
		job, err := f.job.open()
		if err != nil {
			return err
		}
		if out.LimitBytes == 0 {
			out.LimitBytes = job.Device.Memory
		}
		out.Model, out.SampleSize = job.Model, job.SampleSize()
		fit, err := await.Do(ctx, func() (train.PipeFit, error) { return job.FitPipe(ctx, s, platform, out.LimitBytes) })
		if err != nil {
			return err
		}
		out.Schedules = append(out.Schedules, fit)
	}
	return a.print(out, func(w io.Writer) { writePipeFits(w, &out) })
}

func writePipeFits(out io.Writer, f *pipeFits) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "model\t%s on %d devices\n", f.Model, f.Devices)
	fmt.Fprintf(w, "step\t%s\n", f.Samples(f.Batch))
	fmt.Fprintf(w, "limit\t%s on each device\n\n", units.Bytes(f.LimitBytes))
	fmt.Fprintln(w, "schedule\tmicrobatches\tsmallest limit\tfits\tlargest batch")
	for _, s := range f.Schedules {
		if s.SmallestBytes == 0 {
			fmt.Fprintf(w, "%s\t%d\tno plan on %d devices\n", s.Strategy, s.Microbatches, f.Devices)
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", s.Strategy, s.Microbatches, units.Bytes(s.SmallestBytes), yesNo(s.SmallestBytes <= f.LimitBytes), orNone(s.LargestBatch))
	}
	_ = w.Flush() // of a buffer
	if !slices.ContainsFunc(f.Schedules, func(s train.PipeFit) bool { return s.SmallestBytes > 0 && s.SmallestBytes <= f.LimitBytes }) {
		fmt.Fprintln(out, "\nnothing fits; what would help: a smaller --batch, more --microbatches, more --devices, --dtype bf16")
	}
}
