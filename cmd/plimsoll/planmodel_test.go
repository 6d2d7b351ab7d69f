package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/executor/estimate"
	"plimsoll/executor/train"
	"plimsoll/planner"
	"plimsoll/planner/chain"
)

// onH100 returns flags of a small model on an H100 that is only described, by a file and without scratch memory, which would be all that counts.
func onH100(t *testing.T) []string {
	t.Helper()
	d, err := estimate.Open("h100")
	if err != nil {
		t.Fatal(err)
	}
	d.Workspace = 0
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "h100.json")
	write(t, path, string(text))
	return []string{"-m", "gpt2-2-32", "--length", "16", "--batch", "4", "--optimizer", "adamw", "--device", path}
}

// modelPlan runs plan on a model and returns its JSON output.
func modelPlan(t *testing.T, h100 []string, more ...string) (f struct {
	Estimated bool
	modelFigures
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(works(t, slices.Concat([]string{"plan", "--json"}, h100, more)...).out), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// fit and plan share one memory model. At the smallest limit of each kind of plan, plan finds a plan; below that limit it finds none. The
// same holds for train (TestFitAgreesWithTrain).
func TestPlanOfAModelAgreesWithFit(t *testing.T) {
	t.Parallel()
	h100 := onH100(t)
	var fit train.Fit
	if err := json.Unmarshal([]byte(works(t, append([]string{"fit", "--memory", "1MiB", "--json"}, h100...)...).out), &fit); err != nil {
		t.Fatal(err)
	}
	if !fit.Estimated || fit.Device != "NVIDIA H100 SXM" || len(fit.Kinds) < 4 {
		t.Errorf("%+v", fit)
	}
	for _, k := range fit.Kinds {
		limit, less := strconv.FormatInt(k.SmallestBytes, 10), strconv.FormatInt(k.SmallestBytes-1, 10)
		if k.Kind == planner.MovesState { // auto goes over to it
			r := works(t, append([]string{"plan", "--memory", limit}, h100...)...)
			if !strings.Contains(r.err, "weights, gradients and optimizer state move too") || !strings.Contains(r.out, "strategy         residency") {
				t.Errorf("auto in %s B: %s%s", limit, r.err, r.out)
			}
			continue
		}
		f := modelPlan(t, h100, "--strategy", k.Strategy, "--memory", limit)
		if !f.Estimated || f.ArenaBytes > k.SmallestBytes || f.LimitBytes != k.SmallestBytes || f.StepS <= 0 || f.TokensPerS != f.SamplesPerS*16 {
			t.Errorf("%s in %s B: %+v", k.Kind, limit, f)
		}
		if k.Strategy != "store-all" {
			continue // by other times a strategy may find a plan that packs better
		}
		if r := plimsoll(t, append([]string{"plan", "--strategy", k.Strategy, "--memory", less}, h100...)...); r.code != exitNoFit || !strings.Contains(r.err, limit) {
			t.Errorf("%s in %s B: exit code %d: %s", k.Kind, less, r.code, r.err)
		}
	}
}

// Whatever rests on an estimated chain says so: the chain, the plan file, figures and texts. Commands that want measured costs refuse it.
func TestEstimatesSaySo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, p := filepath.Join(dir, "c.json"), filepath.Join(dir, "p.json")
	if r := works(t, append([]string{"profile", "-o", c}, onH100(t)...)...); !strings.Contains(r.out, "step, estimated") || !strings.Contains(r.out, "nothing was measured") {
		t.Error(r.out)
	}
	k, err := chain.Read(c)
	if err != nil || !k.Estimated || k.Device != "NVIDIA H100 SXM" || k.Name != "gpt2-2-32 (estimated for NVIDIA H100 SXM)" {
		t.Fatalf("%+v, %v", k, err)
	}
	for _, args := range [][]string{
		{"plan", "-c", c, "--memory", "80%", "--strategy", "rotor", "-o", p},
		{"check", "-c", c, "-p", p},
		{"plan", "-c", c, "--memory", "1MiB", "--strategy", "residency"},
		{"plan", "-c", c, "--devices", "2", "--bandwidth", "12GB/s"},
		{"plan", "-c", c, "--devices", "2", "--bandwidth", "12GB/s", "--strategy", "1f1b-flush", "--microbatches", "2"},
		{"frontier", "-c", c, "--strategy", "rotor"},
	} {
		if r := works(t, args...); !strings.Contains(r.out, "estimated") {
			t.Errorf("%v does not say so:\n%s", args, r.out)
		}
		if args[len(args)-1] == p {
			continue
		}
		var f struct{ Estimated bool }
		if r := works(t, append(args, "--json")...); json.Unmarshal([]byte(r.out), &f) != nil || !f.Estimated {
			t.Errorf("%v does not say so in JSON:\n%s", args, r.out)
		}
	}
	var plan struct {
		Estimated bool
		Chain     string
	}
	text, err := os.ReadFile(p)
	if err != nil || json.Unmarshal(text, &plan) != nil || !plan.Estimated || plan.Chain != k.Name {
		t.Errorf("the plan file: %v, %s", err, text)
	}
	r := plimsoll(t, "train", "-m", "gpt2-2-32", "--length", "16", "--batch", "4", "--profile", c, "--steps", "1")
	if r.code != exitUsage || !strings.Contains(r.err, c+": the chain is estimated for NVIDIA H100 SXM: give one that plimsoll profile measured") {
		t.Errorf("train: exit code %d: %s", r.code, r.err)
	}
}

// A flag that does not combine with --device or --model is refused by name.
func TestModelsOfPlanAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"plan -m tiny", "--device is missing: give it, as in --device h100; or measure the model"},
		{"plan -m tiny --device h10", `--device: unknown device "h10": did you mean h100?`},
		{"plan -m tiny --device no/such.json", "no/such.json"},
		{"plan -m tiny --device h100 -c c.json", "--chain names a chain and --model a model"},
		{"plan --device h100 -c c.json", "--device describes a model, and there is none"},
		{"plan -m tiny --device h100 --devices 2", "--devices is for a chain file"},
		{"plan -m tiny --device h100 --microbatches 2", "--microbatches is for a chain file"},
		{"plan -m tiny --device h100 --memory 100GiB", "--memory 100GiB is 100.0 GiB, and NVIDIA H100 SXM has 74.51 GiB"},
		{"fit -m tiny --device h100 --devices cpu*2", "--devices is for a device that is here, and --device names one that is not"},
		{"fit -m tiny --device h100 --profile c.json", "--profile is for a device that is here"},
		{"profile -m tiny --device h100 --debug threads=1", "--debug threads is for a device that is here"},
	} {
		r := plimsoll(t, strings.Fields(c.args)...)
		if r.code == exitOK || !strings.Contains(r.err, c.want) || strings.Count(strings.TrimSpace(r.err), "\n") > 0 {
			t.Errorf("%s: exit code %d: %s\nwant %s", c.args, r.code, r.err, c.want)
		}
	}
}
