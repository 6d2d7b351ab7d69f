package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"plimsoll/executor/train"
	"plimsoll/internal/units"
)

// modelFigures are those of a plan whose chain was estimated from a model. The arena counts weights, gradients and optimizer state.
type modelFigures struct {
	Model       string  `json:"model"`
	Parameters  int64   `json:"parameters"`
	Device      string  `json:"device"`
	LimitBytes  int64   `json:"arena_limit_bytes"`
	ArenaBytes  int64   `json:"arena_peak_bytes"`
	StaticBytes int64   `json:"static_bytes,omitempty"` // of a plan that moves no weights and no state
	HostBytes   int64   `json:"host_bytes,omitempty"`   // page-locked, of one that does
	StepS       float64 `json:"step_s"`                 // with the update
	TokensPerS  float64 `json:"tokens_per_s,omitempty"`
	SamplesPerS float64 `json:"samples_per_s"`

	step, speed string // for people
}

func modelFiguresOf(job *train.Job, p *train.JobPlan) *modelFigures {
	f := &modelFigures{
		Model: job.Model, Parameters: job.Work.Model.ParamCount(), Device: job.Described.Name, LimitBytes: p.Limit, ArenaBytes: p.PredictedPeak(),
		StepS: p.PredictedSeconds(), step: job.Samples(job.Images()),
	}
	f.SamplesPerS = float64(job.Images()) / f.StepS
	f.TokensPerS, f.speed = f.SamplesPerS*float64(job.Tokens()), job.Rate(f.SamplesPerS)
	if p.IsPipeline() {
		f.HostBytes = p.Needs[0].Host
	} else {
		f.StaticBytes = p.Work.StaticBytes()
	}
	return f
}

// write prints the figures for people.
func (f *modelFigures) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "model\t%s, %d parameters\n", f.Model, f.Parameters)
	fmt.Fprintf(w, "device\t%s, from its description: times are estimated\n", f.Device)
	fmt.Fprintf(w, "speed, estimated\t%s: %s in %s\n", f.speed, f.step, units.Seconds(f.StepS))
	static := ""
	if f.StaticBytes > 0 {
		static = fmt.Sprintf(", %s of them weights, gradients and optimizer state", units.Bytes(f.StaticBytes))
	}
	fmt.Fprintf(w, "arena\t%s of %s%s\n", units.Precise(f.ArenaBytes), units.Bytes(f.LimitBytes), static)
	if f.HostBytes > 0 {
		fmt.Fprintf(w, "host memory\t%s\n", units.Precise(f.HostBytes))
	}
	_ = w.Flush() // of a buffer
}
