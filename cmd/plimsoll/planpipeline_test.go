package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner"
)

// TestPlanPipeline: every strategy for several devices plans a real chain, or says why it cannot, and check finds nothing wrong with
// its plan.
func TestPlanPipeline(t *testing.T) {
	t.Parallel()
	graph, planned := pipedream+"resnet50.graph.txt", 0
	for _, s := range planner.Pipelines() {
		if s.Name == "milp" || s.Name == "ilp" {
			continue // searches for long
		}
		file := filepath.Join(t.TempDir(), "p.json")
		r := plimsoll(t, "plan", "-c", graph, "--devices", "4", "--memory", "16GB", "--bandwidth", "12GB/s", "--strategy", s.Name, "-o", file, "--json")
		if r.code != exitOK {
			if !strings.Contains(r.err, s.Name) || r.code != exitUsage && r.code != exitNoFit {
				t.Errorf("%s: exit code %d: %s", s.Name, r.code, r.err)
			}
			continue
		}
		var got, again map[string]any
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(works(t, "check", "-c", graph, "-p", file, "--json").out), &again); err != nil {
			t.Fatal(err)
		}
		if got["seconds_per_minibatch"] != again["seconds_per_minibatch"] || !(got["seconds_per_minibatch"].(float64) > 0) || again["valid"] != true {
			t.Errorf("%s: plan says %v, check %v", s.Name, got, again)
		}
		planned++
	}
	if planned < 12 {
		t.Errorf("%d strategies planned, want at least 12", planned)
	}
}

// An operator graph is not linearized for pipedream. From plan and from bench it takes the authors' time or less, where its plain chain
// takes twice that time. Check and trace recognize the plan's layers.
func TestPipeDreamKnowsGraphs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	graph, file := pipedream+"gnmt.graph.txt", filepath.Join(dir, "p.json")
	on := []string{"plan", "--devices", "8", "--bandwidth", "3.125GB/s", "--strategy", "pipedream"}
	seconds := func(args ...string) float64 { return object(t, args...)["seconds_per_minibatch"].(float64) }
	got := seconds(append(on, "-c", graph, "-o", file)...)
	const authors = 0.019032 // s: flat8_25G of the authors' program
	if !(got > 0) || got > authors*(1+1e-9) {
		t.Errorf("%v s, the authors' program says %v", got, authors)
	}
	if again := seconds("check", "-c", graph, "-p", file); again != got {
		t.Errorf("plan says %v, check %v", got, again)
	}
	works(t, "trace", "-c", graph, "-p", file, "-o", filepath.Join(dir, "t.json"))
	chain := filepath.Join(dir, "c.json")
	works(t, "import", graph, "-o", chain)
	if plain := seconds(append(on, "-c", chain)...); plain < got*1.2 {
		t.Errorf("%v s linearized, %v s not", plain, got)
	}
	bench := object(t, "bench", "pipelines", "-c", graph, "--devices", "8", "--memory", "64GB", "--bandwidths", "3.125GB/s", "--strategy", "pipedream", "--plan", file, "--out", filepath.Join(dir, "out"))
	for _, point := range bench["points"].([]any) { // pipedream's and the plan's
		if point.(map[string]any)["seconds_per_minibatch"] != got {
			t.Errorf("bench says %v, plan %v", point, got)
		}
	}
	if n := len(bench["points"].([]any)); n != 2 {
		t.Errorf("%d points", n)
	}
}

// TestPlanPipelineOutput: stages, a picture and a trace; auto-flush by default, joint where versions may be stale.
func TestPlanPipelineOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"plan", "-c", pipedream + "vgg16.graph.txt", "--devices", "2", "--memory", "8GB", "--bandwidth", "12GB/s"}
	r := works(t, append(args, "--versions", "stash", "--svg", filepath.Join(dir, "p.svg"), "--trace", filepath.Join(dir, "p.trace.json"))...)
	for _, want := range []string{"stage 1: layers", "joint: periodic pipeline of", "period", "keeps every rule"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in %s", want, r.out)
		}
	}
	for _, flush := range [][]string{nil, {"--microbatches", "6"}, {"--versions", "flush"}} {
		if r := works(t, append(args, flush...)...); !strings.Contains(r.out, "auto-flush (") || !strings.Contains(r.out, ": flush pipeline of") {
			t.Errorf("%v: %s", flush, r.out)
		}
	}
	if svg := read(t, filepath.Join(dir, "p.svg")); !strings.Contains(svg, "device 1") {
		t.Errorf("the picture has no device 1: %.200s", svg)
	}
	if trace := read(t, filepath.Join(dir, "p.trace.json")); !strings.Contains(trace, `"F0(`) {
		t.Errorf("the trace has no F0: %.200s", trace)
	}
}

// TestPlanPipelineRefuses: what is missing or contradicts is named, and a memory that is too small comes with one that works.
func TestPlanPipelineRefuses(t *testing.T) {
	t.Parallel()
	graph := pipedream + "resnet50.graph.txt"
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--bandwidth is missing", []string{"--devices", "2"}},
		{"--devices is -1", []string{"--devices", "-1"}},
		{"give one of them", []string{"--devices", "2", "--platform", "p.json"}},
		{"--memory is 50%", []string{"--devices", "2", "--bandwidth", "1GB/s", "--memory", "50%"}},
		{"rotor plans for one device: for several there are", []string{"--devices", "2", "--bandwidth", "1GB/s", "--strategy", "rotor"}},
		{"--option interleaved.chunks is a setting of interleaved, and no --strategy is given", []string{"--option", "interleaved.chunks=2"}},
		{"nowhere.json", []string{"--platform", "nowhere.json"}},
	} {
		if r := plimsoll(t, append([]string{"plan", "-c", graph}, c.args...)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: exit code %d, %q; want %q", c.args, r.code, r.err, c.want)
		}
	}
	args := []string{"plan", "-c", graph, "--devices", "4", "--bandwidth", "12GB/s", "--strategy", "contiguous"}
	r := plimsoll(t, append(args, "--memory", "1GB")...)
	_, rest, found := strings.Cut(r.err, "(--memory ")
	if r.code != exitNoFit || !found {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	smallest, _, _ := strings.Cut(rest, ")")
	works(t, append(args, "--memory", smallest)...)
}

// TestBenchPipelinesRefuses: what contradicts.
func TestBenchPipelinesRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--node is -1":                {"--node", "-1"},
		"--node and --node-bandwidth": {"--node", "2"},
		"--devices: 6 are not whole":  {"--node", "4", "--node-bandwidth", "9GB/s", "--devices", "6"},
		"--microbatches is -2":        {"--microbatches", "-2"},
		"--devices: 0 is not from 1":  {"--devices", "0"},
	} {
		args = append([]string{"bench", "pipelines", "-c", five, "--memory", "1kB", "--bandwidths", "1GB/s", "--out", t.TempDir()}, args...)
		if r := plimsoll(t, args...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %q; want %q", args, r.code, r.err, want)
		}
	}
}

// TestBenchPipelines: the tables have the speed-ups of the points, and the duels count them.
func TestBenchPipelines(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	r := works(t, "bench", "pipelines", "-c", pipedream+"resnet50.graph.txt", "--devices", "2,4", "--memory", "5GB,16GB", "--bandwidths", "12GB/s",
		"--strategy", "contiguous,madpipe", "--out", out, "--json")
	var got struct {
		Points []struct {
			Strategy string
			Devices  int
			Fits     bool
			Speedup  float64
		}
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Points) != 8 {
		t.Fatalf("%d points, want 8", len(got.Points))
	}
	for _, p := range got.Points {
		if p.Fits != (p.Speedup > 0) || p.Speedup > float64(p.Devices) {
			t.Errorf("%+v", p)
		}
	}
	if rows := strings.Count(read(t, filepath.Join(out, "points.csv")), "\n"); rows != 9 {
		t.Errorf("%d rows, want 9", rows)
	}
	tables := read(t, filepath.Join(out, "tables.md"))
	for _, want := range []string{"| memory | contiguous | madpipe |", "madpipe beside contiguous: both fit at", "of 4 points"} {
		if !strings.Contains(tables, want) {
			t.Errorf("no %q in %s", want, tables)
		}
	}
	if r := plimsoll(t, "bench", "pipelines", "-c", "x.json"); r.code != exitUsage {
		t.Errorf("exit code %d without memory", r.code)
	}
}

// GPipe with recomputation: plan and check print the same figures, the timeline is drawn, and noise is simulated. A file that lacks
// last_ops, so that the last microbatch recomputes too, or that lacks ops, is another plan.
func TestPlanCheckpointed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, svg := filepath.Join(dir, "p.json"), filepath.Join(dir, "p.svg")
	made := object(t, "plan", "-c", five, "--devices", "2", "--bandwidth", "100B/s", "--strategy", "gpipe-checkpoint", "--microbatches", "3", "-o", file, "--svg", svg)
	all := object(t, "plan", "-c", five, "--devices", "2", "--bandwidth", "100B/s", "--strategy", "gpipe", "--microbatches", "3", "--accounting", "saved")
	if made["makespan_s"].(float64) <= all["makespan_s"].(float64) || !strings.Contains(read(t, svg), "B1(2)") {
		t.Errorf("%v, gpipe %v", made, all)
	}
	for d, peak := range made["per_device_peak_bytes"].([]any) {
		if peak.(float64) >= all["per_device_peak_bytes"].([]any)[d].(float64) {
			t.Errorf("device %d: %v bytes, gpipe %v", d, peak, all["per_device_peak_bytes"])
		}
	}
	found := object(t, "check", "-c", five, "-p", file, "--noise", "5%", "--runs", "3")
	for _, field := range []string{"makespan_s", "per_device_peak_bytes", "per_device_busy_s", "bubble_fraction"} {
		if !reflect.DeepEqual(made[field], found[field]) {
			t.Errorf("%s: plan says %v, check %v", field, made[field], found[field])
		}
	}
	if r := found["noise"].(map[string]any)["without_noise"].(map[string]any)["ratio_to_plan"].(float64); r > 1+1e-9 || r < 0.99 {
		t.Errorf("without noise %g of the plan", r)
	}
	stage := made["placed"].([]any)[0].(map[string]any)
	if stage["sequence"] == "" || stage["last_sequence"] == "" || stage["sequence"] == stage["last_sequence"] {
		t.Errorf("%v", stage)
	}
	text := read(t, file)
	without := strings.ReplaceAll(text, `"last_ops"`, `"kept_ops"`)
	if without == text {
		t.Fatal("no last_ops in the file")
	}
	if r := plimsoll(t, "check", "-c", five, "-p", write(t, file, without)); r.code != exitUsage || !strings.Contains(r.err, "it waits for") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
	if r := plimsoll(t, "check", "-c", five, "-p", write(t, file, strings.ReplaceAll(text, `"ops":`, `"no_ops":`))); r.code != exitUsage || !strings.Contains(r.err, `"last_ops" without "ops"`) {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
}

// A plan whose picture or timeline cannot be written leaves none of its files.
func TestPicturesThatFailLeaveNothing(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	for _, full := range []string{"-o", "--svg", "--trace"} {
		folder := t.TempDir()
		args := []string{"plan", "-c", five, "--devices", "2", "--bandwidth", "1kB/s"}
		for _, flag := range []string{"-o", "--svg", "--trace"} {
			path := filepath.Join(folder, strings.Trim(flag, "-"))
			if flag == full {
				path = "/dev/full"
			}
			args = append(args, flag, path)
		}
		if r := plimsoll(t, args...); r.code != exitFailed || !strings.Contains(r.err, "/dev/full") {
			t.Errorf("%s: exit code %d: %s", full, r.code, r.err)
		}
		if files := tree(t, folder); len(files) > 0 {
			t.Errorf("%s: %v", full, files)
		}
	}
}

// Plans with replicas say how stale their stashed weights are. One stage on all devices is data parallelism: its next round begins while
// the gradients of the last round are added up.
func TestPlanSaysWhatReplicasMiss(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ chain, devices, versions, want string }{
		{five, "2", "stash", "stage 0, 2 replicas: the weights of a forward miss no update\n"},
		{five, "2", "latest", "stage 0, 2 replicas: the weights of a forward miss no update\n"},
		{pipedream + "vgg16.graph.txt", "8", "stash", "stage 0, 7 replicas: the weights of a forward miss 2 updates\n"},
		{pipedream + "vgg16.graph.txt", "4", "stash", "stage 0, 3 replicas: their gradients are added up in 3 buckets, until 260 µs behind the last backward\n"},
		{pipedream + "vgg16.graph.txt", "4", "stash", "stage 0, 3 replicas: the weights of a forward miss 2 updates\n"},
		{pipedream + "resnext50.graph.txt", "2", "double_buffered", ""},
	} {
		text := works(t, "plan", "-c", x.chain, "--devices", x.devices, "--bandwidth", "12GB/s", "--strategy", "pipedream", "--versions", x.versions).out
		if !strings.Contains(text, x.want) || x.want == "" && strings.Contains(text, "miss") {
			t.Errorf("%s on %s devices, %s: no %q in\n%s", x.chain, x.devices, x.versions, x.want, text)
		}
	}
}

// If a file states wrong figures of its plan, check prints a note and still accepts the plan.
func TestCheckNotesWhatAPlanSaysWrongly(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.json")
	works(t, "plan", "-c", five, "--devices", "2", "--bandwidth", "100B/s", "--strategy", "gpipe", "-o", file)
	if r := works(t, "check", "-c", five, "-p", file); strings.Contains(r.err, "note:") {
		t.Error(r.err)
	}
	text := read(t, file)
	wrong := regexp.MustCompile(`"per_device_peak_bytes": ?\[\s*`).ReplaceAllString(text, `${0}1`)
	if wrong == text {
		t.Fatal("no peaks in the file")
	}
	if r := works(t, "check", "-c", five, "-p", write(t, file, wrong)); !strings.Contains(r.err, "note: the plan says that per_device_peak_bytes is [1") {
		t.Errorf("%q", r.err)
	}
}

// A chain that was profiled at several batch sizes lets a plan choose among them; check knows the size again, and train runs it.
func TestBatchSizesOfAProfile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chain, file := filepath.Join(dir, "c.json"), filepath.Join(dir, "p.json")
	model := []string{"-m", "tiny", "--image", "16"}
	o := object(t, append([]string{"profile", "--batch", "2,8,4", "--option", "profile.steps=1", "-o", chain}, model...)...)
	if others := o["other_batches"].([]any); o["batch"] != 2.0 || len(others) != 2 || others[0].(map[string]any)["batch"] != 8.0 {
		t.Errorf("profile: %v", o)
	}
	plan := []string{"plan", "-c", chain, "--devices", "2", "--bandwidth", "10GB/s"}
	planned := object(t, append(plan, "--batch", "8", "-o", file)...)
	batch, parts := planned["batch"].(float64), planned["microbatches"].(float64)
	if planned["strategy"] != "auto-flush" || batch*parts != 8 {
		t.Errorf("%v", planned)
	}
	step := func(o map[string]any) float64 { // with the updates
		updates, _ := o["updates_s"].(float64)
		return o["makespan_s"].(float64) + updates
	}
	for _, size := range []string{"1", "2", "4"} { // microbatches of a step: none is faster
		one := object(t, append(plan, "--batch", "8", "--microbatches", size)...)
		if step(one) < step(planned)*(1-1e-9) {
			t.Errorf("with %s microbatches a step of %v s, chosen %v s", size, step(one), step(planned))
		}
	}
	if again := object(t, "check", "-c", chain, "-p", file); again["makespan_s"] != planned["makespan_s"] || again["batch"] != batch {
		t.Errorf("planned %v, check %v", planned, again)
	}
	if free := object(t, append(plan, "--strategy", "joint")...); free["batch"] == nil || free["kind"] != "periodic" {
		t.Errorf("joint: %v", free)
	}
	run := slices.Concat([]string{"train", "--devices", "cpu*2", "--profile", chain, "--plan", file, "--steps", "1", "-q"}, model)
	works(t, append(run, "--batch", "8")...)
	for want, args := range map[string][]string{
		"--batch is missing: the chain was profiled at several batch sizes":      append(plan, "--microbatches", "2"),
		"a step of 9 samples has no whole number of microbatches of 2 or 4 or 8": append(plan, "--batch", "9"),
		"--batch is for schedules with a flush: joint takes the batch size":      append(plan, "--batch", "8", "--strategy", "joint"),
		"was not measured at a batch of":                                         append(run, "--batch", "48"),
		`"8" is no other number of samples`:                                      append([]string{"profile", "--batch", "8,8"}, model...),
		"give a number of samples, max with train, or several with profile":      append([]string{"train", "--batch", "8,16"}, model...),
		"is for pipelines: give --devices 4 or --platform platform.json too":     {"plan", "-c", chain, "--batch", "8"},
	} {
		if r := plimsoll(t, args...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d: %s, want %q", args, r.code, r.err, want)
		}
	}
}
