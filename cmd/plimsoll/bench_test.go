package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A chain is simulated and a model measured into one folder; the same command again does nothing again.
// If the same bench command runs again, only this test finds that it measures the model's points again.
func TestBench(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "b")
	args := []string{
		"bench", "-c", five, "-m", "tiny", "--batch", "8", "--bandwidths", "20MB/s,1GB/s", "--memory", "100%,90%", "--points", "3",
		"--strategy", "rotor,offload-dynprog,pofo", "--steps", "2", "--option", "profile.steps=1", "--out", out,
	}
	first := object(t, args...)
	points := first["points"].([]any)
	sources := map[string]int{}
	for _, p := range points {
		p := p.(map[string]any)
		sources[p["source"].(string)]++
		if p["source"] == "measured" && p["refused"] == nil && p["exact"] != true {
			t.Errorf("%v", p)
		}
	}
	// rotor runs once for each limit of the chain, as no bandwidth changes it.
	if sources["simulated"] != 3*(1+2*2) || sources["measured"] != 2*2*3 {
		t.Errorf("points: %v", sources)
	}
	files := tree(t, out)
	for _, want := range []string{"index.html", "points.csv", "points.jsonl", "figures/fig4.2-tiny-20.0MBps-measured.svg", "figures/fig4.3-five-simulated.svg"} {
		if !slices.Contains(files, want) {
			t.Errorf("%s is not among %v", want, files)
		}
	}
	log := read(t, filepath.Join(out, "points.jsonl"))
	again := works(t, args...)
	if read(t, filepath.Join(out, "points.jsonl")) != log || !strings.Contains(again.err, "was measured before") {
		t.Errorf("a second run is not a continuation: %s", again.err)
	}
	if !strings.Contains(again.out, "claim of the thesis") {
		t.Errorf("no claims: %s", again.out)
	}
}

// A plan file runs beside the strategies, simulated and measured, and as a pipeline; the chain of the documents can be swept.
func TestBenchRunsPlansOfTheUser(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	mine, stages := filepath.Join(folder, "mine.json"), filepath.Join(folder, "stages.json")
	doc := filepath.Join("..", "..", "docs", "chain.json")
	works(t, "plan", "-c", doc, "--memory", "70%", "--strategy", "rotor-exact", "-o", mine)
	points := object(t, "bench", "-c", doc, "--plan", mine, "--points", "4", "--out", filepath.Join(folder, "a"))["points"].([]any)
	ran, refused := 0, 0
	for _, x := range points {
		if p := x.(map[string]any); p["strategy"] == "mine.json" && p["refused"] == nil {
			ran++
		} else if p["strategy"] == "mine.json" {
			refused++
		}
	}
	if ran == 0 || refused == 0 || ran+refused != 4 {
		t.Errorf("the plan ran at %d limits and was refused at %d of 4", ran, refused)
	}
	works(t, "plan", "-c", doc, "--devices", "2", "--memory", "4KiB", "--bandwidth", "1kB/s", "-o", stages)
	if table := works(t, "bench", "pipelines", "-c", doc, "--devices", "2", "--memory", "1B,4KiB", "--bandwidths", "1kB/s", "--plan", stages, "--out", folder).out; !strings.Contains(table, "| stages.json |") || !strings.Contains(table, "| no fit |\n| 4.000 KiB |") {
		t.Error(table)
	}
	taken := filepath.Join(folder, "auto")
	write(t, taken, read(t, mine))
	schedule, other := filepath.Join(folder, "joint"), filepath.Join(t.TempDir(), "stages.json")
	write(t, schedule, read(t, stages))
	write(t, other, read(t, stages))
	pipelines := func(plans string) []string {
		return []string{"bench", "pipelines", "-c", doc, "--memory", "4KiB", "--bandwidths", "1kB/s", "--plan", plans}
	}
	for want, args := range map[string][]string{
		"joint is a strategy":               pipelines(schedule),
		"two files are named stages.json":   pipelines(stages + "," + other),
		"auto is a strategy":                {"bench", "-c", doc, "--plan", taken},
		"give it to plimsoll bench pipelin": {"bench", "-c", doc, "--plan", stages},
		"which is not swept":                {"bench", "-c", five, "--plan", mine},
		"two files are named mine.json":     {"bench", "-c", doc, "--plan", mine + "," + mine},
		"no such file":                      {"bench", "-c", doc, "--plan", "no.json"},
		"give it to plimsoll bench":         pipelines(mine),
	} {
		if r := plimsoll(t, append(args, "--out", filepath.Join(folder, "x"))...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %s, want %s", args, r.code, r.err, want)
		}
	}
}

func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "b")
	for want, args := range map[string][]string{
		"nothing to sweep":     {},
		"--points is 1":        {"-c", five, "--points", "1"},
		"no/such.json":         {"-c", "no/such.json"},
		"unknown strategy":     {"-c", five, "--strategy", "magic"},
		`"12 apples"`:          {"-c", five, "--bandwidths", "12 apples"},
		`"0"`:                  {"-c", five, "--bandwidths", "0"},
		"--memory 0: a limit":  {"-m", "tiny", "--memory", "0"},
		"--steps is 0: give a": {"-m", "tiny", "--steps", "0"},
	} {
		r := plimsoll(t, append([]string{"bench", "--out", out}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %s, want %s", args, r.code, r.err, want)
		}
	}
}

// train prints where the gap of the step in the middle comes from, as text and as JSON; it is the step whose time is printed.
func TestTrainPrintsAReceipt(t *testing.T) {
	t.Parallel()
	args := []string{"train", "-m", "tiny", "--batch", "8", "--steps", "2", "--memory", "90%", "--strategy", "rotor", "--option", "profile.steps=1"}
	o := object(t, args...)
	paid := o["receipt"].(map[string]any)
	if off := o["measured_s_per_step"].(float64) - paid["measured_s"].(float64); off > 2e-9 || off < -2e-9 {
		t.Errorf("measured %v, the receipt's step took %v", o["measured_s_per_step"], paid["measured_s"])
	}
	sum := -paid["gap_s"].(float64)
	for _, c := range paid["causes"].([]any) {
		sum += c.(map[string]any)["seconds"].(float64)
	}
	if sum > 1e-9 || sum < -1e-9 || len(paid["causes"].([]any)) != 7 {
		t.Errorf("%v, off by %g", paid, sum)
	}
	if text := works(t, append(args, "-v")...).out; !strings.Contains(text, "ops slower than profiled") {
		t.Errorf("no receipt:\n%s", text)
	}
}

// The timeline of a plan with transfers has a track for each stream.
func TestTrace(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	plan, out := filepath.Join(folder, "p.json"), filepath.Join(folder, "t.json")
	works(t, "plan", "-c", five, "--memory", "80%", "--strategy", "offload-dynprog", "--bandwidth", "1000B/s", "-o", plan)
	o := object(t, "trace", "-c", five, "-p", plan, "-o", out)
	text := read(t, out)
	if o["ops"] != 14.0 || o["file"] != out || strings.Count(text, `"thread_name"`) != 3 || !strings.Contains(text, `"device to host"`) || !strings.Contains(text, `"B5"`) {
		t.Errorf("%v\n%s", o, text)
	}
	for want, args := range map[string][]string{
		"give either a plan": {"-c", five},
		"--chain is missing": {"-p", plan},
		"is not a folder":    {"-c", five, "-p", plan, "-o", filepath.Join(plan, "t.json")},
		"no such file":       {"-c", five, "-p", filepath.Join(folder, "q.json")},
	} {
		if r := plimsoll(t, append([]string{"trace"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
	}
}
