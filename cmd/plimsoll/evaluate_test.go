package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A small vocabulary of byte pairs, as GPT-2's files have it.
func vocabulary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	numbers := map[string]int{}
	next := rune(256)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' {
			numbers[string(b)] = int(b)
		} else {
			numbers[string(next)] = int(b)
			next++
		}
	}
	numbers["th"], numbers["the"] = 256, 257
	text, err := json.Marshal(numbers)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"encoder.json": string(text), "vocab.bpe": "#version: 0.2\nt h\nth e\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Weights that were trained are judged as train judged them, wherever they are, and continue a text the same way each time.
func TestEvaluateAndGenerate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	words, file, run := vocabulary(t), filepath.Join(dir, "tea.txt"), filepath.Join(dir, "run")
	if err := os.WriteFile(file, []byte(strings.Repeat("Tea for the two, and the two for tea. ", 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	model := []string{"-m", "gpt2-2-16", "--length", "24", "--debug", "threads=1", "--tokenizer", words}
	trained := summaryOf(t, works(t, append([]string{"train", "--json", "--quiet", "--data", "text:" + file, "--batch", "8", "--steps", "60", "--option", "profile.steps=1",
		"--strategy", "store-all", "--optimizer", "adamw", "--lr", "0.01", "--out", run}, model...)...).out)

	var judged evaluateFigures
	for _, weights := range []string{run, filepath.Join(run, "final.safetensors")} {
		text := works(t, append([]string{"evaluate", "--json", "--data", "text:" + file, "--batch", "4", "--weights", weights}, model...)...).out
		if err := json.Unmarshal([]byte(text), &judged); err != nil {
			t.Fatal(err)
		}
		if judged.Correct == 0 || judged.Accuracy != trained.Accuracy || judged.Perplexity == nil || math.Abs(*judged.Perplexity-math.Exp(judged.Loss)) > 1e-12 {
			t.Errorf("%+v, trained with accuracy %v", judged, trained.Accuracy)
		}
	}
	bin := filepath.Join(dir, "tea.bin")
	works(t, "tokenize", "--data", "text:"+file, "--tokenizer", words, "--output", bin)
	var same evaluateFigures
	text := works(t, append([]string{"evaluate", "--json", "--data", "tokens:" + bin, "--batch", "4", "--weights", run}, model[:6]...)...).out
	if err := json.Unmarshal([]byte(text), &same); err != nil || same.Loss != judged.Loss {
		t.Errorf("tokens of a file: %+v, want %+v: %v", same, judged, err)
	}

	generate := func(more ...string) (g generateFigures) {
		t.Helper()
		out := works(t, slices.Concat([]string{"generate", "--json", "--weights", run, "--tokens", "40"}, model, more)...).out
		if err := json.Unmarshal([]byte(out), &g); err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := generate("--prompt", "Tea for ")
	if again := generate("--prompt", "Tea for "); again.Text != first.Text || len(first.Tokens) != 40 || !strings.Contains(first.Text, "two") {
		t.Errorf("%q, and then %q", first.Text, again.Text)
	}
	if one := generate("--prompt", "Tea for ", "--temperature", "0.7", "--top-k", "1"); one.Text != first.Text {
		t.Errorf("the likeliest of one: %q, want %q", one.Text, first.Text)
	}
	drawn := generate("--prompt", "Tea for ", "--temperature", "2", "--seed", "3")
	if again := generate("--prompt", "Tea for ", "--temperature", "2", "--seed", "3"); again.Text != drawn.Text {
		t.Errorf("one seed: %q and %q", drawn.Text, again.Text)
	}
	if other := generate("--prompt", "Tea for ", "--temperature", "2", "--seed", "4"); other.Text == drawn.Text {
		t.Errorf("two seeds: %q", other.Text)
	}
	shown := works(t, slices.Concat([]string{"generate", "--weights", run, "--tokens", "40", "--prompt", "Tea for "}, model)...).out
	if shown != "Tea for "+first.Text+"\n" {
		t.Errorf("%q is shown, want %q", shown, first.Text)
	}
}

// Arguments that do not go together are refused, with a word on arguments that would.
func TestBadEvaluations(t *testing.T) {
	t.Parallel()
	words := vocabulary(t)
	here := t.TempDir()
	bin := filepath.Join(here, "x.bin")
	works(t, "tokenize", "--data", "opticks", "--output", bin)
	for _, c := range []struct {
		says string
		args []string
	}{
		{"--weights", []string{"evaluate", "-m", "resnet20"}},
		{"no such file", []string{"evaluate", "-m", "resnet20", "--weights", filepath.Join(here, "none")}},
		{"one device", []string{"evaluate", "-m", "resnet20", "--weights", here, "--devices", "cpu*2"}},
		{"reads no text", []string{"evaluate", "-m", "resnet20", "--weights", here, "--tokenizer", words}},
		{"reads no text", []string{"generate", "-m", "resnet20", "--weights", here, "--prompt", "a"}},
		{"--prompt", []string{"generate", "-m", "gpt2-1-16", "--weights", here}},
		{"--tokens is 0", []string{"generate", "-m", "gpt2-1-16", "--weights", here, "--prompt", "a", "--tokens", "0"}},
		{"--temperature is -1", []string{"generate", "-m", "gpt2-1-16", "--weights", here, "--prompt", "a", "--temperature", "-1"}},
		{"--top-k is -2", []string{"generate", "-m", "gpt2-1-16", "--weights", here, "--prompt", "a", "--top-k", "-2"}},
		{"has no encoder.json", []string{"generate", "-m", "gpt2-1-16", "--weights", here, "--prompt", "a", "--tokenizer", here}},
		{"has no encoder.json", []string{"train", "-m", "gpt2-1-16", "--tokenizer", here}},
		{"leave it out", []string{"train", "-m", "gpt2-1-16", "--tokenizer", words, "--data", "tokens:" + bin}},
		{"it begins with", []string{"train", "-m", "gpt2-1-16", "--data", "tokens:" + filepath.Join(words, "encoder.json")}},
		{"--data", []string{"tokenize", "--output", bin}},
		{"--output", []string{"tokenize", "--data", "opticks"}},
		{"is no text", []string{"tokenize", "--data", "digits", "--output", bin}},
	} {
		got := plimsoll(t, c.args...)
		if got.code != 2 || !strings.Contains(got.err, c.says) {
			t.Errorf("%v: exit code %d: %s", c.args, got.code, got.err)
		}
	}
}
