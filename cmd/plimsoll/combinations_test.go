package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Kinds of plans that features are combined with, in columns.
const (
	oneDevice = iota
	withFlush
	withoutFlush
	offloading // without a flush, and a stage offloads
	planKinds
)

var planKindNames = [planKinds]string{"one device", "flush", "without a flush", "without a flush, offloading"}

// answer says whether a feature combines with a kind of plan.
type answer struct {
	text    string   // "yes", "no" or "-": cannot be asked for
	refusal string   // of a no, what it says to leave out or to give; "": nothing refuses it, and the summary lacks the row's field
	args    []string // of the plan, in place of the column's
	test    string   // of executor/pipeline that shows it, where no command line is sure to; else ""
}

func yes(plan ...string) answer { return answer{text: "yes", args: plan} }
func no(refusal string, plan ...string) answer {
	return answer{text: "no", refusal: refusal, args: plan}
}

// absent is a feature that the summary of a run lacks.
func absent() answer { return answer{text: "no"} }

// elsewhere is a yes that a test of executor/pipeline shows: which stages a strategy lets offload depends on measured times.
func elsewhere(test string) answer { return answer{text: "yes", test: test} }

// unasked is a feature for which no flag and no file asks.
var unasked = answer{text: "-"}

// combination is a row of what combines: a feature, its flags, the field of the summary that shows it, and the answer of each column.
type combination struct {
	feature   string
	args      []string
	field     string
	processes bool // it runs in two processes
	answers   [planKinds]answer
}

// everywhere reports whether the feature combines with all kinds of plans, which other tests show too.
func (c combination) everywhere() bool {
	return !slices.ContainsFunc(c.answers[:], func(a answer) bool { return a.text != "yes" })
}

// nowhere reports whether the feature combines with no kind of plan.
func (c combination) nowhere() bool {
	return !slices.ContainsFunc(c.answers[:], func(a answer) bool { return a.text == "yes" })
}

// mostNoes is how many cells of combinations are a no. It may only fall.
const mostNoes = 49

// Refusals that several rows share.
const (
	onOne       = "--offload-state optimizer is for one device, or for schedules with a flush: given has none"
	wholeOnOne  = "leave it out, or train whole batches on one device"
	needsFlush  = " needs all stages' gradients before any update, and given updates each on its own: leave it out, or give --strategy joint-flush"
	noneInGiven = " is for schedules with a flush: given has none; give one"
	needsMore   = ` is for pipelines: give several --devices, as in --devices "cpu*4"`
	giveParts   = "--accumulate is for one device: give --microbatches 2, into which pipelines divide a step"
	untie       = "this plan cannot share weights between layers: lm_head.weight of layer head is transformer.embed.weight of layer embed: stages 0 and 1 update them at different times, as the plan has no flush: give one with a flush, or -m gpt2-2-16-untied"
	unbranch    = "siamese has branches, and pipelines are for single chains: train it on one device"
	worlds      = "--option world.allreduce is for several processes: give their number, as in --world 4"
	muonWhole   = "--zero divides weights among replicas by elements, and --optimizer muon updates a matrix as a whole: leave --zero out, or take adamw"
	wholeBatch  = "--batch max is for one device and whole batches: give a number of samples"
	hostOfOne   = "--host-memory limits what the plan of one device offloads: " + wholeOnOne
)

// combinations returns one row for each feature, with the kinds of plan that it combines with today. If the answers of a row change, it is
// changed here and in docs/pipelines.md (-update).
func combinations(t *testing.T, p map[string][]string) []combination {
	t.Helper()
	small := func(model string, more ...string) []string {
		return append([]string{"-m", model, "--batch", "8"}, more...)
	}
	two := func(strategy string, more ...string) []string {
		return append([]string{"--devices", "cpu*2", "--strategy", strategy}, more...)
	}
	all := func(a answer) [planKinds]answer { return [planKinds]answer{a, a, a, a} }
	refuses := func(flag, text string) answer { return no(flag + text) }
	return []combination{
		{feature: "offload of activations", field: "host_copies_bytes", answers: [planKinds]answer{
			yes("--strategy", "opportunist", "--bandwidth", "4GB/s", "--memory", "95%"), no("stage 1: bad ops of a stage: it offloads: that is for periodic plans with one minibatch a period", p["flush, offloading"]...),
			absent(), yes()}},
		{feature: "replicas of a stage", answers: [planKinds]answer{
			unasked, yes(two("joint-flush")...), yes(p["replicas"]...), no("it offloads: that is for periodic plans with one minibatch a period", p["replicas, offloading"]...)}},
		{feature: "`vertical_sync` with replicas", answers: [planKinds]answer{unasked, unasked, no("vertical_sync counts the updates of the first stage", p["replicas, vertical_sync"]...), unasked}},
		{feature: "several stages of a device", answers: [planKinds]answer{
			unasked, yes(two("interleaved", "--microbatches", "2")...), yes(p["two stages"]...), no("stage 1 has ops, so without a flush it must have its devices for itself", p["two stages, offloading"]...)}},
		{feature: "`--offload-state optimizer`", args: []string{"--offload-state", "optimizer"}, answers: [planKinds]answer{yes("--devices", "cpu"), yes(), no(onOne), no(onOne)}},
		{feature: "`--host-memory`", args: []string{"--host-memory", "1GiB"}, answers: [planKinds]answer{yes(), no(hostOfOne), no(hostOfOne), no(hostOfOne)}},
		{feature: "`--clip-norm`", args: []string{"--clip-norm", "1"}, answers: [planKinds]answer{yes(), yes(), no("--clip-norm 1" + needsFlush), no("--clip-norm 1" + needsFlush)}},
		{feature: "`--on-nan skip`", args: []string{"--on-nan", "skip"}, answers: [planKinds]answer{yes(), yes(), no("--on-nan skip" + needsFlush), no("--on-nan skip" + needsFlush)}},
		{feature: "audit of a step's memory", field: "measured_peak_bytes", answers: [planKinds]answer{yes(), yes(), absent(), absent()}},
		{feature: "receipt of the time gap", field: "receipt", answers: all(yes())},
		{feature: "drift", field: "drift", answers: all(yes())},
		{feature: "idle times", field: "idle", answers: all(yes())},
		{feature: "next batch staged", args: []string{"--memory", "4MiB", "--data", "folder:" + pictures(t)}, field: "staged_bytes", answers: [planKinds]answer{yes(), absent(), absent(), absent()}},
		{feature: "split backward", args: []string{"--profile", p["halves"][0]}, answers: [planKinds]answer{
			unasked, yes(p["flush, split"]...), yes(p["split"]...), no("stage 1 has ops and W tasks: its backward cannot be split", p["split, offloading"]...)}},
		{feature: "tied weights", args: small("gpt2-2-16-tied", "--length", "8"), answers: [planKinds]answer{yes(), yes(), no(untie, two("1f1b*", p["tied"]...)...), no(untie, two("loadline", p["tied"]...)...)}},
		{feature: "branches that meet", args: small("siamese", "--image", "8"), answers: [planKinds]answer{
			yes("--strategy", "auto"), no(unbranch), no(unbranch, two("1f1b*")...), no(unbranch, two("loadline")...)}},
		{feature: "portals", args: small("unet-1-4", "--image", "32", "--debug", "portals"), answers: [planKinds]answer{
			refuses("--debug portals", needsMore), yes("--devices", "cpu*4", "--strategy", "1f1b-flush", "--microbatches", "2"), yes("--devices", "cpu*4", "--strategy", "1f1b*"), elsewhere("TestPortalsOfStagesThatOffload")}},
		{feature: "`--zero`", args: small("gpt2-2-16-untied", "--length", "8", "--zero", "3"), answers: [planKinds]answer{
			refuses("--zero", needsMore), yes(two("joint-flush")...), refuses("--zero", noneInGiven), refuses("--zero", noneInGiven)}},
		{feature: "`--zero` with Muon", args: []string{"--zero", "2", "--optimizer", "muon"}, answers: all(no(muonWhole))},
		{feature: "`--option batchnorm.deferred`", args: []string{"--option", "batchnorm.deferred"}, answers: [planKinds]answer{
			refuses("--option batchnorm.deferred", needsMore), yes(), refuses("--option batchnorm.deferred", noneInGiven), refuses("--option batchnorm.deferred", noneInGiven)}},
		{feature: "parts of a step", args: []string{"--accumulate", "2"}, answers: [planKinds]answer{yes(), yes("--strategy", "1f1b-flush"), no(giveParts), no(giveParts)}},
		{feature: "`--batch max`", args: []string{"--batch", "max", "--memory", "1MiB"}, answers: [planKinds]answer{yes(), no(wholeBatch), no(wholeBatch), no(wholeBatch)}},
		{feature: "PipeMare", args: []string{"--option", "pipemare.updates=4"}, answers: [planKinds]answer{
			refuses("--option pipemare.updates", needsMore), no("--option pipemare.updates and pipemare.decay are for weight versions latest: with 1f1b-flush no weights are stale; give a schedule without a flush"), yes(p["latest"]...), yes(p["latest, offloading"]...)}},
		{feature: "several processes", processes: true, answers: [planKinds]answer{no("store-all plans for one device"), yes("--strategy", "1f1b-flush", "--microbatches", "2"), yes(p["without a flush"][2:]...), yes(p["offloading"][2:]...)}},
		{feature: "`--zero` over processes with checkpoints", processes: true, args: []string{"--zero", "1", "--checkpoint-every", "2", "--force"}, answers: [planKinds]answer{
			unasked, no("lies on devices [0 1] of different processes, and one process saves a stage: leave --out or \\\"zero\\\" out", "--strategy", "chimera", "--microbatches", "2"), unasked, unasked}},
		{feature: "`--option world.allreduce=nccl` in one process", args: []string{"--option", "world.allreduce=nccl"}, answers: all(no(worlds))},
		{feature: "checkpoints, evaluations", args: []string{"--checkpoint-every", "2", "--eval-every", "2", "--force"}, answers: all(yes())},
		{feature: "Muon", args: []string{"--optimizer", "muon"}, answers: all(yes())},
		{feature: "`--freeze`", args: []string{"--freeze", "conv1,bn1,*.bias"}, answers: all(yes())},
		{feature: "`--lora`", args: []string{"--lora", "r=2,alpha=4,targets=fc"}, answers: all(yes())},
		{feature: "bf16", args: []string{"--dtype", "bf16"}, answers: all(yes())},
		{feature: "random delays (`--debug chaos`)", args: []string{"--debug", "chaos=3"}, answers: all(yes())},
	}
}

// combinedPlans writes the plans of the rows, with round times as byHand has, and returns their flags by name.
func combinedPlans(t *testing.T) map[string][]string {
	t.Helper()
	dir, all := t.TempDir(), map[string][]string{}
	add := func(name string, changes ...string) {
		changes = append(changes, `"memory_bytes":null,`, `"memory_bytes":null,"host_bandwidth_bytes_per_s":1e9,`, "LAST", "6")
		path := filepath.Join(dir, fmt.Sprintf("%d.json", len(all)))
		write(t, path, strings.NewReplacer(changes...).Replace(byHand))
		all[name] = []string{"--devices", "cpu*2", "--plan", path}
	}
	plain := `"last_layer":LAST,"devices":[1]}],`
	moves := `"last_layer":6,"devices":[1],"ops":[` + opsText("Fall3 O4 Fall4 Fall5 Fall6 B6 B5 P4 B4 B3") + `]}],`
	tasks := byHand[strings.Index(byHand, ` "tasks"`):]
	second := func(half string) string { // of stage 1 and of stage 0, in the period after their B
		return half + `{"kind":"W","stage":1,"device":1,"start_s":0,"shift":0},{"kind":"W","stage":0,"device":0,"start_s":100,"shift":0},`
	}
	add("without a flush")
	add("offloading", plain, moves)
	add("latest", `"stash"`, `"latest"`)
	add("latest, offloading", `"stash"`, `"latest"`, plain, moves)
	add("split", `"tasks":[`, second(`"tasks":[`))
	add("split, offloading", `"tasks":[`, second(`"tasks":[`), plain, moves)
	flush := []string{`"stash","period_s":200`, `"flush","microbatches":1`, tasks, ` "tasks":[
  {"kind":"F","stage":0,"device":0,"start_s":0,"shift":0},{"kind":"CF","stage":0,"start_s":50,"shift":0},{"kind":"F","stage":1,"device":1,"start_s":100,"shift":0},
  {"kind":"B","stage":1,"device":1,"start_s":150,"shift":0},{"kind":"CB","stage":0,"start_s":200,"shift":0},{"kind":"B","stage":0,"device":0,"start_s":250,"shift":0}]}`}
	add("flush, offloading", append(slices.Clone(flush), plain, moves)...)
	halves := strings.Replace(flush[3], `"tasks":[`, `"tasks":[{"kind":"W","stage":1,"device":1,"start_s":200,"shift":0},{"kind":"W","stage":0,"device":0,"start_s":300,"shift":0},`, 1)
	add("flush, split", flush[0], flush[1], flush[2], halves)
	// One stage on two devices, which take minibatches in turn.
	stages := byHand[strings.Index(byHand, ` "stages"`):strings.Index(byHand, ` "tasks"`)]
	replicas := func(ops string) []string {
		return []string{stages, ` "minibatches_per_period":2,"stages":[{"first_layer":1,"last_layer":6,"devices":[0,1]` + ops + `}],` + "\n", tasks, ` "tasks":[
  {"kind":"F","stage":0,"device":0,"start_s":0,"shift":0},{"kind":"B","stage":0,"device":0,"start_s":50,"shift":0},
  {"kind":"F","stage":0,"device":1,"start_s":0,"shift":1},{"kind":"B","stage":0,"device":1,"start_s":50,"shift":1}]}`}
	}
	add("replicas", replicas("")...)
	add("replicas, offloading", replicas(`,"ops":[`+opsText("Fall1 Fall2 Fall3 O4 Fall4 Fall5 Fall6 B6 B5 P4 B4 B3 B2 B1")+`]`)...)
	add("replicas, vertical_sync", append(replicas(""), `"stash"`, `"vertical_sync","weight_copies":[2]`)...)
	// Device 1 has two stages.
	shares := func(ops string) []string {
		return []string{stages, ` "stages":[{"first_layer":1,"last_layer":2,"devices":[0]},{"first_layer":3,"last_layer":5,"devices":[1]` + ops + `},{"first_layer":6,"last_layer":6,"devices":[1]}],` + "\n",
			`{"kind":"B","stage":1,"device":1,"start_s":150,"shift":1}`, `{"kind":"F","stage":2,"device":1,"start_s":150,"shift":1},{"kind":"B","stage":2,"device":1,"start_s":0,"shift":0},{"kind":"B","stage":1,"device":1,"start_s":50,"shift":0}`,
			`{"kind":"CB","stage":0,"start_s":0,"shift":0},{"kind":"B","stage":0,"device":0,"start_s":50,"shift":0}`, `{"kind":"CB","stage":0,"start_s":100,"shift":0},{"kind":"B","stage":0,"device":0,"start_s":150,"shift":0}`}
	}
	add("two stages", shares("")...)
	add("two stages, offloading", shares(`,"ops":[`+opsText("Fall3 O4 Fall4 Fall5 B5 P4 B4 B3")+`]`)...)
	chain := filepath.Join(dir, "c.json")
	works(t, "profile", "--halves", "-m", "tiny", "--image", "16", "--batch", "8", "--debug", "threads=1", "--option", "profile.steps=1", "-q", "-o", chain)
	all["halves"] = []string{chain}
	tied := filepath.Join(dir, "tied.json")
	works(t, "profile", "-m", "gpt2-2-16-tied", "--length", "8", "--batch", "8", "--debug", "threads=1", "--option", "profile.steps=1", "-q", "-o", tied)
	evenTimes(t, tied)
	all["tied"] = []string{"--profile", tied}
	return all
}

// evenTimes makes all layers of a chain file take as long, so that what is planned for it follows from no measurement.
func evenTimes(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	var chain map[string]any
	if err == nil {
		err = json.Unmarshal(b, &chain)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range chain["layers"].([]any) {
		layer := l.(map[string]any)
		layer["forward_s"], layer["discard_forward_s"], layer["backward_s"] = 1e-3, 1e-3, 2e-3
	}
	if b, err = json.Marshal(chain); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// opsText returns a sequence as the ops of a plan file.
func opsText(text string) string {
	names := map[string]string{"Fall": "forward_all", "O": "offload", "P": "prefetch", "B": "backward"}
	var all []string
	for _, op := range strings.Fields(text) {
		kind := strings.TrimRight(op, "0123456789")
		all = append(all, fmt.Sprintf(`{"op":%q,"layer":%s}`, names[kind], op[len(kind):]))
	}
	return strings.Join(all, ",")
}

// Each cell of the table is run. A feature that combines trains, and the summary shows it. Any other feature is refused by words that name
// the flag and the remedy, or the summary lacks it.
// Only this test finds a feature that has stopped to combine with a kind of plan, or one that combines and is not documented.
func TestCombinations(t *testing.T) {
	t.Parallel()
	p := combinedPlans(t)
	plans := [planKinds][]string{{"--strategy", "store-all"}, {"--devices", "cpu*2", "--strategy", "1f1b-flush", "--microbatches", "2"}, p["without a flush"], p["offloading"]}
	noes := 0
	rows := combinations(t, p)
	for _, row := range rows {
		for kind, a := range row.answers {
			if a.text == "no" {
				noes++
			}
			if a.test != "" && !strings.Contains(read(t, "../../executor/pipeline/portaloffload_test.go"), "func "+a.test+"(") {
				t.Errorf("%s: executor/pipeline has no %s", row.feature, a.test)
			}
			if a.text == "-" || a.test != "" || testing.Short() && (row.processes || row.everywhere()) {
				continue
			}
			if a.args == nil {
				a.args = plans[kind]
			}
			t.Run(row.feature+", "+planKindNames[kind], func(t *testing.T) {
				t.Parallel()
				row.run(t, a)
			})
		}
	}
	if noes != mostNoes {
		t.Errorf("%d cells are a no, known are %d: where one has gone, lower mostNoes", noes, mostNoes)
	}
	documentCombinations(t, rows)
}

// documentCombinations checks the table of the documents and the two sentences below it; -update rewrites them.
func documentCombinations(t *testing.T, rows []combination) {
	t.Helper()
	const path = "../../docs/pipelines.md"
	const head = "| feature | combines with plans: |\n"
	want := head + "|---|---|\n"
	always, never := "All kinds of plans combine with: ", "No kind of plan combines with: "
	for _, row := range rows {
		switch {
		case row.everywhere():
			always += row.feature + ", "
		case row.nowhere():
			never += row.feature + ", "
		default:
			var kinds []string
			for kind, a := range row.answers {
				if a.text == "yes" {
					kinds = append(kinds, planKindNames[kind])
				}
			}
			want += "| " + row.feature + " | " + strings.Join(kinds, "; ") + " |\n"
		}
	}
	want += "\n" + strings.TrimSuffix(always, ", ") + ".\n" + strings.TrimSuffix(never, ", ") + ".\n"
	text := read(t, path)
	before, rest, found := strings.Cut(text, head)
	if _, after, ended := strings.Cut(rest, ".\n\n"); !found || !ended {
		t.Fatalf("%s has no table that begins with %s", path, head)
	} else if got := before + want + "\n" + after; got != text && *update {
		write(t, path, got)
	} else if got != text {
		t.Errorf("%s does not show what combines: -update rewrites it; want\n%s", path, want)
	}
}

// pictures returns a folder of small images of two classes, which travel to the device as bytes.
func pictures(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 64 {
		var b bytes.Buffer
		m := image.NewGray(image.Rect(0, 0, 16, 16))
		m.Pix[i] = 255
		if err := png.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
		class := filepath.Join(dir, fmt.Sprint(i%2))
		if err := os.MkdirAll(class, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(class, fmt.Sprintf("%d.png", i)), b.String())
	}
	return dir
}

// run runs a cell.
func (c combination) run(t *testing.T, a answer) {
	args := []string{"--steps", "4", "--option", "profile.steps=1", "--debug", "threads=1", "-q"}
	if !slices.Contains(c.args, "-m") {
		args = append(args, "-m", "tiny", "--image", "16", "--batch", "8")
	}
	if slices.Contains(c.args, "--force") {
		args = append(args, "--out", filepath.Join(t.TempDir(), "run"))
	}
	args = slices.Concat(args, a.args, c.args)
	r := result{}
	if c.processes {
		p := inProcesses(t, 2, append(args, "--devices", "cpu")...)
		p.start()
		r.code = p.end()
		r.out, r.err = p.out.String(), p.err.String()
	} else {
		r = plimsoll(t, append([]string{"train", "--json"}, args...)...)
	}
	if a.refusal != "" {
		var failure struct{ Error string }
		if err := json.Unmarshal([]byte(r.err), &failure); !c.processes && err != nil || r.code != exitUsage || !strings.Contains(failure.Error+r.err, a.refusal) {
			t.Errorf("exit code %d, want a refusal with %q: %s", r.code, a.refusal, r.err)
		}
		return
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(r.out), &o); err != nil || r.code != exitOK || o["steps"].(float64) < 4 {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	if has := o[c.field] != nil && o[c.field] != 0.0; c.field != "" && has != (a.text == "yes") {
		t.Errorf("%s is %v, want that it combines: %s", c.field, o[c.field], a.text)
	}
}
