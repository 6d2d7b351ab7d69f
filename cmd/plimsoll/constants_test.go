package main

import (
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint/safetensors"
)

// A run's file of weights tells the model's constants. Commands that read the file take them from it, and note the ones that it does not
// tell.
func TestConstantsGoWithWeights(t *testing.T) {
	t.Parallel()
	run := filepath.Join(t.TempDir(), "run")
	works(t, append([]string{"train", "--checkpoint-every", "4", "--out", run}, ofLanguage("llama-1-16,num_attention_heads=2,num_key_value_heads=1,rope_theta=5e2,rms_norm_eps=0.01")...)...)
	final, bare := filepath.Join(run, finalFile), filepath.Join(t.TempDir(), "bare.safetensors")
	f, err := safetensors.Open(final)
	if err != nil {
		t.Fatal(err)
	}
	if about := f.Metadata(); about["rope_theta"] != "500" || about["rms_norm_eps"] != "0.01" || about["format"] != "pt" {
		t.Errorf("the file says %v", about)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, bare, strings.NewReplacer("rope_theta", "rope_thetb", "rms_norm_eps", "rms_norm_epz", "num_attention_heads", "num_attention_heada", "num_key_value_heads", "num_key_value_heada").Replace(read(t, final)))
	judge := func(model, weights string) result {
		return works(t, "evaluate", "-m", model, "--length", "24", "--batch", "8", "--debug", "threads=1", "--weights", weights)
	}
	want := judge("llama-1-16-2-1,rms_norm_eps=1e-2,rope_theta=500", bare)
	if strings.Contains(want.err, "assumed") {
		t.Errorf("all are given: %s", want.err)
	}
	for _, weights := range []string{run, final, filepath.Join(run, "checkpoints", "step-4.safetensors")} {
		got := judge("llama-1-16", weights)
		if got, want := loss(t, got.out), loss(t, want.out); got != want {
			t.Errorf("%s: loss %s, want %s", weights, got, want)
		}
		if !strings.Contains(got.err, "rope_theta is 500, as "+weights+" says") {
			t.Errorf("%s: %s", weights, got.err)
		}
	}
	assumed := judge("llama-1-16", bare)
	if loss(t, assumed.out) == loss(t, want.out) || !strings.Contains(assumed.err, "rope_theta=10000, rms_norm_eps=1e-05, num_attention_heads=4, num_key_value_heads=2 are assumed") ||
		!strings.Contains(assumed.err, "-m llama-1-16,rope_theta=10000,rms_norm_eps=1e-05,num_attention_heads=4,num_key_value_heads=2") {
		t.Errorf("%s%s", assumed.out, assumed.err)
	}
	if other := judge("llama-1-16,rope_theta=600", final); !strings.Contains(other.err, "rope_theta is 600 here, and was 500 when "+final+" was trained") {
		t.Error(other.err)
	}
}

// loss returns the loss in a line of evaluate.
func loss(t *testing.T, line string) string {
	t.Helper()
	_, rest, found := strings.Cut(line, ": loss ")
	if !found {
		t.Fatalf("no loss in %q", line)
	}
	value, _, _ := strings.Cut(rest, ",")
	return value
}
