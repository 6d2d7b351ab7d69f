package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// peerRow is the row of torch_peer.py about one job.
type peerRow struct {
	Job        string  `json:"job"` // model:image:batch:precision:mode[:segments], as it was asked
	System     string  `json:"system"`
	Error      string  `json:"error"`
	StepS      float64 `json:"step_s"`
	ImagesPerS float64 `json:"images_per_s"`
	PeakBytes  int64   `json:"peak_bytes"`
	Operations float64 `json:"operations"` // of a matrix product
}

var errNoPeer = errors.New("no Python with PyTorch was named")

// peerRows lets PyTorch do jobs, one after the other in one process, and hands over each row when it is there. A job that
// fails (out of memory) is a row with an error.
func (p *part) peerRows(ctx context.Context, jobs []string, row func(peerRow) error) error {
	if p.python == "" {
		return errNoPeer
	}
	args := append([]string{p.peer, "--device", p.peerDevice()}, p.peerSteps()...)
	cmd := exec.CommandContext(ctx, p.python, append(args, jobs...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = readRows(bufio.NewScanner(out), row)
	if failure := cmd.Wait(); failure != nil {
		lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
		return fmt.Errorf("%s: %w: %s", p.peer, failure, lines[len(lines)-1])
	}
	return err
}

func readRows(lines *bufio.Scanner, row func(peerRow) error) error {
	for lines.Scan() {
		var r peerRow
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("the peer says %q: %w", lines.Text(), err)
		}
		if err := row(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (p *part) peerSteps() []string {
	if p.tiny {
		return []string{"--warmup", "1", "--steps", "2"}
	}
	return nil
}

// peerDevice is the same GPU as PyTorch names it. PyTorch knows nothing of the emulated driver: there, and beside our CPU
// kernels, it runs on the CPU, and its row says so.
func (p *part) peerDevice() string {
	if p.Environment.Simulated || !strings.HasPrefix(p.device, "cuda") {
		return "cpu"
	}
	return p.device
}

// peerJob is the content of a job's text.
type peerJob struct {
	job
	precision, mode string
}

func parseJob(text string) (j peerJob, err error) {
	fields := strings.Split(text, ":")
	if len(fields) < 5 {
		return j, fmt.Errorf("the peer answers job %q, which nobody asked for", text)
	}
	j.model, j.precision, j.mode = fields[0], fields[3], fields[4]
	if j.image, err = strconv.Atoi(fields[1]); err == nil {
		j.batch, err = strconv.Atoi(fields[2])
	}
	return j, err
}
