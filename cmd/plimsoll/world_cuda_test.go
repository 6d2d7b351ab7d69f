//go:build cuda && linux && amd64

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	cuda "plimsoll/runtime/cuda/driver"
)

// GPUs of several processes train the bits of one process that has them all, and take the same memory; each process has taken a GPU of
// its own. Where one dies the other one says so.
func TestGPUsOfProcesses(t *testing.T) {
	if status := cuda.Load(); status.Err != nil || status.Devices < 2 {
		t.Skip("needs two GPUs: ", status.Err)
	}
	transports := [][]string{{"--transport", "tcp"}}
	if os.Getenv("PLIMSOLL_NCCL") != "" {
		transports = append(transports, []string{"--transport", "nccl"})
	}
	for _, transport := range transports {
		for _, strategy := range [][]string{{"--strategy", "1f1b-flush", "--microbatches", "4"}, {"--strategy", "contiguous", "--versions", "stash"}} {
			t.Run(transport[1]+"/"+strategy[1], func(t *testing.T) { gpusOfProcesses(t, transport, strategy...) })
		}
	}
}

func gpusOfProcesses(t *testing.T, transport []string, more ...string) {
	args := []string{"-m", "tiny", "--data", "glyphs", "--image", "16", "--batch", "8", "--threads", "1", "--profile-steps", "1", "--device-memory", "1GiB"}
	args = append(args, more...)
	want := summaryOf(t, works(t, append([]string{"train", "--json", "--devices", "cuda:0*2", "--steps", "3"}, args...)...).out)
	args = append(args, transport...)
	p := inProcesses(t, 2, append(args, "--devices", "cuda", "--steps", "3")...)
	p.start()
	p.ends(0)
	got := summaryOf(t, p.out.String())
	if got.WeightsSHA256 != want.WeightsSHA256 || got.Loss != want.Loss {
		t.Errorf("two processes: weights %s, loss %v; one: %s, %v", got.WeightsSHA256, got.Loss, want.WeightsSHA256, want.Loss)
	}
	for i, d := range want.Pipe.Devices {
		if x := got.Pipe.Devices[i]; x.PeakBytes != d.PeakBytes || x.MeasuredPeakBytes != d.MeasuredPeakBytes {
			t.Errorf("device %d: %+v, in one process %+v", i, x, d)
		}
	}
	if names := got.Pipe.Devices[0].Name + "; " + got.Pipe.Devices[1].Name; names != "rank 0, cuda:0; rank 1, cuda:1" {
		t.Errorf("devices: %s", names)
	}
	out := filepath.Join(t.TempDir(), "run")
	p = inProcesses(t, 2, append(args, "--devices", "cuda", "--steps", "100000", "--out", out)...)
	p.start()
	p.until(out, 3)
	if err := syscall.Kill(p.children()[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p.ends(128 + 9)
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	if text := p.err.String(); !regexp.MustCompile(`rank 1 on \S+ died: its connection was lost; the last it said: `).MatchString(text) {
		t.Errorf("%s", text)
	}
}
