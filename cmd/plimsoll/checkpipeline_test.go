package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const (
	tables    = "../../planner/pipeline/interop/testdata/pytorch/"
	actions   = "../../planner/pipeline/interop/testdata/checkpoint_schedules/"
	pipedream = "../../planner/profiles/testdata/pipedream/"
)

// TestCheckSchedule: a table of PyTorch's costs without a chain what is expected of it, and can be put on a chain.
func TestCheckSchedule(t *testing.T) {
	t.Parallel()
	o := object(t, "check", "-p", tables+"gpipe_4ranks_1stages_8mb.csv")
	if o["makespan_s"] != 33.0 || math.Abs(o["bubble_fraction"].(float64)-3.0/11) > 1e-12 || o["valid"] != true || o["deadlock"] != false {
		t.Errorf("%v", o)
	}
	r := works(t, "check", "-p", tables+"zbvzerobubble_4ranks_2stages_8mb.comms.csv")
	for _, want := range []string{"4 devices", "8 microbatches", "makespan", "live forwards", "keeps every rule"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in %s", want, r.out)
		}
	}
	o = object(t, "check", "-p", tables+"gpipe_4ranks_1stages_8mb.csv", "-c", pipedream+"vgg16.graph.txt", "--bandwidth", "10GB/s")
	if o["chain"] != "vgg16" || !(o["makespan_s"].(float64) > 0) || o["per_device_peak_bytes"].([]any)[0].(float64) < 1e9 {
		t.Errorf("%v", o)
	}
}

// TestCheckAllSchedules: check prints for every table of PyTorch's exactly the figures that are expected of it.
func TestCheckAllSchedules(t *testing.T) {
	t.Parallel()
	var all map[string]map[string]any
	if err := json.Unmarshal([]byte(read(t, tables+"expected.json")), &all); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(tables + "*.csv")
	if err != nil || len(files) != 39 {
		t.Fatalf("%d tables, %v", len(files), err)
	}
	for _, file := range files {
		want := all[strings.Replace(filepath.Base(file), ".comms", "", 1)]
		r := plimsoll(t, "check", "-p", file, "--json")
		if deadlock := want["deadlock"].(bool); deadlock != (r.code == exitUsage) || !deadlock && r.code != exitOK {
			t.Errorf("%s: exit code %d, %s", file, r.code, r.err)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			t.Fatal(err)
		}
		for name, field := range map[string]string{"bubble_fraction": "bubble_fraction", "deadlock": "deadlock", "makespan": "makespan_s",
			"microbatches": "microbatches", "peak_live_activations": "peak_live_activations", "ranks": "devices", "stages": "stages"} {
			if !reflect.DeepEqual(got[field], want[name]) {
				t.Errorf("%s: %s is %v, want %v", file, field, got[field], want[name])
			}
		}
	}
}

// A table on standard input is read as its file is, without a chain; a plan there still asks for one.
func TestCheckScheduleOnStandardInput(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gpipe_4ranks_1stages_8mb.csv", "zbvzerobubble_4ranks_2stages_8mb.comms.csv", "1f1b_2ranks_1stages_2mb.csv"} {
		file := plimsoll(t, "check", "-p", tables+name, "--json")
		in := plimsollIn(t.Context(), t, read(t, tables+name), "check", "-p", "-", "--json")
		called := `"strategy": "` + strings.TrimSuffix(name, ".csv") + `"`
		if !strings.Contains(file.out, `"strategy": `) || in.code != file.code {
			t.Errorf("%s: exit code %d, of its file %d: %s", name, in.code, file.code, in.err)
		}
		if want := strings.Replace(file.out, called, `"strategy": "standard input"`, 1); in.out != want {
			t.Errorf("%s: standard input gives\n%s, the file\n%s", name, in.out, want)
		}
	}
	// A file with a table's name is read as a table.
	if r := plimsoll(t, "check", "-p", write(t, filepath.Join(t.TempDir(), "junk.csv"), "forward,backward\n")); r.code != exitUsage || !strings.Contains(r.err, "junk.csv") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
	if r := plimsollIn(t.Context(), t, twoStages, "check", "-p", "-"); r.code != exitUsage || !strings.Contains(r.err, "--chain is missing") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
}

// TestCheckIllegalSchedule: PyTorch's printed 1F1B cannot run; the answer is printed, the first op that waits is the error.
func TestCheckIllegalSchedule(t *testing.T) {
	t.Parallel()
	r := plimsoll(t, "check", "-p", tables+"1f1b_2ranks_1stages_2mb.csv", "--json")
	if r.code != exitUsage || !strings.Contains(r.out, `"deadlock": true`) || !strings.Contains(r.out, `"makespan_s": 3`) ||
		!strings.Contains(r.err, "rank 1 cannot run 1B0 (op 1, cell 1): it waits for 1F0, which no rank runs") {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.out, r.err)
	}
}

// TestCheckActions: checkpoint_schedules' actions on a chain.
func TestCheckActions(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(read(t, actions+"single_memory_5.txt"), "# 5 steps\n", "")
	o := object(t, "check", "-c", five, "-p", write(t, filepath.Join(t.TempDir(), "a.txt"), text))
	all := object(t, "check", "-c", five, "--text", "Fall1 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 B2 B1")
	if o["makespan_s"] != all["makespan_s"] || o["peak_bytes"] != all["peak_bytes"] || o["peak_bytes"] == nil {
		t.Errorf("%v, store-all %v", o, all)
	}
}

// twoStages is a pipeline plan for five, one minibatch after the other.
const twoStages = `{"format":"plimsoll.plan/v1","chain":"five","strategy":"hand","weight_versions":"flush","microbatches":1,
"stages":[{"first_layer":1,"last_layer":2,"devices":[0]},{"first_layer":3,"last_layer":5,"devices":[1]}],
"tasks":[{"kind":"F","stage":0,"device":0,"start_s":0,"shift":0},{"kind":"F","stage":1,"device":1,"start_s":100,"shift":0},
{"kind":"B","stage":1,"device":1,"start_s":200,"shift":0},{"kind":"B","stage":0,"device":0,"start_s":300,"shift":0}]}`

func TestCheckPipeline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plan := write(t, filepath.Join(dir, "plan.json"), twoStages)
	platform := write(t, filepath.Join(dir, "platform.json"), `{"devices":2,"memory_bytes":null,"bandwidth_bytes_per_s":null}`)
	o := object(t, "check", "-c", five, "-p", plan, "--platform", platform)
	if o["valid"] != true || o["kind"] != "flush" || !(o["makespan_s"].(float64) > 300) {
		t.Errorf("%v", o)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"memory":    {[]string{"--platform", platform, "--memory", "10"}, exitNoFit, "device 0 needs"},
		"percent":   {[]string{"--platform", platform, "--memory", "40%"}, exitUsage, "--memory is 40%"},
		"platform":  {nil, exitUsage, "--platform p.json"},
		"no file":   {[]string{"--platform", "none.json"}, exitUsage, "none.json"},
		"bandwidth": {[]string{"--platform", platform, "--bandwidth", "1GB/s"}, exitUsage, "CF of stage 0 is missing"},
	} {
		r := plimsoll(t, append([]string{"check", "-c", five, "-p", plan}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: exit code %d, %s; want %d and %q", name, r.code, r.err, c.code, c.want)
		}
	}
	// A stage with ops of its own: layers 1 and 2 are run once more.
	ops := strings.Replace(twoStages, `"devices":[0]}`, `"devices":[0],"ops":[{"op":"forward_checkpoint","layer":1},{"op":"forward_discard","layer":2},
{"op":"forward_all","layer":1},{"op":"forward_all","layer":2},{"op":"backward","layer":2},{"op":"backward","layer":1}]}`, 1)
	plain, again := o, object(t, "check", "-c", five, "-p", write(t, filepath.Join(dir, "ops.json"), ops), "--platform", platform)
	if again["valid"] != true || !(again["makespan_s"].(float64) > plain["makespan_s"].(float64)) {
		t.Errorf("%v, without ops %v", again, plain)
	}
	cut := write(t, filepath.Join(dir, "cut.json"), strings.Replace(ops, `,{"op":"backward","layer":1}]`, `]`, 1))
	if r := plimsoll(t, "check", "-c", five, "-p", cut, "--platform", platform); r.code != exitUsage || !strings.Contains(r.err, "stage 0: bad ops of a stage") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
	early := write(t, filepath.Join(dir, "early.json"), strings.Replace(twoStages, `"start_s":100`, `"start_s":0.5`, 1))
	if r := plimsoll(t, "check", "-c", five, "-p", early, "--platform", platform); r.code != exitUsage || !strings.Contains(r.err, "waits for") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
}

// TestCheckRefusals: a table that names one op of the largest stage is judged at once, and a chain with branches is no pipeline's.
func TestCheckRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := write(t, filepath.Join(dir, "x.csv"), "4095F0")
	if r := plimsoll(t, "check", "-p", table); r.code != exitUsage || !strings.Contains(r.err, "rank 0 cannot run 4095F0") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
	joined := badChain(t, `"layers":[`, `"branches":[1,2],"layers":[`)
	plan := write(t, filepath.Join(dir, "plan.json"), twoStages)
	platform := write(t, filepath.Join(dir, "platform.json"), `{"devices":2,"memory_bytes":null,"bandwidth_bytes_per_s":null}`)
	for _, args := range [][]string{{"-p", plan, "--platform", platform}, {"-p", tables + "gpipe_4ranks_1stages_8mb.csv"}} {
		r := plimsoll(t, append([]string{"check", "-c", joined}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, "the chain has branches") || !strings.Contains(r.err, "[1 2]") {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
	}
}
