package main

import (
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint/safetensors"
)

// archive is a small one of torch.export.save's.
func archive(name string) string {
	return filepath.Join("..", "..", "models", "torchexport", "testdata", name, "model.pt2")
}

// An archive trains as a model of the zoo does: under a limit to the same bits, and its parameters keep their names.
// Only this test finds an archive that trains to other bits under a limit, or whose weights evaluate does not read.
func TestTrainArchive(t *testing.T) {
	t.Parallel()
	train := func(more ...string) (weights string) {
		t.Helper()
		out := filepath.Join(t.TempDir(), "run")
		works(t, append([]string{"train", "-m", archive("skips"), "--batch", "32", "--steps", "3", "--lr", "0.05", "--option", "profile.steps=1", "--out", out}, more...)...)
		return filepath.Join(out, finalFile)
	}
	all := train()
	if read(t, all) != read(t, train("--memory", "60%")) {
		t.Error("under a limit the weights are others")
	}
	if read(t, all) == read(t, train("--lr", "0.04")) {
		t.Error("any learning rate gives the same weights")
	}
	f, err := safetensors.Open(all)
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
	works(t, "evaluate", "-m", archive("skips"), "--weights", all)
}

// Commands describe an archive once; what is refused has exit code 2, with the archive's name, and the user's file, line and module.
func TestArchives(t *testing.T) {
	t.Parallel()
	r := works(t, "fit", "-m", archive("tiny"), "--memory", "4MiB")
	if strings.Count(r.err, "13 parameters of 1,076 numbers train, as in PyTorch; 4 of 6 buffers move") != 1 || !strings.Contains(r.out, "32 images of 16x16") {
		t.Errorf("%s, %s", r.out, r.err)
	}
	folder := t.TempDir()
	bad, loud, other := filepath.Join(folder, "bad.pt2"), filepath.Join(folder, "loud.PT2"), filepath.Join(folder, "model.pth")
	write(t, bad, "PK")
	write(t, loud, read(t, archive("tiny")))
	write(t, other, "PK")
	works(t, "profile", "-m", loud)
	const files = " is no file of a model: want a file of PyTorch's export, NAME.onnx or .pt2, a folder of Hugging Face, or a model that plimsoll models lists"
	for _, c := range []struct {
		want string
		args []string
	}{
		{"bad.pt2: it is no zip archive, as torch.export.save writes", []string{"-m", bad}},
		{"none.pt2: no such file", []string{"-m", "none.pt2"}},
		{other + " may have weights, but no graph of a model: write NAME.pt2 with torch.export.save", []string{"-m", other}},
		{folder + files, []string{"-m", folder}},
		{"no/model" + files, []string{"-m", "no/model"}},
		{"known are", []string{"-m", "nomodel"}},
		{"known are", []string{"-m", "nofolder", "--data", "text:no.txt"}}, // the data set is not blamed for the model
		{"aten.linear at torch_export.py:40 (self.fc.0)", []string{"-m", archive("tiny"), "--image", "24"}},
	} {
		if r := plimsoll(t, append([]string{"profile"}, c.args...)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: %d, %s, want %s", c.args, r.code, r.err, c.want)
		}
	}
}

// Models of numbers train on the built-in clusters; data and sizes that are not theirs are refused, and fit knows what of a sample can grow.
func TestNumbers(t *testing.T) {
	t.Parallel()
	r := works(t, "train", "-m", archive("rows"), "--batch", "8", "--steps", "60", "--lr", "0.1", "--option", "profile.steps=1", "--quiet")
	if !strings.Contains(r.out, "on clusters") || !strings.Contains(r.out, "60 of 8 samples of 13 numbers") || !strings.Contains(r.out, "samples/s") {
		t.Error(r.out)
	}
	if r := works(t, "fit", "-m", archive("rows"), "--memory", "4MiB"); strings.Contains(r.out, "largest image") || strings.Contains(r.out, "largest length") {
		t.Error(r.out)
	}
	if r := works(t, "fit", "-m", archive("frames"), "--memory", "4MiB"); !strings.Contains(r.out, "32 samples of 5x24 numbers") || !strings.Contains(r.out, "largest length") {
		t.Error(r.out)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"data set digits has images, and the model reads numbers, N,F", []string{"-m", archive("rows"), "--data", "digits"}},
		{"reads samples of 13 numbers, and no images: leave --image out", []string{"-m", archive("rows"), "--image", "13"}},
		{"reads N,13, not N,3: leave --option data.channels out", []string{"-m", archive("rows"), "--option", "data.channels=3"}},
		{"samples of 6x20 numbers: aten.add", []string{"-m", archive("whisper_encoder"), "--length", "20"}},
		{"gives each of 6 positions a class, and data set clusters has 1 label for each sample", []string{"-m", archive("positions")}},
		{"--tokenizer bytes: --model " + archive("rows") + " reads no text", []string{"-m", archive("rows"), "--tokenizer", "bytes"}},
	} {
		if r := plimsoll(t, append([]string{"profile"}, c.args...)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: %d, %s, want %s", c.args, r.code, r.err, c.want)
		}
	}
}
