package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An adapter is trained in two runs as in one, is read again from its folder, and evaluates as the run's own weights do.
func TestTrainAdapters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	model := []string{"-m", "llama-2-16", "--length", "8", "--batch", "4"}
	with := func(command string, more ...string) []string {
		return append(append([]string{command}, model...), more...)
	}
	works(t, with("train", "--steps", "2", "--out", at("base"))...)
	base := filepath.Join(at("base"), finalFile)
	settings := "r=2,alpha=4,targets=q_proj+v_proj+down_proj"
	lora := with("train", "--init", base, "--lora", settings, "--optimizer", "adamw", "--lr", "0.01")
	whole := object(t, append(lora, "--steps", "4", "--out", at("a"))...)
	works(t, append(lora, "--steps", "2", "--checkpoint-every", "2", "--out", at("b"))...)
	resumed := object(t, append(lora, "--steps", "4", "--resume", "--out", at("b"))...)
	if whole["weights_sha256"] != resumed["weights_sha256"] || whole["weights_sha256"] == nil {
		t.Errorf("weights are %v, and in two runs %v", whole["weights_sha256"], resumed["weights_sha256"])
	}
	folder := object(t, with("evaluate", "--weights", base, "--lora", at("a"))...)["loss"]
	own := object(t, with("evaluate", "--weights", at("a"), "--lora", settings)...)["loss"]
	alone := object(t, with("evaluate", "--weights", base)...)["loss"]
	if folder != own || folder == alone {
		t.Errorf("losses are %v with the adapter's folder, %v with the run's weights, %v without", folder, own, alone)
	}
	if r := works(t, append(with("train", "--init", base, "--lora", at("a"), "--steps", "1"), "--out", at("c"))...); r.code != exitOK {
		t.Error(r.err)
	}
	for want, args := range map[string][]string{
		"has no adapter":                        with("evaluate", "--weights", base, "--lora", settings),
		"adapter_config.json":                   with("evaluate", "--weights", base, "--lora", at("base")),
		"leave --freeze out":                    with("train", "--freeze", "lm_head", "--lora", settings),
		"is none of r, alpha":                   with("train", "--lora", "rank=3"),
		"is of another run":                     append(lora, "--steps", "6", "--resume", "--out", at("b"), "--lora", "r=2,targets=q_proj"),
		"unexpected":                            with("evaluate", "--weights", at("a")),
		"weight_gradient_bytes":                 with("train", "--profile", filepath.Join(at("base"), "chain.json"), "--freeze", "model.norm"),
		`no weight or module of llama-2-16 has`: with("plan", "--device", "h100", "--memory", "1GiB", "--freeze", "nothing"),
		"every weight of llama-2-16 is frozen":  with("fit", "--memory", "1GiB", "--freeze", "*"),
		"shape":                                 with("evaluate", "--weights", base, "--lora", changed(t, at("a"), `"r": 2`, `"r": 3`)),
	} {
		if r := plimsoll(t, args...); r.code != exitUsage && r.code != exitFailed || !strings.Contains(r.err, want) {
			t.Errorf("plimsoll %s: exit code %d, %s, want %q", strings.Join(args, " "), r.code, r.err, want)
		}
	}
}

// changed returns a copy of an adapter's folder in whose settings a text stands for another.
func changed(t *testing.T, folder, old, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		held, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "adapter_config.json" {
			held = []byte(strings.Replace(string(held), old, text, 1))
		}
		write(t, filepath.Join(dir, name), string(held))
	}
	return dir
}
