package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"plimsoll/executor/train"
)

// cycleRun is a run of 16 steps along a plan that moves weights and state over a slow link.
func cycleRun(strategy ...string) []string {
	return append([]string{
		"train", "-m", "gpt2-2-64", "--length", "16", "--batch", "4", "--steps", "16", "--optimizer", "adamw", "--lr-schedule", "cosine", "--warmup", "3",
		"--bandwidth", "60MB/s", "--option", "profile.steps=1", "--json", "-q", "--strategy",
	}, strategy...)
}

// killedCycles are plans of each order of updates and microbatches.
var killedCycles = [][]string{
	{"layer-window"}, {"residency", "--memory", "1100KiB"}, {"greedysnake", "--accumulate", "2"}, {"zero-offload", "--clip-norm", "0.5"},
}

// saving reports whether a checkpoint of a run is being written: its folder is there, and the file in it has not its name yet.
func saving(out string) bool {
	folders, _ := filepath.Glob(filepath.Join(out, train.Checkpoints, "step-*")) // the pattern is right
	for _, f := range folders {
		files, err := os.ReadDir(f)
		if err == nil && slices.ContainsFunc(files, func(e os.DirEntry) bool { return e.Name() != "stage-0.safetensors" }) {
			return true
		}
	}
	return false
}

// saves waits until a checkpoint is being written, or the run has ended, and says which.
func (p *process) saves(out string) bool {
	for !saving(out) {
		select {
		case <-p.over:
			return false
		default:
		}
	}
	return true
}

// Runs whose weights and state move are killed and resumed, and end with the weights of runs that were left alone. Copies take most of each
// step, so that most kills meet some; every other kill waits until a checkpoint is being written.
// Only this test finds state on the host that a checkpoint takes from two steps.
func TestKilledCyclesEndTheSame(t *testing.T) {
	t.Parallel()
	kills := 20
	if testing.Short() {
		kills = 4
	}
	if text := os.Getenv(killedEnv); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s is %q: give a number", killedEnv, text)
		}
	}
	r := rand.New(rand.NewPCG(30, 1))
	killed, whileSaving := 0, 0
	for round := 0; killed < kills; round++ {
		args := cycleRun(killedCycles[round%len(killedCycles)]...)
		alone := filepath.Join(t.TempDir(), "alone")
		want := weights(t, works(t, append(slices.Clone(args), "--out", alone)...).out)
		out := filepath.Join(t.TempDir(), "run")
		line := append(slices.Clone(args), "--out", out, "--checkpoint-every", strconv.Itoa(1+round%3), "--resume")
		here := 0 // kills of this run
		for done := false; !done; {
			p := start(t, line...)
			if here < 5 && killed < kills {
				switch {
				case killed%2 == 0:
					p.reaches(out, logged(out)+1+r.IntN(3))
					time.Sleep(time.Duration(r.IntN(20000)) * time.Microsecond)
				case p.saves(out):
					whileSaving++
				}
				_ = p.Process.Kill() // it may have ended
			}
			switch code := p.end(); code {
			case exitOK:
				done = true
				var o train.Summary
				if err := json.Unmarshal(p.out.Bytes(), &o); err != nil || o.WeightsSHA256 != want || o.MeasuredPeakBytes != o.PredictedPeakBytes {
					t.Errorf("%v: %+v, left alone %s, %v", args, o, want, err)
				}
				wantPipeLog(t, out, 16)
			case -1:
				killed, here = killed+1, here+1
			default:
				t.Fatalf("%v: exit code %d: %s", args, code, p.err.String())
			}
		}
		if a, b := read(t, filepath.Join(out, finalFile)), read(t, filepath.Join(alone, finalFile)); a != b {
			t.Errorf("%v: %s differs", args, finalFile)
		}
	}
	if whileSaving == 0 {
		t.Error("no checkpoint was being written when a run was killed")
	}
	t.Logf("%d kills, %d of them while a checkpoint was written", killed, whileSaving)
}

// Random delays of streams, of copies and of updates on the host change no bit of plans that move weights and state, and no peak.
// Only this test finds a wait of such a plan that is left to chance in the program as users run it.
func TestChaosChangesNoBitOfCycles(t *testing.T) {
	t.Parallel()
	seeds := 4
	if testing.Short() {
		seeds = 1
	}
	for i, strategy := range [][]string{{"layer-window"}, {"residency", "--memory", "5MB"}, {"greedysnake", "--accumulate", "2"}, {"zero-offload", "--clip-norm", "0.5"}} {
		args := append([]string{ // which has few held-out samples to evaluate
			"train", "-m", "mlp", "--batch", "32", "--steps", "8", "--optimizer", "adamw", "--option", "profile.steps=1", "--json", "-q", "--strategy",
		}, strategy...)
		want := weights(t, works(t, args...).out)
		for seed := range seeds {
			var o train.Summary
			text := works(t, append(slices.Clone(args), "--debug", "chaos="+strconv.Itoa(4*i+seed+1))...).out
			if err := json.Unmarshal([]byte(text), &o); err != nil || o.WeightsSHA256 != want || o.MeasuredPeakBytes != o.PredictedPeakBytes {
				t.Errorf("%v: %+v, without delays %s, %v", args, o, want, err)
			}
		}
	}
}
