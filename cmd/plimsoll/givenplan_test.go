package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/train"
	"plimsoll/planner/pipeline"
)

// tinyChain profiles the model of onDevices with a batch of so many images.
func tinyChain(t *testing.T, batch int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.json")
	works(t, "profile", "-m", "tiny", "--image", "16", "--batch", fmt.Sprint(batch), "--option", "profile.steps=3", "-o", path, "-q")
	return path
}

// plannedFor plans a chain for two devices that are linked at 1 GB/s.
func plannedFor(t *testing.T, chain string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.json")
	works(t, append([]string{"plan", "-c", chain, "--devices", "2", "--bandwidth", "1GB/s", "--accounting", "saved", "-o", path}, args...)...)
	return path
}

// along is a run of a plan, as arguments.
func along(plan string, args ...string) []string {
	base := []string{"train", "-m", "tiny", "--batch", "8", "--image", "16", "--devices", "cpu*2", "--plan", plan, "--steps", "12", "--option", "profile.steps=9", "--option", "platform.ops-at-once=2", "--json"}
	return append(base, args...)
}

func trainedAlong(t *testing.T, args ...string) (o train.Summary) {
	t.Helper()
	if err := json.Unmarshal([]byte(works(t, args...).out), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Train runs a given plan unchanged: the run's folder has the stages and tasks of the plan. The weights equal the weights of a run that
// makes the same plan itself.
// Only this test finds that train changes stages, tasks or the period of a plan that it is given.
func TestTrainAlongAPlan(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		batch        int
		plan, itself []string
	}{
		{8, []string{"--strategy", "1f1b*", "--versions", "stash"}, []string{"--strategy", "1f1b*", "--versions", "stash"}},
		{8, []string{"--strategy", "madpipe"}, []string{"--strategy", "madpipe"}},
		{2, []string{"--strategy", "1f1b-flush", "--microbatches", "4"}, []string{"--strategy", "1f1b-flush", "--microbatches", "4"}},
	} {
		chain := tinyChain(t, x.batch)
		plan := plannedFor(t, chain, x.plan...)
		out := filepath.Join(t.TempDir(), "run")
		args := along(plan, "--profile", chain, "--out", out, "--checkpoint-every", "6", "-q")
		got := trainedAlong(t, args...)
		itself := slices.DeleteFunc(along("", "--profile", chain, "--peer-bandwidth", "1GB/s", "--out", filepath.Join(t.TempDir(), "itself"), "--checkpoint-every", "6", "-q"),
			func(s string) bool { return s == "--plan" || s == "" })
		want := trainedAlong(t, append(itself, x.itself...)...)
		if got.WeightsSHA256 != want.WeightsSHA256 || got.Strategy != want.Strategy || got.PredictedS != want.PredictedS || got.Pipe.Versions != want.Pipe.Versions {
			t.Errorf("%v: %+v, planned by the run itself %+v", x.plan, got, want)
		}
		asked, err := pipeline.Read(plan)
		if err != nil {
			t.Fatal(err)
		}
		ran, err := pipeline.Read(filepath.Join(out, "plan.json"))
		if err != nil || !reflect.DeepEqual(asked.Stages, ran.Stages) || !reflect.DeepEqual(asked.Tasks, ran.Tasks) || asked.Period != ran.Period {
			t.Errorf("%v: another plan ran: %v", x.plan, err)
		}
		args[slices.Index(args, "--steps")+1] = "24"
		if o := trainedAlong(t, append(args, "--resume")...); o.ResumedFrom != 12 || o.Steps != 24 {
			t.Errorf("%v: resumed from %d of %d steps", x.plan, o.ResumedFrom, o.Steps)
		}
	}
}

// A plan that breaks rules is refused with every violation, as check says them.
func TestViolationsOfAPlan(t *testing.T) {
	t.Parallel()
	chain, bad := tinyChain(t, 8), tinyByHand(t, `"start_s":150`, `"start_s":100`)
	checked := plimsoll(t, "check", "-c", chain, "-p", bad)
	for _, command := range []string{"train", "validate"} {
		r := plimsoll(t, command, "-m", "tiny", "--batch", "8", "--image", "16", "--devices", "cpu*2", "--plan", bad, "--profile", chain)
		said := 0
		for line := range strings.Lines(checked.out) {
			if !strings.HasPrefix(line, "task") && !strings.Contains(line, ": task ") {
				continue
			}
			if said++; !strings.Contains(r.err, line) {
				t.Errorf("%s does not say %s: %s", command, line, r.err)
			}
		}
		if r.code != exitUsage || said < 2 || r.out != "" {
			t.Errorf("%s: exit code %d, %d violations: %s", command, r.code, said, r.out)
		}
	}
}

// byHand is a plan with round times, in the order F0 F1 B1 B0. The times hold for any chain with tasks of less than 50 s each. A minibatch
// enters when the one before has left device 1.
const byHand = `{"format":"plimsoll.plan/v1","weight_versions":"stash","period_s":200,
 "platform":{"devices":2,"memory_bytes":null,"bandwidth_bytes_per_s":1e9},
 "stages":[{"first_layer":1,"last_layer":2,"devices":[0]},{"first_layer":3,"last_layer":LAST,"devices":[1]}],
 "tasks":[{"kind":"F","stage":0,"device":0,"start_s":0,"shift":1},{"kind":"CF","stage":0,"start_s":50,"shift":1},
  {"kind":"F","stage":1,"device":1,"start_s":100,"shift":1},{"kind":"B","stage":1,"device":1,"start_s":150,"shift":1},
  {"kind":"CB","stage":0,"start_s":0,"shift":0},{"kind":"B","stage":0,"device":0,"start_s":50,"shift":0}]}`

// tinyByHand is byHand for the model of onDevices, changed.
func tinyByHand(t *testing.T, changes ...string) string {
	t.Helper()
	changes = append(changes, "LAST", "6")
	text := strings.NewReplacer(changes...).Replace(byHand)
	return write(t, filepath.Join(t.TempDir(), "own.json"), text)
}

// A plan that somebody wrote needs no chain file where its times leave room for those that are measured.
func TestTrainAlongAPlanByHand(t *testing.T) {
	t.Parallel()
	o := trainedAlong(t, along(tinyByHand(t), "-q")...)
	if o.Strategy != "given" || o.PredictedS != 200 || o.Pipe.Versions != pipeline.Stash || len(o.Pipe.Devices) != 2 {
		t.Errorf("%+v", o)
	}
	noPlatform := tinyByHand(t, `"platform":{"devices":2,"memory_bytes":null,"bandwidth_bytes_per_s":1e9},`, "")
	platform := write(t, filepath.Join(t.TempDir(), "platform.json"), `{"devices":2,"memory_bytes":null,"bandwidth_bytes_per_s":1e9}`)
	if p := trainedAlong(t, along(noPlatform, "--platform", platform, "-q")...); p.WeightsSHA256 != o.WeightsSHA256 {
		t.Errorf("weights %s with a platform file, %s without", p.WeightsSHA256, o.WeightsSHA256)
	}
	// --memory limits a device to the byte.
	smallest := fmt.Sprint(o.ExtentBytes)
	if p := trainedAlong(t, along(tinyByHand(t), "--memory", smallest, "-q")...); p.WeightsSHA256 != o.WeightsSHA256 {
		t.Errorf("weights %s at the smallest limit, %s without", p.WeightsSHA256, o.WeightsSHA256)
	}
	if r := plimsoll(t, along(tinyByHand(t), "--memory", fmt.Sprint(o.ExtentBytes-1))...); r.code != exitNoFit || !strings.Contains(r.err, "(--memory "+smallest+")") {
		t.Errorf("a byte less: exit code %d: %s", r.code, r.err)
	}
}

func badGiven(t *testing.T) []badCase {
	own := tinyByHand(t)
	flat := write(t, filepath.Join(t.TempDir(), "flat.json"), `{"format":"plimsoll.plan/v1","chain":"tiny","strategy":"x","ops":[]}`)
	two := write(t, filepath.Join(t.TempDir(), "two.json"), `{"devices":2,"memory_bytes":null,"bandwidth_bytes_per_s":1e9}`)
	on := func(devices string) []string {
		return []string{"train", "-m", "tiny", "--batch", "8", "--image", "16", "--devices", devices, "--option", "profile.steps=9", "--plan"}
	}
	var all []badCase
	for _, c := range []badCase{
		{"more devices", append(on("cpu*4"), own), 2, []string{"is for 2 devices, --devices names 4", `"cpu*2"`}},
		{"one device", append(on("cpu"), own), 2, []string{"is for 2 devices, --devices names 1"}},
		{"fewer devices, by a platform", append(on("cpu*2"), tinyByHand(t, `"devices":[1]`, `"devices":[2]`), "--platform", two), 2, []string{"is for 3 devices, --devices names 2"}},
		{"no platform", append(on("cpu*2"), tinyByHand(t, `"platform":{"devices":2,"memory_bytes":null,"bandwidth_bytes_per_s":1e9},`, "")), 2, []string{"does not say its platform", "--platform platform.json"}},
		{"another chain", append(on("cpu*2"), tinyByHand(t, `"weight_versions"`, `"chain":"resnet20","weight_versions"`)), 2, []string{`field "chain" is "resnet20"`, `"tiny"`}},
		{"fewer layers", append(on("cpu*2"), tinyByHand(t, "LAST", "5")), 2, []string{"end with layer 5, tiny has 6 layers"}},
		{"a violation", append(on("cpu*2"), tinyByHand(t, `"start_s":150`, `"start_s":100`)), 2, []string{"task 3, B1(1) starts at -100", "it waits for task 2, F1(1)", "(and 1 more)", "--profile c.json"}},
		{"memory", append(on("cpu*2"), tinyByHand(t, `"memory_bytes":null`, `"memory_bytes":1000`)), 3, []string{"device 0 needs", "it has 1000"}},
		{"slow links", append(on("cpu*2"), own, "--peer-bandwidth", "100B/s"), 2, []string{"it waits for task 1, CF0(1)"}},
		{"for one device", append(on("cpu*2"), flat), 2, []string{"flat.json", "a plan for one device", "--plan is for several devices"}},
		{"table", append(on("cpu*2"), "own.csv"), 2, []string{"--strategy own.csv"}},
		{"no file", append(on("cpu*2"), "none.json"), 2, []string{"none.json"}},
		{"strategy", append(on("cpu*2"), own, "--strategy", "gpipe"), 2, []string{"--strategy and --plan"}},
		{"microbatches", append(on("cpu*2"), own, "--microbatches", "2"), 2, []string{"--microbatches and --plan"}},
		{"versions", append(on("cpu*2"), own, "--versions", "latest"), 2, []string{"--versions and --plan"}},
		{"deferred", append(on("cpu*2"), own, "--option", "batchnorm.deferred"), 2, []string{"--option batchnorm.deferred", "given has none"}},
		{"flush without microbatches", append(on("cpu*2"), tinyByHand(t, "stash", "flush")), 2, []string{`"microbatches" is missing`}},
		{"weight versions", append(on("cpu*2"), tinyByHand(t, "stash", "old")), 2, []string{`"old"`}},
	} {
		c.name = "given: " + c.name
		all = append(all, c)
		if v := slices.Clone(c.args); !slices.Contains(v, "batchnorm.deferred") {
			v[0] = "validate"
			all = append(all, badCase{c.name + ", validated", v, c.code, c.want})
		}
	}
	return append(all,
		badCase{"given: draws", []string{"validate", "-m", "tiny", "--devices", "cpu*2", "--plan", own, "--simulated", "--draws", "2"}, 2, []string{"--draws and --plan"}},
		badCase{"given: the chain of a step", append(on("cpu*2"), plannedFor(t, tinyChain(t, 8), "--strategy", "gpipe", "--microbatches", "4"), "--profile", tinyChain(t, 8)), 2,
			[]string{"is of another model", "--batch 8 is divided into 4 parts: the chain is that of 2 images"}},
	)
}

// validate runs a plan that is given, with kernels and in simulated time, on the links of its platform.
func TestValidateAlongAPlan(t *testing.T) {
	t.Parallel()
	chain := tinyChain(t, 2)
	plan := plannedFor(t, chain, "--strategy", "gpipe", "--microbatches", "4")
	args := []string{"validate", "-m", "tiny", "--image", "16", "--batch", "8", "--devices", "cpu*2", "--plan", plan, "--profile", chain, "--steps", "2", "-q"}
	row := object(t, args...)["rows"].([]any)[0].(map[string]any)
	if row["strategy"] != "gpipe" || row["identical"] != true || row["minibatches"] != 4.0 {
		t.Errorf("%v", row)
	}
	// In simulated time ops take what the chain says, here a thousand times what they took: a run whose begin is seen late seems shorter.
	slow := slower(t, chain, 1000)
	plan = plannedFor(t, slow, "--strategy", "gpipe", "--microbatches", "4")
	o := object(t, "validate", "-m", "tiny", "--image", "16", "--batch", "8", "--devices", "cpu*2", "--plan", plan, "--profile", slow, "--steps", "2", "-q", "--simulated")
	row = o["rows"].([]any)[0].(map[string]any)
	if o["simulated_time"] != true || row["predicted_s"].(float64) < 0.01 || row["measured_to_predicted"].(float64) < 0.1 {
		t.Errorf("%v", row)
	}
}

// slower writes a chain whose ops take so many times as long.
func slower(t *testing.T, path string, times float64) string {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal([]byte(read(t, path)), &c); err != nil {
		t.Fatal(err)
	}
	for _, l := range c["layers"].([]any) {
		for _, field := range []string{"forward_s", "backward_s"} {
			l := l.(map[string]any)
			l[field] = l[field].(float64) * times
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(t.TempDir(), "slow.json"), string(text))
}

// The links of a platform file are those that strategies plan with.
// Only this test finds that validate plans with other links than its --platform file states.
func TestValidateOnAPlatform(t *testing.T) {
	t.Parallel()
	file := func(text string) string { return write(t, filepath.Join(t.TempDir(), "platform.json"), text) }
	args := []string{"validate", "-m", "tiny", "--image", "16", "--batch", "4", "--devices", "cpu*2", "--strategy", "1f1b*", "--simulated", "--draws", "1", "--minibatches", "4", "-q"}
	predicted := func(more ...string) float64 {
		return object(t, append(slices.Clone(args), more...)...)["rows"].([]any)[0].(map[string]any)["predicted_s"].(float64)
	}
	slow := file(`{"devices":2,"memory_bytes":null,"bandwidth_bytes_per_s":20000}`)
	if a, b := predicted("--platform", slow), predicted("--peer-bandwidth", "20KB/s"); a != b || a <= predicted() {
		t.Errorf("%v s with a platform file, %v s with --peer-bandwidth, %v s without", a, b, predicted())
	}
	for name, c := range map[string]badCase{
		"devices": {args: append(slices.Clone(args), "--platform", file(`{"devices":3,"memory_bytes":null,"bandwidth_bytes_per_s":1e9}`)), want: []string{"3 devices, --devices names 2"}},
		"both":    {args: append(slices.Clone(args), "--platform", slow, "--peer-bandwidth", "1GB/s"), want: []string{"--peer-bandwidth and --platform"}},
		"alone":   {args: []string{"validate", "-m", "tiny", "--platform", slow}, want: []string{"--platform is for pipelines"}},
		"uneven": {args: []string{"validate", "-m", "tiny", "--image", "16", "--devices", "cpu*3", "--simulated", "--strategy", "1f1b*",
			"--platform", file(`{"devices":3,"memory_bytes":null,"bandwidth_bytes_per_s":{"default":1e6,"0-1":1e9}}`)}, want: []string{"all have one bandwidth", "between devices 0 and 1"}},
	} {
		r := plimsoll(t, c.args...)
		if r.code != exitUsage {
			t.Errorf("%s: exit code %d: %s", name, r.code, r.err)
		}
		for _, want := range c.want {
			if !strings.Contains(r.err, want) {
				t.Errorf("%s: no %q in %s", name, want, r.err)
			}
		}
	}
}

// Tables of other numbers of microbatches can be validated beside each other.
func TestValidateTables(t *testing.T) {
	t.Parallel()
	two := write(t, filepath.Join(t.TempDir(), "two.csv"), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
	one := write(t, filepath.Join(t.TempDir(), "one.csv"), "0F0,0B0\n1F0,1B0\n")
	o := object(t, "validate", "-m", "tiny", "--image", "16", "--batch", "8", "--devices", "cpu*2", "--strategy", two+","+one+",gpipe", "--steps", "1", "--option", "profile.steps=9", "-q")
	rows := o["rows"].([]any)
	if len(rows) != 3 || len(o["skipped"].([]any)) > 0 {
		t.Errorf("%d rows, skipped %v", len(rows), o["skipped"])
	}
}

// pipemare is ampnet with its paper's corrections, whether the run plans it itself or is given its plan; flags can leave them out.
func TestPipeMareCorrects(t *testing.T) {
	t.Parallel()
	chain := tinyChain(t, 8)
	plan := plannedFor(t, chain, "--strategy", "pipemare")
	run := func(args ...string) string {
		all := append(onDevices(2, "ampnet", 12, "--profile", chain, "--peer-bandwidth", "1GB/s"), args...)
		return trainedAlong(t, all...).WeightsSHA256
	}
	plain, corrected := run(), run("--option", "pipemare.updates=3", "--option", "pipemare.decay=0.135")
	if plain == corrected {
		t.Error("corrections change nothing")
	}
	for _, x := range []struct {
		want string
		args []string
	}{
		{corrected, []string{"--strategy", "pipemare"}},
		{plain, []string{"--strategy", "pipemare", "--option", "pipemare.updates=0", "--option", "pipemare.decay=0"}},
	} {
		if got := run(x.args...); got != x.want {
			t.Errorf("%v: weights %s, want %s", x.args, got, x.want)
		}
	}
	given := along(plan, "--profile", chain, "--lr-schedule", "cosine", "--warmup", "3", "-q")
	if got := trainedAlong(t, given...).WeightsSHA256; got != corrected {
		t.Errorf("its plan: weights %s, want %s", got, corrected)
	}
}
