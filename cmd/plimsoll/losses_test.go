package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// Each loss of targets trains, on devices of a pipeline and in parts to the same weights, and what is judged is the loss, of bce a share, too.
// Only this test finds a loss whose targets do not reach the device, or an accuracy that means nothing.
func TestLosses(t *testing.T) {
	t.Parallel()
	model, set := archive("losses"), "npy:"+filepath.Dir(archive("losses"))
	weights := map[string]bool{}
	for _, loss := range []string{"mse", "l1", "bce"} {
		var runs [2]string
		for i, how := range [][]string{{"--devices", "cpu*2", "--strategy", "1f1b-flush", "--microbatches", "2"}, {"--accumulate", "2"}} {
			runs[i] = filepath.Join(t.TempDir(), "run")
			works(t, append([]string{"train", "-m", model, "--data", set, "--loss", loss, "--batch", "8", "--steps", "3", "--option", "profile.steps=1", "--out", runs[i]}, how...)...)
		}
		first, second := read(t, filepath.Join(runs[0], finalFile)), read(t, filepath.Join(runs[1], finalFile))
		if first != second || weights[first] {
			t.Errorf("%s: weights of a pipeline and of parts are the same: %v; those of another loss: %v", loss, first == second, weights[first])
		}
		weights[first] = true
		r := works(t, "evaluate", "-m", model, "--data", set, "--loss", loss, "--weights", runs[0], "--json")
		var judged struct {
			Loss     float64
			Accuracy *float64
			Samples  int
		}
		if err := json.Unmarshal([]byte(r.out), &judged); err != nil {
			t.Fatal(err)
		}
		if judged.Loss <= 0 || judged.Samples != 2*3 || (judged.Accuracy != nil) != (loss == "bce") {
			t.Errorf("%s: judged %s", loss, r.out)
		}
		if r := works(t, "train", "-m", model, "--data", set, "--loss", loss, "--batch", "8", "--steps", "1", "-q"); !strings.Contains(r.out, "6 held-out targets") ||
			strings.Contains(r.out, "accuracy") {
			t.Errorf("%s: %s", loss, r.out)
		}
	}
}

// A loss that is not for the data set or the model is refused with both names.
func TestBadLosses(t *testing.T) {
	t.Parallel()
	model, set := archive("losses"), "npy:"+filepath.Dir(archive("losses"))
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--loss cross-entropy is of classes, and data set " + set + " has targets, 3 of each sample", []string{"-m", model, "--data", set}},
		{"--loss mse is of targets, and data set digits has classes", []string{"-m", "tiny", "--loss", "mse"}},
		{"--loss l1 is of targets, and data set opticks has classes", []string{"-m", "gpt2-1-16", "--loss", "l1"}},
		{`--loss: unknown value "huber"`, []string{"-m", model, "--data", set, "--loss", "huber"}},
		{"has 2 outputs, and data set " + set + " has 3 targets of each sample", []string{"-m", "tiny", "--classes", "2", "--image", "4", "--option", "data.channels=2", "--data", set, "--loss", "mse"}},
		{"siamese tells whether two samples have one class", []string{"-m", "siamese", "--image", "4", "--option", "data.channels=2", "--data", set, "--loss", "mse"}},
		{"the model reads 3 channels and 32x32: give --image 4 --option data.channels=2", []string{"-m", "tiny", "--data", set, "--loss", "mse"}},
	} {
		for _, command := range []string{"train", "fit", "profile"} {
			if r := plimsoll(t, append([]string{command}, c.args...)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
				t.Errorf("%s %v: exit %d, %s; want %q", command, c.args, r.code, r.err, c.want)
			}
		}
	}
}
