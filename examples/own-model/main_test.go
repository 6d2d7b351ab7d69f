package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/train"
	"plimsoll/models"
	"plimsoll/models/data"
)

func trained(t *testing.T, s settings) *train.Outcome {
	t.Helper()
	out, err := s.train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Under a limit, and after going on from a checkpoint under another, the weights are those of the run without either.
func TestLimitsAndResumeChangeNoBit(t *testing.T) {
	whole := trained(t, settings{devices: "cpu", memory: 100, steps: 40, out: t.TempDir()})
	folder := t.TempDir()
	half := settings{devices: "cpu", memory: 70, steps: 20, out: folder}
	trained(t, half)
	half.steps, half.memory, half.resume = 40, 60, true
	rest := trained(t, half)
	if rest.ResumedFrom != 20 || rest.WeightsSHA256 != whole.WeightsSHA256 {
		t.Errorf("from step %d: weights %s, of the whole run %s", rest.ResumedFrom, rest.WeightsSHA256, whole.WeightsSHA256)
	}
	if rest.MeasuredPeakBytes != rest.PredictedPeakBytes || rest.MeasuredPeakBytes > rest.LimitBytes || rest.LimitBytes >= whole.MeasuredPeakBytes {
		t.Errorf("peak %d B, predicted %d B, limit %d B", rest.MeasuredPeakBytes, rest.PredictedPeakBytes, rest.LimitBytes)
	}
	for _, file := range []string{"report.html", "report.json", "final.safetensors", "checkpoints/step-40.safetensors"} {
		if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
			t.Error(err)
		}
	}
}

// On two and on three devices the weights are the same bits, and the model learns.
func TestPipelines(t *testing.T) {
	two := trained(t, settings{devices: "cpu*2", steps: 40, out: t.TempDir()})
	three := trained(t, settings{devices: "cpu*3", steps: 40, out: t.TempDir()})
	if two.WeightsSHA256 != three.WeightsSHA256 {
		t.Error("the weights depend on the devices")
	}
	if two.Accuracy < 0.5 {
		t.Errorf("%.0f %% of the held-out images, one in four by chance", 100*two.Accuracy)
	}
}

// The model and the data that the program registers are found by name.
func TestNames(t *testing.T) {
	m, err := models.New("stripenet", models.Config{Batch: 2, Image: 16, Channels: 1, Classes: 4})
	if err != nil || len(m.Layers) != 9 {
		t.Errorf("%v", err)
	}
	set, err := data.Open("stripes", data.Options{Image: 16, Channels: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, b := make([]float32, 256), make([]float32, 256)
	la, _ := set.Fill(data.Test, 3, a)
	lb, _ := set.Fill(data.Test, 3+set.TestLen(), b)
	if la != lb || a[17] != b[17] {
		t.Error("test samples do not repeat")
	}
}

// Laid over cmd/plimsoll, own.go gives the program's commands both names.
func TestProgram(t *testing.T) {
	folder := t.TempDir()
	overlay, program := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "plimsoll")
	if err := os.WriteFile(overlay, []byte(`{"Replace": {"cmd/plimsoll/own.go": "examples/own-model/own.go"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./cmd/plimsoll")
	build.Dir = filepath.Join("..", "..")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err := exec.Command(program, "train", "-m", "stripenet", "--data", "stripes", "--batch", "8", "--steps", "2", "--option", "profile.no-cache", "-q").CombinedOutput()
	if err != nil || !strings.Contains(string(text), "stripenet on stripes\nsteps     2 of 8 images") {
		t.Errorf("%v: %s", err, text)
	}
}
