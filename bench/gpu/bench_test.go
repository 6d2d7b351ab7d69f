package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// measureAll runs every part on a device with tiny shapes and returns the outcomes.
func measureAll(t *testing.T, device string) map[string]*outcome {
	t.Helper()
	all := map[string]*outcome{}
	program := filepath.Join(t.TempDir(), "plimsoll")
	build := []string{"build", "-o", program}
	if device != "cpu" {
		build = append(build, "-tags", "cuda")
	}
	if text, err := exec.Command("go", append(build, "plimsoll/cmd/plimsoll")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for name := range parts {
		file := filepath.Join(t.TempDir(), name+".json")
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-tiny", "-device", device, "-program", program, "-result", file, name}, &out); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out.String())
			continue
		}
		o := &outcome{}
		must(t, readJSON(file, o))
		if o.State != green || o.Part != name || o.Summary == "" || len(o.Figures) < 10 || !strings.Contains(o.Markdown, "|---|") {
			t.Errorf("%s: %+v", name, o)
		}
		if o.Environment.Commit == "" || o.Environment.Device == "" || o.Environment.Library == "" {
			t.Errorf("%s does not say where it is from: %+v", name, o.Environment)
		}
		all[name] = o
	}
	if len(all) != len(parts) {
		t.Errorf("measured %d parts, want %d", len(all), len(parts))
	}
	return all
}

// figures reads the figures of a part.
func figures[T any](t *testing.T, o *outcome) (f T) {
	t.Helper()
	if o == nil {
		t.Fatal("the part has no outcome")
	}
	must(t, json.Unmarshal(o.Figures, &f))
	return f
}

// checkFigures: everything that is timed took time, every op has a floor, every limit has a row.
func checkFigures(t *testing.T, all map[string]*outcome, types int) {
	t.Helper()
	steps := figures[[]stepRow](t, all["steps"])
	if len(steps) != 2*types*trainedSteps {
		t.Errorf("%d losses were compared", len(steps))
	}
	copies := figures[struct {
		Copies   []copyRow     `json:"copies"`
		Slowdown []slowdownRow `json:"slowdown"`
	}](t, all["copies"])
	if len(copies.Copies) != 2*5 || len(copies.Slowdown) != 2 {
		t.Errorf("%d copies and %d slowdowns were measured", len(copies.Copies), len(copies.Slowdown))
	}
	for _, row := range copies.Copies {
		if row.Rate <= 0 {
			t.Errorf("%+v", row)
		}
	}
	ops := figures[opFigures](t, all["ops"])
	kinds := map[string]bool{}
	for _, row := range ops.Rows {
		kinds[row.DType+row.Op] = true
		if row.Seconds <= 0 || row.Floor <= 0 || row.Bytes <= 0 || row.Count < 1 {
			t.Errorf("%+v", row)
		}
	}
	if len(kinds) < types*6 {
		t.Errorf("the ops are %v", kinds)
	}
	if speeds := figures[[]speedRow](t, all["throughput"]); len(speeds) != types || speeds[0].Images <= 0 || speeds[0].PeakBytes <= 0 {
		t.Errorf("the speeds are %+v", speeds)
	}
	checkRotor(t, figures[rotorFigures](t, all["rotor"]))
	vendors := figures[vendorFigures](t, all["vendors"])
	for _, row := range vendors.Rows {
		if row.Ours <= 0 || row.Chosen <= 0 || row.Count < 1 {
			t.Errorf("%+v", row)
		}
	}
	if len(vendors.Rows) < types*6 {
		t.Errorf("%d products were compared", len(vendors.Rows))
	}
	checkOffload(t, figures[offloadFigures](t, all["offload"]))
	checkBeyond(t, figures[beyondFigures](t, all["beyond"]))
}

// checkOffload: plans with transfers ran, with the bits of store-all.
func checkOffload(t *testing.T, f offloadFigures) {
	t.Helper()
	moved := 0
	for _, row := range f.Rows {
		if row.Refused != "" {
			continue
		}
		if row.Copies > 0 {
			moved++
		}
		if !row.Same || row.Measured <= 0 || row.Compute <= 0 || row.Hidden < 0 || row.Hidden > 1 || row.Extent < row.PlanBytes {
			t.Errorf("%+v", row)
		}
	}
	if len(f.Rows) != 8 || moved < 2 {
		t.Errorf("%d rows, %d with transfers", len(f.Rows), moved)
	}
}

// checkBeyond: what is larger than the device trained within it.
func checkBeyond(t *testing.T, f beyondFigures) {
	t.Helper()
	if f.StoreAll <= f.Device || len(f.Rows) != len(beyondStrategies) {
		t.Fatalf("%+v", f)
	}
	for _, row := range f.Rows {
		if row.Error != "" || row.Images <= 0 || row.Predicted <= 0 || row.PeakBytes > f.Device || row.PlanBytes > row.PeakBytes {
			t.Errorf("%+v", row)
		}
	}
}

func checkRotor(t *testing.T, f rotorFigures) {
	t.Helper()
	ran, recomputed := 0, 0
	for _, row := range f.Rows {
		if row.Refused != "" {
			continue
		}
		ran++
		if row.Forwards > f.Rows[0].Forwards {
			recomputed++
		}
		if !row.Same || row.PeakBytes != row.PlanBytes || row.Extent > row.Limit || row.Measured <= 0 || row.Predicted <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if a := f.Audit; a == nil || a.PeakBytes != a.PlanBytes || a.Extent > a.Limit {
		t.Errorf("the audit is %+v", a)
	}
	if len(f.Rows) != len(shares) || ran < 3 || recomputed < 2 {
		t.Errorf("%d limits, %d plans ran, %d of them with recomputation", len(f.Rows), ran, recomputed)
	}
}

func TestPartsOnTheCPU(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("nightly: make gpu-rehearsal and the parts on the emulated driver are as long")
	}
	lib, err := cpu.New(nil, cpu.Options{Threads: 1})
	must(t, err)
	types := 2
	if _, err := lib.Workspace(kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{kernels.F32(4).As(kernels.BFloat16)}}); err == nil {
		types = 3
	}
	all := measureAll(t, "cpu")
	checkFigures(t, all, types)
	for name, o := range all {
		if o.Environment.Simulated {
			t.Errorf("%s: the CPU is simulated", name)
		}
	}
}

// TestRun: what a command gave becomes green, red, stopped or skipped, in the folder's results; a part that runs again
// replaces its result.
func TestRun(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	tests := "=== RUN   TestA\n--- PASS: TestA (0.1s)\n    --- PASS: TestA/b (0.1s)\n--- SKIP: TestC (0.0s)\n"
	for _, c := range []struct {
		state, summary string
		args           []string
	}{
		{red, "1 tests passed, 1 failed, 0 skipped", []string{"-part", "kernels", "-tests", "run", "printf", `--- PASS: TestA (0s)\n--- FAIL: TestB (0s)\n`}},
		{red, "0 tests passed, 0 failed, 1 skipped", []string{"-part", "kernels", "-tests", "run", "printf", `--- SKIP: TestC (0s)\n`}},
		{red, "2 tests passed, 0 failed, 1 skipped: they found no GPU", []string{"-part", "kernels", "-tests", "run", "printf", "%s", tests + "        cudatest.go:30: needs a GPU: no libcuda\n"}},
		{green, "2 tests passed, 0 failed, 1 skipped", []string{"-part", "kernels", "-tests", "run", "printf", "%s", tests}},
		{red, "2 tests passed, 0 failed, 1 skipped", []string{"-part", "executor", "-tests", "run", "sh", "-c", `printf "%s" "$0"; exit 1`, tests}},
		{red, "no device", []string{"-part", "validate", "run", "sh", "-c", "echo no device >&2; exit 3"}},
		{green, "2 plans: 1 bit-identical to store-all, 1 at the predicted peak", []string{"-part", "validate", "run", "echo",
			`{"rows":[{"identical":true,"predicted_peak_bytes":5,"measured_peak_bytes":6},{"predicted_peak_bytes":7,"measured_peak_bytes":7}]}`}},
		{green, "2 pipelines: 1 of 1 with a flush bit-identical to one device, median error of the time 25.0 %", []string{"-part", "pipelines", "run", "echo",
			`{"median_error":0.25,"rows":[{"identical":true,"per_device":[{}]},{"identical":null,"per_device":[{}]}]}`}},
		{stopped, "stopped after 200ms", []string{"-part", "ops", "-limit", "200ms", "run", "sh", "-c", "sleep 60 & wait"}},
		{skipped, "it is not here", []string{"-part", "memcheck", "-missing", "it is not here", "run"}},
	} {
		var out bytes.Buffer
		err := run(t.Context(), append([]string{"-device", "cpu", "-out", folder}, c.args...), &out)
		if (err != nil) != (c.state == red || c.state == stopped) {
			t.Errorf("%q: %v", c.args, err)
		}
		if fields := strings.Split(out.String(), "\t"); len(fields) != 4 || fields[1] != c.state || strings.TrimSpace(fields[3]) != c.summary {
			t.Errorf("%q prints %q, want %s, %s", c.args, out.String(), c.state, c.summary)
		}
	}
	r, err := readResults(folder)
	must(t, err)
	var names []string
	for _, p := range r.Parts {
		names = append(names, p.Part+" "+p.State)
	}
	if got := strings.Join(names, ", "); got != "kernels green, executor red, validate green, pipelines green, memcheck skipped, ops stopped" {
		t.Errorf("the results are %s", got)
	}
	log, err := os.ReadFile(filepath.Join(folder, "log.txt"))
	must(t, err)
	if !strings.Contains(string(log), "no device") || strings.Count(string(log), "==> ") != 10 {
		t.Errorf("the log is %s", log)
	}
	var table bytes.Buffer
	must(t, run(t.Context(), []string{"-out", folder, "summary"}, &table))
	if strings.Count(table.String(), "\n") != 6 {
		t.Errorf("the summary is %s", table.String())
	}
}

// TestAStoppedPartKeepsItsFigures: a measuring part that is stopped, or fails, leaves what it had.
func TestAStoppedPartKeepsItsFigures(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "part.json")
	p := &part{options: options{result: file}, outcome: outcome{Part: "rotor", State: green, Summary: "so far"}}
	p.text.WriteString("| row |\n")
	must(t, p.save([]int{1, 2}))
	err := run(t.Context(), []string{"-device", "cpu", "-out", folder, "-part", "rotor", "-result", file, "-limit", "200ms", "run", "sleep", "60"}, &bytes.Buffer{})
	if err == nil {
		t.Error("it was not stopped")
	}
	r, err := readResults(folder)
	must(t, err)
	if got := r.Parts[0]; got.State != stopped || got.Summary != "so far; stopped after 200ms" || got.Markdown != "| row |\n" || len(figures[[]int](t, got)) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestBadCommands(t *testing.T) {
	t.Parallel()
	for want, args := range map[string]string{
		`unknown part "jump"`:       "jump",
		"unknown part \"\"":         "",
		"flags stand before":        "steps -tiny",
		"needs -part and a command": "run true",
	} {
		if err := run(t.Context(), strings.Fields(args), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestParseJob(t *testing.T) {
	t.Parallel()
	j, err := parseJob("resnet50:224:64:bf16:checkpoint:4")
	if want := (peerJob{job{"resnet50", 224, 64}, "bf16", "checkpoint"}); err != nil || j != want {
		t.Errorf("%+v, %v", j, err)
	}
	for _, text := range []string{"", "a:b:c:d:e", "a:1:c:d:e", "a:1:2"} {
		if _, err := parseJob(text); err == nil {
			t.Errorf("%q is a job", text)
		}
	}
}
