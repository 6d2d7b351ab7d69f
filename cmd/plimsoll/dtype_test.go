//go:build cgo

package main

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels/cpu"
	"plimsoll/planner/chain"
)

// bfloat16 trains on every path, with the weights of the fastest one.
func TestBFloat16OnEveryPath(t *testing.T) {
	// Serial: it sets environment variables.
	train := func() any {
		return trainTiny(t, "--image", "16", "--batch", "4", "--steps", "2", "--dtype", "bf16", "--memory", "8MiB", "--strategy", "store-all", "--option", "profile.steps=1")["weights_sha256"]
	}
	want := train()
	for _, path := range cpu.Paths() {
		t.Setenv(cpu.PathVariable, path.String())
		if got := train(); got != want {
			t.Errorf("%v: weights are %v, on the fastest path %v", path, got, want)
		}
	}
}

// Weights in bfloat16 are saved as their float32 masters. A run that began under a plan with masters resumes under a plan without them, and
// the reverse. It ends with the weights of an undisturbed run.
// Only this test finds a checkpoint with rounded weights, or a run that goes on with masters and forgets to round them.
func TestMastersResume(t *testing.T) {
	t.Parallel()
	train := func(args ...string) map[string]any {
		t.Helper()
		return object(t, append([]string{"train", "-m", "gpt2-2-64", "--length", "16", "--batch", "4", "--optimizer", "adamw", "--dtype", "bf16",
			"--option", "profile.steps=1", "--debug", "threads=1", "-q"}, args...)...)
	}
	want := train("--steps", "4")["weights_sha256"]
	for _, order := range [][2]string{{"store-all", "zero-offload"}, {"zero-offload", "store-all"}, {"layer-window", "residency"}} {
		out := filepath.Join(t.TempDir(), "run")
		train("--strategy", order[0], "--steps", "2", "--out", out, "--checkpoint-every", "1")
		if got := train("--strategy", order[1], "--steps", "4", "--out", out, "--resume")["weights_sha256"]; got != want {
			t.Errorf("%v: the weights are %v, undisturbed %v", order, got, want)
		}
	}
}

// A run with gradients in bfloat16 resumes under another plan, and ends with the weights of an undisturbed run. A request that keeps
// gradients in another type, or cannot keep them in bfloat16, is refused by name. The cases are a plan that moves no state, another type,
// several devices, a profile and a checkpoint without the option.
func TestNarrowGradientsResume(t *testing.T) {
	t.Parallel()
	base := []string{"train", "-m", "gpt2-2-64", "--length", "16", "--batch", "4", "--optimizer", "adamw", "--option", "profile.steps=1", "--debug", "threads=1", "-q"}
	narrow := slices.Concat(base, []string{"--dtype", "bf16", "--option", "optimizer.gradients=bf16"})
	run := func(args ...string) map[string]any { return object(t, slices.Concat(narrow, args)...) }
	want := run("--steps", "4")
	if want["strategy"] != "residency" || want["predicted_peak_bytes"] != want["measured_peak_bytes"] {
		t.Errorf("without a strategy: %v, peaks of %v and %v bytes", want["strategy"], want["predicted_peak_bytes"], want["measured_peak_bytes"])
	}
	out := filepath.Join(t.TempDir(), "run")
	run("--strategy", "zero-offload", "--steps", "2", "--out", out, "--checkpoint-every", "1")
	if got := run("--strategy", "layer-window", "--accumulate", "1", "--steps", "4", "--out", out, "--resume"); got["weights_sha256"] != want["weights_sha256"] {
		t.Errorf("the weights are %v, undisturbed %v", got["weights_sha256"], want["weights_sha256"])
	}
	profile := filepath.Join(t.TempDir(), "c.json")
	object(t, "profile", "-m", "gpt2-2-64", "--length", "16", "--batch", "4", "--optimizer", "adamw", "--dtype", "bf16", "--option", "profile.steps=1", "-o", profile)
	for _, c := range []struct {
		of   []string
		args []string
		says string
	}{
		{narrow, []string{"--strategy", "rotor"}, "--strategy rotor makes none"},
		{base, []string{"--option", "optimizer.gradients=bf16"}, "give --dtype bf16"},
		{narrow, []string{"--devices", "cpu*2"}, "for one device"},
		{narrow, []string{"--strategy", "zero-offload", "--profile", profile}, "wide_gradient_bytes is 0"},
		{base, []string{"--dtype", "bf16", "--out", out, "--resume"}, "gradients"},
	} {
		if r := plimsoll(t, slices.Concat(c.of, c.args, []string{"--steps", "4"})...); r.code == exitOK || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit %d, %s; want %q", c.args, r.code, r.err, c.says)
		}
	}
}

// A training in bfloat16 keeps every promise of one in float32, and follows it: on the reference kernels, and on the CPU's own.
// Only this test finds a bfloat16 run that writes another type into its chain file, or goes on in float32.
func TestTrainInBFloat16(t *testing.T) {
	t.Parallel()
	t.Run("reference", func(t *testing.T) {
		if testing.Short() {
			t.Skip("nightly: the reference kernels are slow")
		}
		trainInBFloat16(t, "--debug", "reference")
	})
	t.Run("cpu", func(t *testing.T) {
		trainInBFloat16(t, "--debug", "threads=2") // each thread has scratch, and limits are in bytes
	})
}

func trainInBFloat16(t *testing.T, with ...string) {
	out := filepath.Join(t.TempDir(), "run")
	train := func(args ...string) map[string]any {
		t.Helper()
		all := append([]string{"--image", "16", "--batch", "16", "--option", "profile.steps=1", "--steps", "3"}, with...)
		return trainTiny(t, append(all, args...)...)
	}
	wide, want := train(), train("--dtype", "bf16", "--strategy", "store-all", "--memory", "8MiB", "--out", out, "--checkpoint-every", "2")
	less := train("--dtype", "bf16", "--memory", "92%", "--strategy", "rotor")
	for _, field := range []string{"weights_sha256", "loss", "accuracy"} {
		if less[field] != want[field] {
			t.Errorf("%s is %v under a limit, %v without", field, less[field], want[field])
		}
	}
	if less["measured_peak_bytes"] != less["predicted_peak_bytes"] || less["measured_peak_bytes"].(float64) >= want["measured_peak_bytes"].(float64) {
		t.Errorf("measured peak %v, predicted %v, of store-all %v", less["measured_peak_bytes"], less["predicted_peak_bytes"], want["measured_peak_bytes"])
	}
	a, b := want["loss"].(float64), wide["loss"].(float64)
	if want["weights_sha256"] == wide["weights_sha256"] || math.Abs(a-b) > 0.05*b {
		t.Errorf("the loss is %v, in float32 %v", a, b)
	}
	if c, err := chain.Read(filepath.Join(out, "chain.json")); err != nil || c.DType != "bfloat16" {
		t.Errorf("the chain file is %+v, %v", c, err)
	}
	r := plimsoll(t, append([]string{"train", "-m", "tiny", "--image", "16", "--batch", "16", "--steps", "3", "--resume", "--out", out}, with...)...)
	if r.code != 2 || !strings.Contains(r.err, `dtype was "bfloat16" and is "float32" here`) {
		t.Errorf("going on in float32 ends with %d: %s", r.code, r.err)
	}
}

// A training in TF32, on the CPU's own kernels, takes the memory of one in float32 and follows it, closely; under a limit it
// gives the same bits.
func TestTrainInTF32(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	train := func(args ...string) map[string]any {
		t.Helper()
		return trainTiny(t, append([]string{"--image", "16", "--batch", "16", "--option", "profile.steps=1", "--steps", "3", "--debug", "threads=2"}, args...)...)
	}
	wide := train("--strategy", "store-all", "--memory", "2MiB")
	want := train("--dtype", "tf32", "--strategy", "store-all", "--memory", "2MiB", "--out", out, "--checkpoint-every", "2")
	less := train("--dtype", "tf32", "--memory", "92%", "--strategy", "rotor")
	for _, field := range []string{"weights_sha256", "loss", "accuracy"} {
		if less[field] != want[field] {
			t.Errorf("%s is %v under a limit, %v without", field, less[field], want[field])
		}
	}
	if less["measured_peak_bytes"] != less["predicted_peak_bytes"] || want["measured_peak_bytes"] != wide["measured_peak_bytes"] {
		t.Errorf("measured peak %v, predicted %v; of store-all %v, in float32 %v", less["measured_peak_bytes"], less["predicted_peak_bytes"],
			want["measured_peak_bytes"], wide["measured_peak_bytes"])
	}
	a, b := want["loss"].(float64), wide["loss"].(float64)
	if want["weights_sha256"] == wide["weights_sha256"] || math.Abs(a-b) > 0.005*b {
		t.Errorf("the loss is %v, in float32 %v", a, b)
	}
	if c, err := chain.Read(filepath.Join(out, "chain.json")); err != nil || c.DType != "tf32" {
		t.Errorf("the chain file is %+v, %v", c, err)
	}
	r := plimsoll(t, "train", "-m", "tiny", "--image", "16", "--batch", "16", "--steps", "3", "--resume", "--out", out)
	if r.code != 2 || !strings.Contains(r.err, `dtype was "tf32" and is "float32" here`) {
		t.Errorf("going on in float32 ends with %d: %s", r.code, r.err)
	}
}
