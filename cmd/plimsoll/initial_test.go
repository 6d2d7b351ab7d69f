package main

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint/safetensors"
)

// beginning trains tiny for a step on digits and returns its weights, with some more tensors.
func beginning(t *testing.T, more ...safetensors.Info) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	works(t, tinyTrain("--steps", "1", "--out", out)...)
	f, err := safetensors.Open(filepath.Join(out, finalFile))
	if err != nil {
		t.Fatal(err)
	}
	var all []safetensors.Tensor
	for _, x := range f.Tensors() {
		data := make([]float32, 1<<16)
		n := 1
		for _, size := range x.Shape {
			n *= size
		}
		if x.DType == safetensors.I64 {
			all = append(all, safetensors.Tensor{Info: x, Data: func(w io.Writer) error { return binary.Write(w, binary.LittleEndian, int64(40)) }})
			continue
		}
		if err := f.Float32(x.Name, data[:n]); err != nil {
			t.Fatal(err)
		}
		all = append(all, safetensors.Tensor{Info: x, Data: func(w io.Writer) error { return safetensors.WriteFloat32(w, data[:n]) }})
	}
	for _, x := range more {
		all = append(all, safetensors.Tensor{Info: x, Data: func(w io.Writer) error { return safetensors.WriteFloat32(w, make([]float32, x.Shape[0])) }})
	}
	path := filepath.Join(t.TempDir(), "weights.safetensors")
	to, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := firstOf(safetensors.Write(to, nil, all), to.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// tinyTrain is a run of tiny on digits, with more arguments.
func tinyTrain(args ...string) []string {
	return append([]string{"train", "-m", "tiny", "--image", "16", "--batch", "4", "--data", "digits", "--option", "profile.steps=9"}, args...)
}

// A run says which tensors of a weight file it leaves out, and PyTorch's counts of batches go on.
func TestTrainBeginsWithWeights(t *testing.T) {
	t.Parallel()
	path := beginning(t, safetensors.Info{Name: "AuxLogits.fc.bias", DType: safetensors.F32, Shape: []int{3}})
	out := filepath.Join(t.TempDir(), "run")
	r := works(t, tinyTrain("--steps", "2", "--init", path, "--out", out)...)
	for _, want := range []string{"1 tensors of its auxiliary classifier (AuxLogits) are left out", "transform_input", "docs/data.md"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("no %q in %s", want, r.err)
		}
	}
	f, err := safetensors.Open(filepath.Join(out, finalFile))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Int64("bn1.num_batches_tracked"); n != 42 || err != nil {
		t.Errorf("%d batches, %v, want 42", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Weights that are not the model's are refused before anything is measured, with what to do.
func TestTrainRefusesOtherWeights(t *testing.T) {
	t.Parallel()
	path, pth := beginning(t), write(t, filepath.Join(t.TempDir(), "weights.pth"), "PK\x03\x04and so on")
	for _, c := range []struct {
		args []string
		want string
	}{
		{tinyTrain("--init", path, "--classes", "20"), "the file is of a model with 10 classes, this one has 20: give --classes 10"},
		{tinyTrain("--init", path, "--data", "glyphs"), "10 classes, too few for data set glyphs, which has 62"},
		{tinyTrain("--init", path, "-m", "resnet20"), "its tensors are not the model's"},
		{tinyTrain("--init", pth), `s.save_file(torch.load('FILE.pth', map_location='cpu', weights_only=True), 'FILE.safetensors')`},
		{tinyTrain("--classes", "5"), "data set digits has 10: give no fewer, or leave it out"},
	} {
		if r := plimsoll(t, c.args...); r.code != exitUsage || !strings.Contains(r.err, c.want) || strings.Contains(r.err, "measur") {
			t.Errorf("%v: exit %d, %s", c.args, r.code, r.err)
		}
	}
}
