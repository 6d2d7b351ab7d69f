package main

import (
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint/safetensors"
)

// onnxFile is a small file of PyTorch's.
func onnxFile(name string) string {
	return filepath.Join("..", "..", "models", "onnx", "testdata", name, "model.onnx")
}

// A file trains as a model of the zoo does: under a limit to the same bits, with the images and classes of its export. Its parameters keep
// their names.
// Only this test finds an ONNX file that trains to other bits under a limit, or under other parameter names.
func TestTrainONNX(t *testing.T) {
	t.Parallel()
	train := func(more ...string) string {
		t.Helper()
		out := filepath.Join(t.TempDir(), "run")
		works(t, append([]string{"train", "-m", onnxFile("skips"), "--batch", "32", "--steps", "3", "--lr", "0.05", "--option", "profile.steps=3", "--out", out}, more...)...)
		f, err := safetensors.Open(filepath.Join(out, finalFile))
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, x := range f.Tensors() {
			names[x.Name] = true
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if !names["up.2.6.weight"] || !names["fc.bias"] {
			t.Errorf("tensors are %v", names)
		}
		return read(t, filepath.Join(out, finalFile))
	}
	all := train()
	if all != train("--memory", "60%") {
		t.Error("under a limit the weights are others")
	}
	if all == train("--lr", "0.04") {
		t.Error("any learning rate gives the same weights")
	}
}

// The other commands take a file, too; what is wrong with one is told with its name.
func TestONNXFiles(t *testing.T) {
	t.Parallel()
	tiny := onnxFile("tiny")
	if out := works(t, "fit", "-m", tiny, "--memory", "4MiB"); !strings.Contains(out.out, "32 images of 16x16") {
		t.Errorf("fit: %s", out.out)
	}
	works(t, "profile", "-m", tiny, "--option", "profile.steps=3")
	// Its first layer takes all that store-all does, so that the link is measured in the memory of the step.
	works(t, "train", "-m", tiny, "--steps", "2", "--option", "profile.steps=1", "--out", filepath.Join(t.TempDir(), "run"))
	bad := filepath.Join(t.TempDir(), "bad.onnx")
	write(t, bad, strings.ReplaceAll(read(t, tiny), "MaxPool", "Unknown"))
	for _, c := range []struct {
		want string
		args []string
	}{
		{`bad.onnx: node "/stem/stem.3/Unknown" (Unknown): the op is not supported`, []string{"-m", bad}},
		{"none.onnx: no such file", []string{"-m", "none.onnx"}},
		{"give --option data.channels=3", []string{"-m", tiny, "--option", "data.channels=1"}},
		{"images of 20x20", []string{"-m", tiny, "--image", "20"}},
		{"give --classes 10", []string{"-m", tiny, "--classes", "11"}},
	} {
		if r := plimsoll(t, append([]string{"profile"}, c.args...)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: %d, %s, want %s", c.args, r.code, r.err, c.want)
		}
	}
}

// Commands describe a model's file once, and advise nobody to leave out a --classes that was not given.
func TestONNXFilesSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	r := works(t, "fit", "-m", onnxFile("tiny"), "--memory", "4MiB")
	if strings.Count(r.err, "2 batchnorm, 3 conv2d, 2 linear; 17 tensors of 1,092 numbers") != 1 {
		t.Error(r.err)
	}
	r = plimsoll(t, "train", "-m", onnxFile("tiny"), "--data", "glyphs")
	if want := "has 10 classes, and data set glyphs has 62: give data with at most as many, or export the model with 62"; r.code != exitUsage || !strings.Contains(r.err, want) || strings.Contains(r.err, "leave it out") {
		t.Errorf("exit code %d, %s, want %s", r.code, r.err, want)
	}
	r = plimsoll(t, "train", "-m", onnxFile("sdpa"))
	if want := "has a vocabulary of 40 tokens, and data set opticks one of 256: give data whose tokenizer has at most as many tokens, or export the model with 256"; r.code != exitUsage || !strings.Contains(r.err, want) || strings.Contains(r.err, "leave it out") {
		t.Errorf("exit code %d, %s, want %s", r.code, r.err, want)
	}
}
