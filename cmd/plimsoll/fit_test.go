package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner"
)

// fit says what trains: the smallest limit and the largest batch of a kind are those that train accepts.
func TestFitAgreesWithTrain(t *testing.T) {
	t.Parallel()
	run := func(args ...string) result {
		return plimsoll(t, append([]string{"train", "-m", "tiny", "--image", "16", "--data", "glyphs", "--steps", "1", "--option", "profile.steps=1", "--json"}, args...)...)
	}
	var fit train.Fit
	if err := json.Unmarshal([]byte(works(t, "fit", "-m", "tiny", "--image", "16", "--data", "glyphs", "--batch", "8", "--memory", "1MiB", "--json").out), &fit); err != nil {
		t.Fatal(err)
	}
	for _, k := range fit.Kinds {
		limit := strconv.FormatInt(k.SmallestBytes, 10)
		if r := run("--batch", "8", "--strategy", k.Strategy, "--memory", limit); r.code != exitOK {
			t.Errorf("%s in %s B: %s", k.Kind, limit, r.err)
		}
		if k.Kind == planner.MovesState {
			continue // the search may find a plan that packs better
		}
		less := strconv.FormatInt(k.SmallestBytes-1, 10)
		if r := run("--batch", "8", "--strategy", k.Strategy, "--memory", less); r.code != exitNoFit {
			t.Errorf("%s in %s B: exit code %d", k.Kind, less, r.code)
		}
	}
	best := fit.Kinds[len(fit.Kinds)-2]
	r := run("--batch", "max", "--memory", "1MiB")
	if want := "--batch max: " + strconv.Itoa(best.LargestBatch) + " images fit in 1.000 MiB"; r.code != exitOK || !strings.Contains(r.err, want) {
		t.Errorf("want %q\n%s", want, r.err)
	}
	moves := fit.Kinds[len(fit.Kinds)-1]
	if moves.Kind != planner.MovesState || moves.HostBytes <= 0 || moves.LargestBatch <= best.LargestBatch {
		t.Fatalf("%+v", moves)
	}
	const why = "weights, gradients and optimizer state move too"
	for _, n := range []int{best.LargestBatch + 1, moves.LargestBatch} {
		if r := run("--batch", strconv.Itoa(n), "--memory", "1MiB"); r.code != exitOK || !strings.Contains(r.err, why) {
			t.Errorf("%d images: exit code %d, %s", n, r.code, r.err)
		}
	}
	if r := run("--batch", strconv.Itoa(moves.LargestBatch+1), "--memory", "1MiB"); r.code != exitNoFit {
		t.Errorf("an image more: exit code %d", r.code)
	}
}

// A table says what does not fit, and of several devices what schedules need.
func TestFitForPeople(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ devices, memory, want string }{
		{"cpu", "10KiB", "28 images of 16x16|smallest limit|recompute and offload|no|none|nothing fits; what would help: --memory |several --devices"},
		{"cpu*2", "10KiB", " on 2 devices, 6 layers|schedule|1f1b-flush|nothing fits; what would help: --memory |more --microbatches"},
		{"cpu*7", "1GiB", "no plan on 7 devices"},
	} {
		text := works(t, "fit", "-m", "tiny", "--image", "16", "--batch", "28", "--memory", c.memory, "--devices", c.devices).out
		for want := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
	var fits train.Fit
	if err := json.Unmarshal([]byte(works(t, "fit", "-m", "tiny", "--image", "16", "--data", "glyphs", "--batch", "8", "--devices", "cpu*2", "--memory", "400KiB", "--json").out), &fits); err != nil {
		t.Fatal(err)
	}
	for _, s := range fits.Kinds {
		args := []string{"train", "-m", "tiny", "--image", "16", "--data", "glyphs", "--devices", "cpu*2", "--steps", "2", "--option", "profile.steps=1", "--memory", "400KiB", "--strategy", s.Strategy, "--json"}
		if s.Microbatches > 1 {
			args = append(args, "--microbatches", strconv.Itoa(s.Microbatches))
		}
		if s.SmallestBytes <= 0 || s.LargestBatch%s.Microbatches != 0 {
			t.Fatalf("%+v", s)
		}
		if s.Microbatches == 1 || s.LargestBatch == 0 {
			continue // whose cut is by measured times, or nothing fits
		}
		if r := plimsoll(t, append(args, "--batch", strconv.Itoa(s.LargestBatch))...); r.code != exitOK {
			t.Errorf("%s with %d images: %s", s.Strategy, s.LargestBatch, r.err)
		}
	}
}

func badFits() []badCase {
	fit := func(args ...string) []string { return append([]string{"fit", "-m", "tiny"}, args...) }
	return []badCase{
		{"fit: model", []string{"fit", "-m", "tinny"}, 2, []string{"tinny", "did you mean tiny"}},
		{"fit: profile of another model", fit("--profile", five), 2, []string{"5 layers", "tiny has 6"}},
		{"fit: microbatches alone", fit("--microbatches", "2"), 2, []string{"--microbatches is for pipelines"}},
		{"fit: microbatches", fit("--devices", "cpu*2", "--microbatches", "-2"), 2, []string{"--microbatches is -2"}},
		{"fit: share of devices", fit("--devices", "cpu*2", "--memory", "50%"), 2, []string{"--memory is 50%", "give a size, as in 4GiB"}},
		{"fit: batch", fit("--devices", "cpu*2", "--batch", "9"), 2, []string{"--batch is 9", "4 microbatches"}},
		{"train: largest of a share", []string{"train", "-m", "tiny", "--batch", "max", "--memory", "50%"}, 2, []string{"--batch max with --memory 50%"}},
		{"train: largest on devices", []string{"train", "-m", "tiny", "--batch", "max", "--devices", "cpu*2"}, 2, []string{"--batch max is for one device"}},
		{"train: not one image", []string{"train", "-m", "tiny", "--image", "16", "--batch", "max", "--memory", "1KiB"}, 3, []string{"not one image of 16 pixels fits"}},
	}
}

// Where nothing fits, the answer says what would help, and that is true.
func TestFitSaysWhatHelps(t *testing.T) {
	t.Parallel()
	fit := func(args ...string) (f train.Fit) {
		args = append([]string{"fit", "-m", "tiny", "--image", "16", "--data", "glyphs", "--memory", "1MiB", "--json"}, args...)
		if err := json.Unmarshal([]byte(works(t, args...).out), &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	none := fit("--batch", "64")
	if moves := none.Kinds[len(none.Kinds)-1]; !slices.ContainsFunc(none.Helps, func(s string) bool {
		return strings.HasPrefix(s, "--memory "+strconv.FormatInt(moves.SmallestBytes, 10)+" (plans that "+planner.MovesState) && strings.Contains(s, units.Bytes(moves.HostBytes))
	}) {
		t.Errorf("no advice about %+v in %q", moves, none.Helps)
	}
	if len(none.Helps) < 3 || !strings.HasPrefix(none.Helps[0], "--memory ") || !strings.HasPrefix(none.Helps[1], "--batch ") {
		t.Fatalf("%+v", none)
	}
	for _, flag := range none.Helps[:2] {
		args := append(strings.Fields(flag), "--batch", "64")
		if strings.HasPrefix(flag, "--batch") {
			args = strings.Fields(flag)
		}
		if f := fit(args...); f.Helps != nil || !f.Kinds[len(f.Kinds)-1].Fits {
			t.Errorf("with %s: %+v", flag, f)
		}
	}
}

// Host memory for weights and state that move is counted, as train counts it.
func TestFitCountsHostMemory(t *testing.T) {
	t.Parallel()
	args := []string{"fit", "-m", "llama2-7b", "--batch", "1", "--memory", "16GiB", "--host-memory", "1GiB"}
	var f train.Fit
	if err := json.Unmarshal([]byte(works(t, append(args, "--json")...).out), &f); err != nil {
		t.Fatal(err)
	}
	if moves := f.Kinds[len(f.Kinds)-1]; moves.HostBytes < 48<<30 || moves.Fits || moves.LargestBatch > 0 || f.HostLimitBytes != 1<<30 {
		t.Errorf("%+v", f)
	}
	text := works(t, args...).out
	for _, want := range []string{"of host memory; the limit is 1.000 GiB", "nothing fits; what would help: ", "--host-memory "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A language model's vocabulary is said, and which one it was published with.
func TestFitSaysTheVocabulary(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"256 tokens, as the data or --classes say; gpt2 was published with --classes 50257": nil,
		"50257 tokens, as the data or --classes say\n":                                      {"--classes", "50257"},
	} {
		if text := works(t, append([]string{"fit", "-m", "gpt2", "--batch", "1", "--memory", "16GiB"}, args...)...).out; !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
