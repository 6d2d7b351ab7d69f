package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"plimsoll/executor/train"
)

// worldRow is a training in two processes on one GPU beside one process that has both devices.
type worldRow struct {
	Strategy  string  `json:"strategy"`
	Transport string  `json:"transport"`
	Missing   string  `json:"missing,omitempty"` // why the transport cannot be tried here
	Same      bool    `json:"same_weights"`
	Exact     bool    `json:"predicted_peaks"`
	OneS      float64 `json:"one_process_s_per_step"`
	S         float64 `json:"s_per_step"`
	Bytes     int64   `json:"sent_bytes"`
	LibraryB  int64   `json:"library_bytes"`
}

var errOthers = errors.New("two processes train other weights, or with other peaks, than one")

var worldTransports = []string{"tcp", "nccl"}

// measureWorld trains in two processes, each with a share of the GPU, over each transport.
func measureWorld(ctx context.Context, p *part) error {
	if p.program == "" {
		return errors.New("world needs -program, the path of plimsoll")
	}
	job := []string{"-m", "resnet50", "--data", "glyphs", "--image", "64", "--batch", "32", "--steps", "10", "--debug", "device-memory=8GiB"}
	if p.tiny {
		job = []string{"-m", "tiny", "--data", "glyphs", "--image", "16", "--batch", "8", "--steps", "3", "--debug", "device-memory=1GiB"}
	}
	job = append(job, "--option", "profile.steps=1", "--debug", "threads=1", "--json")
	choices, err := os.MkdirTemp("", "choices")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(choices) }()
	rows, wrong := []worldRow{}, 0
	p.printf("| strategy | transport | weights of one process | peaks as predicted | step, one process | step, two | ratio | sent | memory of the library |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, strategy := range [][]string{{"1f1b-flush", "--microbatches", "8"}, {"contiguous", "--versions", "stash"}} {
		args := append(append([]string{}, job...), "--strategy")
		args = append(args, strategy...)
		// One process repeats the algorithms that rank 0 of two has chosen: rank 0 writes them into this file.
		env := []string{"NCCL_MULTI_RANK_GPU_ENABLE=1", "PLIMSOLL_CUDA_CHOICES=" + filepath.Join(choices, strategy[0])}
		trained, failed := map[string]*train.Summary{}, map[string]error{}
		for _, transport := range worldTransports {
			trained[transport], failed[transport] = p.trains(ctx, env,
				append([]string{"launch", "-n", "2", "--", "train", "--world", "auto", "--transport", transport, "--devices", p.device}, args...)...)
		}
		one, err := p.trains(ctx, env, append([]string{"train", "--devices", p.device + "*2"}, args...)...)
		if err != nil {
			return err
		}
		for _, transport := range worldTransports {
			row := worldRow{Strategy: strategy[0], Transport: transport, OneS: one.MeasuredS}
			two, err := trained[transport], failed[transport]
			switch {
			case err != nil && transport == "nccl" && strings.Contains(err.Error(), "nccl"): // there is none, or none that can
				row.Missing = err.Error()
				p.printf("| %s | %s | not tried: %s ||||||\n", row.Strategy, transport, strings.Join(strings.Fields(row.Missing), " "))
			case err != nil:
				return err
			default:
				row.compare(one, two)
				p.printf("| %s | %s | %v | %v | %.4g s | %.4g s | %.3f | %d B | %d B |\n", row.Strategy, transport, row.Same, row.Exact, row.OneS, row.S, row.S/row.OneS, row.Bytes, row.LibraryB)
				if !row.Same || !row.Exact {
					wrong++
				}
			}
			rows = append(rows, row)
			if err := p.save(rows); err != nil {
				return err
			}
		}
	}
	if p.Summary = fmt.Sprintf("%d trainings in two processes, %d differ from one process", len(rows), wrong); wrong > 0 {
		return cmp.Or(p.save(rows), errOthers)
	}
	return p.save(rows)
}

func (r *worldRow) compare(one, two *train.Summary) {
	r.Same, r.Exact, r.S = two.WeightsSHA256 == one.WeightsSHA256, true, two.MeasuredS
	for i, d := range two.Pipe.Devices {
		same := d.PeakBytes == one.Pipe.Devices[i].PeakBytes && d.MeasuredPeakBytes == one.Pipe.Devices[i].MeasuredPeakBytes
		r.Exact = r.Exact && same && (d.MeasuredPeakBytes == 0 || d.MeasuredPeakBytes == d.PeakBytes) // 0: not of asynchronous plans
	}
	r.Bytes, r.LibraryB = two.Pipe.Sent.Bytes, two.Pipe.Sent.DeviceBytes
}

// trains runs the program, and returns what it says.
func (p *part) trains(ctx context.Context, more []string, args ...string) (*train.Summary, error) {
	c := exec.CommandContext(ctx, p.program, args...)
	c.Env = append(os.Environ(), more...)
	var errs bytes.Buffer
	c.Stderr = &errs
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args[:3], " "), err, tail(errs.Bytes(), 3))
	}
	s := &train.Summary{}
	return s, json.Unmarshal(text, s)
}
