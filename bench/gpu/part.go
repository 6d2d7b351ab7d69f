package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/atomicfile"
	"plimsoll/internal/fields"
	"plimsoll/kernels/library"
	"plimsoll/runtime/devices"
)

// States of a part.
const (
	green   = "green"   // correctness holds, or everything was measured
	red     = "red"     // it does not, or something failed
	stopped = "stopped" // at its time limit; what it had is kept
	skipped = "skipped" // something that it needs is not here
)

// outcome is the result of a part. Times are seconds, sizes bytes.
type outcome struct {
	Part        string          `json:"part"`
	State       string          `json:"state"`
	Summary     string          `json:"summary"`
	Started     time.Time       `json:"started"`
	Seconds     float64         `json:"seconds"`
	Environment environment     `json:"environment"`
	Figures     json.RawMessage `json:"figures,omitempty"`
	Markdown    string          `json:"markdown"`
}

// part is a part while it is measured.
type part struct {
	options
	outcome
	memory   int64           // of the device; 0: what it has
	text     strings.Builder // markdown so far
	progress io.Writer
}

// measure runs a part of this program, prints its markdown, and writes its outcome to the file -result.
func (o *options) measure(ctx context.Context, name string, measure func(context.Context, *part) error, out io.Writer) error {
	p := &part{options: *o, progress: out, outcome: outcome{Part: name, State: green, Started: time.Now().UTC().Truncate(time.Second)}}
	begin := time.Now()
	err := p.describe()
	if err == nil {
		err = measure(ctx, p)
	}
	p.Seconds = time.Since(begin).Seconds()
	if err != nil {
		p.State, p.Summary = red, err.Error()
	}
	return cmp.Or(p.save(nil), err)
}

// describe opens the device for a moment.
func (p *part) describe() error {
	target, err := p.target()
	if err != nil {
		return err
	}
	p.Environment = describe(target, p.commit)
	return target.Device.Close()
}

// target opens the device with its kernels.
func (p *part) target() (executor.Target, error) { return p.open(p.device) }

// open opens a device with its kernels.
func (p *part) open(device string) (executor.Target, error) {
	return (&train.Spec{Devices: device, Kernels: library.Options{Vendor: p.vendor}, Open: devices.Options{Memory: p.memory}}).Target()
}

// printf adds to the markdown, and shows it.
func (p *part) printf(format string, args ...any) {
	fmt.Fprintf(&p.text, format, args...)
	fmt.Fprintf(p.progress, format, args...)
}

// sumUp adds to the summary.
func (p *part) sumUp(format string, args ...any) {
	if p.Summary != "" {
		p.Summary += "; "
	}
	p.Summary += fmt.Sprintf(format, args...)
}

// save writes the outcome so far, with figures unless they are nil: a part that is stopped keeps what it has.
func (p *part) save(figures any) error {
	if figures != nil {
		raw, err := fields.Marshal(figures)
		if err != nil {
			return err
		}
		p.Figures = raw
	}
	p.Markdown = p.text.String()
	if p.result == "" {
		return nil
	}
	return atomicfile.WriteJSON(p.result, &p.outcome)
}

func readJSON(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
