package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/train"
)

// ofText is a run of a small language model.
func ofText(more ...string) []string { return ofLanguage("gpt2-2-16", more...) }

func ofLanguage(model string, more ...string) []string {
	return append([]string{"-m", model, "--length", "24", "--batch", "8", "--debug", "threads=1", "--steps", "4", "--option", "profile.steps=1", "--optimizer", "adamw", "--lr", "0.01"}, more...)
}

// A language model trains the same bits along every plan of one device. Runs in parts, on several devices, in several processes and after a
// resume train the same bits, too.
// Only this test finds a language model that trains other bits in parts or after a resume, or miscounts its tokens.
func TestLanguageModelsTrainOnText(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"gpt2-2-16", "llama-2-16", "gpt2-2-16-tied"} {
		t.Run(model, func(t *testing.T) { trainsOnText(t, model) })
	}
}

func trainsOnText(t *testing.T, model string) {
	ofText := func(more ...string) []string { return ofLanguage(model, more...) }
	once := func(args ...string) train.Summary {
		return summaryOf(t, works(t, append([]string{"train", "--json", "--quiet"}, args...)...).out)
	}
	same := func(what string, got, want train.Summary) {
		t.Helper()
		if got.WeightsSHA256 != want.WeightsSHA256 || got.TestCorrect != want.TestCorrect || got.PredictedPeakBytes != got.MeasuredPeakBytes {
			t.Errorf("%s: weights %s, %d correct, peak %d of %d; want %s, %d", what, got.WeightsSHA256, got.TestCorrect,
				got.MeasuredPeakBytes, got.PredictedPeakBytes, want.WeightsSHA256, want.TestCorrect)
		}
	}
	want := once(ofText("--strategy", "store-all")...)
	if want.TokensPerS <= 0 || want.TestSamples != 56718 || want.TestCorrect == 0 {
		t.Errorf("%v tokens/s, %d of %d tokens are right", want.TokensPerS, want.TestCorrect, want.TestSamples)
	}
	same("75%", once(ofText("--memory", "75%", "--strategy", "rotor")...), want)
	if testing.Short() && model != "gpt2-2-16" {
		return
	}
	parts := once(ofText("--accumulate", "4")...)
	same("parts in less memory", once(ofText("--accumulate", "4", "--memory", "95%", "--strategy", "rotor")...), parts)
	if strings.HasSuffix(model, "-tied") {
		return
	}
	p := inProcesses(t, 2, ofText("--strategy", "1f1b-flush", "--microbatches", "4", "--devices", "cpu")...)
	p.start()
	p.ends(0)
	same("2 processes", summaryOf(t, p.out.String()), parts)
	if model != "gpt2-2-16" {
		return
	}
	same("offload", once(ofText("--memory", "75%", "--strategy", "pofo", "--bandwidth", "2GB/s")...), want)
	run := filepath.Join(t.TempDir(), "run")
	once(append(slices.Replace(ofText("--out", run), 9, 10, "2"), "--checkpoint-every", "2")...)
	same("resumed", once(ofText("--out", run, "--resume", "--strategy", "store-all")...), want)
	begun := once(append(slices.Replace(ofText("--init", filepath.Join(run, finalFile)), 9, 10, "1"), "--lr", "1e-30")...)
	if begun.WeightsSHA256 != want.WeightsSHA256 {
		t.Errorf("weights that a run has left, and another one has begun with, are %s, want %s", begun.WeightsSHA256, want.WeightsSHA256)
	}
}

// On one device, Muon trains the same bits along every plan, with state on the host, on one thread or two, and after a resume. With a
// flush, several devices, also as replicas, train the bits of one device with its steps in parts.
// Only this test finds that train with muon takes other bits with offloaded state, in parts or after a resume.
func TestMuonTrainsTheSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("the bits of Muon are those of shorter tests of kernels and executors; the command is tried at full size")
	}
	t.Parallel()
	with := func(args ...string) train.Summary {
		s := summaryOf(t, works(t, append(append([]string{"train", "--json", "--quiet"}, ofText("--optimizer", "muon")...), args...)...).out)
		if s.PredictedPeakBytes != s.MeasuredPeakBytes {
			t.Errorf("%v: peak %d, predicted %d", args, s.MeasuredPeakBytes, s.PredictedPeakBytes)
		}
		return s
	}
	run := filepath.Join(t.TempDir(), "run")
	for _, same := range [][][]string{
		{
			{"--strategy", "store-all"}, {"--memory", "85%", "--strategy", "rotor"}, {"--debug", "threads=2", "--strategy", "store-all"},
			{"--offload-state", "optimizer", "--memory", "90%"}, {"--offload-state", "weights"},
			{"--steps", "2", "--strategy", "store-all", "--out", run, "--checkpoint-every", "2"}, {"--steps", "4", "--strategy", "store-all", "--out", run, "--resume"},
		},
		{
			{"--accumulate", "4", "--strategy", "store-all"}, {"--devices", "cpu*2", "--strategy", "1f1b-flush", "--microbatches", "4"},
		},
	} {
		want := with(same[0]...).WeightsSHA256
		for _, args := range same[1:] {
			if got := with(args...).WeightsSHA256; (got == want) == (args[0] == "--steps" && args[1] == "2") {
				t.Errorf("%v: weights %s, of %v %s", args, got, same[0], want)
			}
		}
	}
}

// A text of one's own is read, and what does not go together is refused with a word on what would.
func TestTextsOfOnesOwn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tea.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("Tea for two, and two for tea. ", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	got := summaryOf(t, works(t, append([]string{"train", "--json", "--data", "text:" + file}, slices.Replace(ofText(), 9, 10, "40")...)...).out)
	if got.Accuracy < 0.5 {
		t.Errorf("%.0f%% of a text that repeats itself are right after 40 steps", 100*got.Accuracy)
	}
	for _, c := range []struct{ args, want string }{
		{"-m gpt2-2-16 --data digits", "give it text, as in opticks or text:PATH"},
		{"-m resnet20 --data opticks", "give it images, as in digits or folder:PATH"},
		{"-m gpt2-2-18", "18 channels, want a multiple of 4"},
		{"-m llama-2-20", "20 channels, want a multiple of 8"},
		{"-m llama-2-16-3", "width is 16, which 3 heads do not divide"},
		{"-m llama-2-16-tied --length 8 --devices cpu*2 --strategy 1f1b*", "give one with a flush, or -m llama-2-16-untied"},
		{"-m gpt2-2-16 --length 0", "--length is 0"},
		{"-m gpt2-2-16 --classes 10", "data set opticks has 256"},
		{"-m gpt2-2-16 --data text:" + file + " --length 200", "give more text, or a smaller --length"},
	} {
		if r := plimsoll(t, append([]string{"train"}, strings.Fields(c.args)...)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("train %s: exit code %d, %q, want %q", c.args, r.code, r.err, c.want)
		}
	}
}
