package main

import (
	"context"
	"errors"
	"fmt"

	"plimsoll/executor"
	"plimsoll/executor/measure"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/strategy"
)

// speedRow is the training speed of a system.
type speedRow struct {
	System    string  `json:"system"`
	Model     string  `json:"model"`
	Image     int     `json:"image"`
	Batch     int     `json:"batch"`
	Precision string  `json:"precision"`
	Mode      string  `json:"mode"`
	StepS     float64 `json:"step_s"`        // ours with the host's work for a batch, PyTorch's without
	DeviceS   float64 `json:"device_step_s"` // without, by events
	Images    float64 `json:"images_per_s"`  // by step_s
	PeakBytes int64   `json:"peak_bytes"`    // ours: the arena's extent, weights included
	Ratio     float64 `json:"ratio,omitempty"`
	Error     string  `json:"error,omitempty"`
}

func (p *part) jobs() []job {
	switch {
	case p.tiny && p.python == "":
		return []job{{"resnet20", 12, 2}}
	case p.tiny: // the smallest that PyTorch has too
		return []job{{"resnet18", 32, 2}}
	}
	return []job{ // what is asked most first: time may run out
		{"resnet50", 224, 256}, {"resnet101", 1000, 8}, {"resnet50", 224, 128}, {"resnet50", 224, 64}, {"resnet101", 224, 64}, {"resnet50", 1000, 8},
	}
}

// ours is our name in tables.
const ours = "Plimsoll"

// race holds what is compared.
type race struct {
	*part
	rows  []speedRow
	eager map[string]float64 // images/s by job
	peaks map[string]int64   // of checkpoint_sequential, by job
}

func measureThroughput(ctx context.Context, p *part) error {
	r := &race{part: p, rows: []speedRow{}, eager: map[string]float64{}, peaks: map[string]int64{}}
	if p.python == "" {
		p.printf("There is no peer: %v.\n\n", errNoPeer)
	}
	p.printf("The ratio is to PyTorch eager in the same precision; fp32 is float32 without TF32. In our step the batch is unpacked from bytes and the next one is uploaded beside it, as train does; PyTorch's batch is on the device.\n\n")
	p.printf("| system | model | image | batch | precision | mode | images/s | ratio to eager | peak | step on the device |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, d := range []kernels.DType{kernels.BFloat16, kernels.TF32, kernels.Float32} {
		jobs := p.jobs()
		if d == kernels.Float32 { // without tensor cores: slow
			jobs = jobs[:1]
		}
		for i, j := range jobs {
			if err := ctx.Err(); err != nil {
				return err
			}
			r.peers(ctx, peerJobs(j, short(d), i, d != kernels.Float32))
			if err := r.ours(ctx, j, d); err != nil {
				return fmt.Errorf("%s in %v: %w", describeRun(j.model, j.image, j.batch), d, err)
			}
		}
	}
	return p.save(r.rows)
}

// peerJobs are the peers' of the job at a position, in a precision. torch.compile runs the first one alone, as compilation takes long, and
// not without tensor cores. The checkpointed peer gives our rotor its limit.
func peerJobs(j job, precision string, at int, compiled bool) []string {
	all := []string{j.peer(precision, "eager")}
	if at == 0 && compiled {
		all = append(all, j.peer(precision, "compile"))
	}
	if at < checkpointed {
		all = append(all, j.peer(precision, "checkpoint"))
	}
	return all
}

// checkpointed is the number of jobs, the first ones, whose peer recomputes, too.
const checkpointed = 2

// peers adds a row for each job, or says why there is none.
func (r *race) peers(ctx context.Context, jobs []string) {
	if r.python == "" {
		return
	}
	err := r.peerRows(ctx, jobs, func(row peerRow) error {
		s, err := speedOf(row)
		if err != nil {
			return err
		}
		switch s.Mode {
		case "eager":
			r.eager[row.Job] = row.ImagesPerS
		case "checkpoint":
			r.peaks[row.Job] = row.PeakBytes
		}
		return r.add(s)
	})
	if err != nil {
		_ = r.add(speedRow{System: "PyTorch", Error: err.Error()}) // as notes are
	}
}

// speedOf reads a peer's job.
func speedOf(row peerRow) (speedRow, error) {
	s := speedRow{System: row.System, StepS: row.StepS, DeviceS: row.StepS, Images: row.ImagesPerS, PeakBytes: row.PeakBytes, Error: row.Error}
	j, err := parseJob(row.Job)
	s.Model, s.Image, s.Batch, s.Precision, s.Mode = j.model, j.image, j.batch, j.precision, j.mode
	return s, err
}

// ours adds rows of a model in a type: with everything stored, and under the memory that checkpoint_sequential took.
func (r *race) ours(ctx context.Context, j job, d kernels.DType) error {
	plain, err := r.compile(r.device, j.model, models.Config{Batch: j.batch, Image: j.image, Classes: classes, DType: d})
	if errors.Is(err, kernels.ErrType) {
		return nil
	}
	if err != nil {
		return err
	}
	w := plain.Stage(palette(plain.Model.Input.Shape[3])) // as train does: the next batch travels as bytes, beside a step
	t, _, err := r.storeAll(w)
	if err != nil {
		return err
	}
	row := speedRow{System: ours, Model: j.model, Image: j.image, Batch: j.batch, Precision: short(d), Mode: "store-all"}
	eager := j.peer(short(d), "eager")
	if err := r.timed(row, t, eager); err != nil {
		return err
	}
	peak := r.peaks[j.peer(short(d), "checkpoint")]
	if peak == 0 {
		return nil
	}
	row.Mode = "rotor within " + units.Bytes(peak)
	c, err := r.profile(ctx, plain)
	if err != nil {
		return err
	}
	within, err := r.along(ctx, w, c, "rotor", peak, strategy.Options{})
	if err != nil {
		return err
	}
	if within.small != nil {
		row.Error = within.small.Error()
		return r.add(row)
	}
	return r.timed(row, within.timing, eager)
}

// timed adds a row of steps that were run.
func (r *race) timed(row speedRow, t timing, eager string) error {
	row.StepS, row.DeviceS, row.Images, row.PeakBytes = t.Wall, t.Device, float64(row.Batch)/t.Wall, t.Extent
	if theirs := r.eager[eager]; theirs > 0 {
		row.Ratio = row.Images / theirs
	}
	return r.add(row)
}

// profile measures a model's chain on the device.
func (p *part) profile(ctx context.Context, w *executor.Workload) (*chain.Chain, error) {
	warmup, steps := 2, 5
	if p.tiny {
		warmup, steps = 0, 1
	}
	load := func(b measure.Batch) error {
		fill(w.Model, b.Images, b.Labels)
		return nil
	}
	return measure.Profile(ctx, w, p.target, 0, load, measure.ProfileOptions{Warmup: warmup, Repeats: steps, Seed: 1})
}

// add appends a row, shows it, and keeps what there is.
func (r *race) add(s speedRow) error {
	r.rows = append(r.rows, s)
	switch ratio := ""; {
	case s.Model == "":
		r.printf("| %s | %s | | | | | | | | |\n", s.System, s.Error)
	case s.Error != "":
		r.printf("| %s | %s | %d | %d | %s | %s | %s | | | |\n", s.System, s.Model, s.Image, s.Batch, s.Precision, s.Mode, s.Error)
	default:
		if s.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", s.Ratio)
		}
		r.summarize(s)
		r.printf("| %s | %s | %d | %d | %s | %s | %.1f | %s | %s | %s |\n", s.System, s.Model, s.Image, s.Batch, s.Precision, s.Mode,
			s.Images, ratio, units.Bytes(s.PeakBytes), units.Seconds(s.DeviceS))
	}
	return r.save(r.rows)
}

// summarize names the speed of what stores all.
func (r *race) summarize(s speedRow) {
	if s.System != ours || s.Mode != "store-all" {
		return
	}
	if r.Summary != "" {
		r.Summary += ", "
	}
	r.Summary += fmt.Sprintf("%s at %d %s %.1f images/s", s.Model, s.Image, s.Precision, s.Images)
	if s.Ratio > 0 {
		r.Summary += fmt.Sprintf(" (%.2f of eager)", s.Ratio)
	}
}
