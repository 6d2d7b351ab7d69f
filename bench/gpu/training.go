package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"plimsoll/bench/report"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
)

// trainedRow is a training by the command train, or by PyTorch.
type trainedRow struct {
	System    string  `json:"system"`
	Model     string  `json:"model"`
	Precision string  `json:"precision"`
	Plan      string  `json:"plan"`
	Limit     int64   `json:"limit_bytes,omitempty"` // 0: none
	Predicted float64 `json:"predicted_s,omitempty"`
	Measured  float64 `json:"measured_s"`
	Samples   float64 `json:"samples_per_s"` // by the measured time
	Ratio     float64 `json:"ratio_to_eager,omitempty"`
	PlanBytes int64   `json:"predicted_peak_bytes,omitempty"`
	PeakBytes int64   `json:"peak_bytes"`
	HostBytes int64   `json:"host_bytes,omitempty"` // page-locked
	Weights   string  `json:"weights_sha256,omitempty"`
	Same      bool    `json:"same_weights,omitempty"` // as the first row of the model in its precision
	Refused   string  `json:"refused,omitempty"`
	Error     string  `json:"error,omitempty"`
}

// training is a part whose rows are trainings by the program.
type training struct {
	*part
	rows    []trainedRow
	rates   map[string]float64 // samples/s of PyTorch eager, by model and precision
	choices string             // file with who computes what: processes that choose for themselves may differ in last bits
}

func (p *part) training() (*training, error) {
	if p.program == "" {
		return nil, errors.New("this part needs -program, the path of plimsoll")
	}
	p.printf("| system | model | precision | plan | limit | predicted | measured | error | samples/s | ratio to eager | planned peak | peak | page-locked | weights as the first row's |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	folder, err := os.MkdirTemp("", "choices")
	return &training{part: p, rows: []trainedRow{}, rates: map[string]float64{}, choices: filepath.Join(folder, "choices.json")}, err
}

func (t *training) close() error { return os.RemoveAll(filepath.Dir(t.choices)) }

// doesNotFit is the program's exit code where a limit is too small (docs/json.md).
const doesNotFit = 3

// text is a language model and how it is trained.
type text struct {
	model         string
	length, batch int
	vocabulary    int
	steps         int
}

func (t text) args(dtype string) []string {
	return []string{"-m", t.model, "--length", strconv.Itoa(t.length), "--batch", strconv.Itoa(t.batch), "--classes", strconv.Itoa(t.vocabulary),
		"--dtype", dtype, "--optimizer", "adamw", "--steps", strconv.Itoa(t.steps)}
}

// peer is the job of the same step, for PyTorch.
func (t text) peer(precision, mode string) string {
	return job{t.model, t.length, t.batch}.peer(precision, mode)
}

// ours trains along a plan and adds a row. An error of the program is a row, too.
func (t *training) ours(ctx context.Context, batch int, row trainedRow, args ...string) (*train.Summary, error) {
	row.System = ours
	args = append([]string{"train", "--devices", t.device, "--json"}, args...)
	if row.Limit > 0 {
		args = append(args, "--memory", strconv.FormatInt(row.Limit, 10))
	}
	s, err := t.trains(ctx, []string{"PLIMSOLL_CUDA_CHOICES=" + t.choices}, append(args, "--strategy", row.Plan)...)
	if exit, refused := errors.AsType[*exec.ExitError](err); refused && exit.ExitCode() == doesNotFit {
		row.Refused = "the limit is too small"
		return nil, t.add(row)
	}
	if err != nil {
		row.Error = err.Error()
		return nil, cmp.Or(ctx.Err(), t.add(row))
	}
	row.Predicted, row.Measured, row.Samples = s.PredictedS, s.MeasuredS, float64(batch)/s.MeasuredS
	row.PlanBytes, row.PeakBytes, row.HostBytes, row.Weights = s.PredictedPeakBytes, s.MeasuredPeakBytes, s.HostBytes, s.WeightsSHA256
	first := row
	for _, r := range t.rows {
		if r.Model == row.Model && r.Precision == row.Precision && r.Weights != "" {
			first = r
			break
		}
	}
	row.Same = first.Weights == row.Weights
	if rate := t.rates[row.Model+row.Precision]; rate > 0 {
		row.Ratio = row.Samples / rate
	}
	if s.Winner != "" {
		row.Plan += " (" + s.Winner + ")"
	}
	return s, t.add(row)
}

// add appends a row, shows it, and keeps what there is.
func (t *training) add(row trainedRow) error {
	t.rows = append(t.rows, row)
	limit := ""
	if row.Limit > 0 {
		limit = units.Bytes(row.Limit)
	}
	if none := row.Error + row.Refused; none != "" {
		t.printf("| %s | %s | %s | %s | %s | %s | | | | | | | | |\n", row.System, row.Model, row.Precision, row.Plan, limit, none)
		return t.save(t.rows)
	}
	predicted, off, planned, same, ratio, host := "", "", "", "", "", ""
	if row.Predicted > 0 {
		predicted, off = units.Seconds(row.Predicted), fmt.Sprintf("%+.1f %%", 100*report.TimeError(row.Predicted, row.Measured))
		planned, same, host = units.Bytes(row.PlanBytes), strconv.FormatBool(row.Same), units.Bytes(row.HostBytes)
	}
	if row.Ratio > 0 {
		ratio = fmt.Sprintf("%.2f", row.Ratio)
	}
	t.printf("| %s | %s | %s | %s | %s | %s | %s | %s | %.1f | %s | %s | %s | %s | %s |\n", row.System, row.Model, row.Precision, row.Plan, limit,
		predicted, units.Seconds(row.Measured), off, row.Samples, ratio, planned, units.Bytes(row.PeakBytes), host, same)
	return t.save(t.rows)
}

// peer lets PyTorch train.
func (t *training) peer(ctx context.Context, m text, precision, mode string) {
	err := t.peerRows(ctx, []string{m.peer(precision, mode)}, func(row peerRow) error {
		if mode == "eager" {
			t.rates[m.model+precision] = row.ImagesPerS
		}
		return t.add(trainedRow{System: row.System, Model: m.model, Precision: precision, Plan: mode, Measured: row.StepS, Samples: row.ImagesPerS,
			PeakBytes: row.PeakBytes, Error: row.Error})
	})
	if err != nil {
		_ = t.add(trainedRow{System: "PyTorch", Error: err.Error()}) // as notes are
	}
}

// measureLanguage trains GPT-2 with everything on the device beside PyTorch.
func measureLanguage(ctx context.Context, p *part) (err error) {
	m := text{"gpt2", 1024, 16, vocabulary, 10}
	if p.tiny {
		m = text{"gpt2-1-64", 8, 2, 256, 3}
	}
	t, err := p.training()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, t.close()) }()
	for _, precision := range []string{"bf16", "tf32"} { // what is asked most first: time may run out
		t.peer(ctx, m, precision, "eager")
		s, err := t.ours(ctx, m.batch, trainedRow{Model: m.model, Precision: precision, Plan: "store-all"}, m.args(precision)...)
		if err != nil || s == nil {
			return cmp.Or(err, t.failure())
		}
		last := t.rows[len(t.rows)-1]
		if p.sumUp("%s %s %.0f tokens/s", m.model, precision, last.Samples*float64(m.length)); last.Ratio > 0 {
			p.Summary += fmt.Sprintf(" (%.2f of eager)", last.Ratio)
		}
		t.peer(ctx, m, precision, "compile")
		row := trainedRow{Model: m.model, Precision: precision, Plan: "rotor", Limit: s.PredictedPeakBytes * 6 / 10}
		if _, err := t.ours(ctx, m.batch, row, m.args(precision)...); err != nil {
			return err
		}
	}
	return cmp.Or(p.save(t.rows), t.failure())
}

// measureResidency trains with weights, gradients and optimizer state that leave the device, down to a fifth of a resident plan's memory.
// It also trains a model with weights and state that alone are larger than its limit.
func measureResidency(ctx context.Context, p *part) (err error) {
	m, large := text{"gpt2", 1024, 8, vocabulary, 8}, text{"gpt2-large", 1024, 4, vocabulary, 5}
	limit := int64(4 << 30)
	if p.tiny {
		m, large, limit = text{"gpt2-2-64", 16, 2, 256, 3}, text{"gpt2-4-64", 16, 2, 256, 3}, 2<<20
	}
	t, err := p.training()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, t.close()) }()
	all, err := t.ours(ctx, m.batch, trainedRow{Model: m.model, Precision: "bf16", Plan: "resident"}, m.args("bf16")...)
	if err != nil || all == nil {
		return cmp.Or(err, t.failure())
	}
	part := func(share float64) int64 { return int64(share * float64(all.PredictedPeakBytes)) }
	for _, c := range []struct {
		text
		plan  string
		limit int64
	}{
		{m, "residency", part(0.5)}, {large, "residency", limit}, {m, "zero-offload", part(0.7)}, {m, "residency", part(0.3)}, {m, "layer-window", part(0.7)},
	} {
		row := trainedRow{Model: c.model, Precision: "bf16", Plan: c.plan, Limit: c.limit}
		if _, err := t.ours(ctx, c.batch, row, c.args("bf16")...); err != nil {
			return err
		}
	}
	p.sumUp("%d trainings", len(t.rows))
	return cmp.Or(p.save(t.rows), t.failure())
}

var errTraining = errors.New("a training failed, has other weights than the first of its model, or another peak than planned")

// failure is an error if one of our trainings did not keep its promises.
func (t *training) failure() error {
	for _, row := range t.rows {
		if row.System == ours && row.Refused == "" && (row.Error != "" || !row.Same || row.PeakBytes > row.PlanBytes) {
			return fmt.Errorf("%w: %s by %s: %s", errTraining, row.Model, row.Plan, row.Error)
		}
	}
	return nil
}
