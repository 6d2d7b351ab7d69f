package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/bench"
	"plimsoll/internal/version"
	"plimsoll/planner"
	"plimsoll/planner/milp"
	"plimsoll/planner/remat"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	golden(t, "help.txt", works(t, "--help").out)
	for _, name := range []string{"devices", "profile", "plan", "frontier", "check", "train", "evaluate", "generate", "tokenize", "validate", "bench", "trace", "report", "demo", "fit", "models", "options", "import", "convert", "launch", "version"} {
		golden(t, "help-"+name+".txt", works(t, name, "--help").out)
	}
	golden(t, "help-bench-pipelines.txt", works(t, "bench", "pipelines", "--help").out)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"version", "--version"} {
		if v := object(t, arg); v["version"] != version.Release || v["cuda"] != withCUDA || v["highs"] != milp.Built {
			t.Errorf("%s: %v", arg, v)
		}
	}
}

func TestDevices(t *testing.T) {
	t.Parallel()
	o := object(t, "devices")
	d := o["devices"].([]any)[0].(map[string]any)
	for _, field := range []string{"cores", "memory_bytes", "to_device_bytes_per_s", "to_host_bytes_per_s"} {
		if x, ok := d[field].(float64); !ok || x <= 0 {
			t.Errorf("%s is %v", field, d[field])
		}
	}
	if lib := d["library"].(string); d["name"] != "cpu" || !strings.HasPrefix(lib, "cpu/") {
		t.Errorf("device %v with %v", d["name"], lib)
	}
	if want := gpuFigures().Status; o["cuda"] != want || want == "" {
		t.Errorf("cuda: %v", o["cuda"])
	}
}

func TestPlanList(t *testing.T) {
	t.Parallel()
	text := works(t, "plan", "--list").out
	names := append(planner.Names(), remat.Checkmate)
	for _, name := range names {
		if !strings.Contains(text, "\n"+name+" ") && !strings.HasPrefix(text, name+" ") {
			t.Errorf("%s is not in the list", name)
		}
	}
	for _, s := range planner.Sequences() {
		if !strings.Contains(text, s.Paper) || !strings.Contains(text, s.Section) {
			t.Errorf("the paper or section of %s is not in the list", s.Name)
		}
	}
	list := object(t, "plan", "--list")["strategies"].([]any)
	last := list[len(list)-1].(map[string]any)
	if _, missing := last["missing"]; milp.Built == missing || len(list) < len(planner.Sequences()) {
		t.Errorf("%d strategies, the last is %v", len(list), last)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	golden(t, "plan.txt", works(t, "plan", "-c", five, "--memory", "70%", "--strategy", "rotor-exact").out)
	golden(t, "plan.json", works(t, "plan", "-c", five, "--memory", "70%", "--strategy", "rotor-exact", "--json").out)
	want := "Fck1 F2 Fall3 Fall4 Fall5 B5 B4 B3 Fall1 Fall2 B2 B1\n"
	if got := works(t, "plan", "-c", five, "--memory", "70%", "--strategy", "rotor-exact", "--text").out; got != want {
		t.Errorf("sequence %q, want %q", got, want)
	}
}

// auto says what each of its members found, and is never slower than any of them.
func TestPlanAuto(t *testing.T) {
	t.Parallel()
	golden(t, "plan-auto.txt", works(t, "plan", "-c", five, "--memory", "55%", "--bandwidth", "80B/s").out)
	o := object(t, "plan", "-c", five, "--memory", "55%", "--bandwidth", "80B/s")
	noneIsFaster(t, o)
	// How far it comes within a budget depends on the machine; perhaps not even to a first plan.
	r := plimsoll(t, "plan", "-c", five, "--memory", "55%", "--bandwidth", "80B/s", "--option", "auto.budget=300ms", "--json")
	if r.code == exitUsage && strings.Contains(r.err, "--option auto.budget=300ms is too little for a first plan") {
		return
	}
	var longer map[string]any
	if err := json.Unmarshal([]byte(r.out), &longer); err != nil || longer["lower_bound_s"] != o["lower_bound_s"] {
		t.Fatalf("with a budget: %v: %+v", err, r)
	}
	noneIsFaster(t, longer)
}

// Within the tolerance auto leaves transfers out, and says what it has passed over for that; the plan names who made it.
func TestPlanTolerates(t *testing.T) {
	t.Parallel()
	args := []string{"plan", "-c", five, "--memory", "80%", "--bandwidth", "1000B/s", "--option"}
	fastest, tolerant := object(t, append(args, "auto.tolerance=0")...), object(t, append(args, "auto.tolerance=20%")...)
	noneIsFaster(t, fastest)
	report := tolerant["auto"].(map[string]any)
	passed := report["passed_over"].(map[string]any)
	if passed["makespan_s"] != fastest["makespan_s"] || tolerant["makespan_s"].(float64) > 1.2*fastest["makespan_s"].(float64) ||
		tolerant["transfers"].(float64) >= fastest["transfers"].(float64) || tolerant["winner"] != report["winner"] {
		t.Errorf("%v\nbeside\n%v", tolerant, fastest)
	}
	if text := works(t, append(args, "auto.tolerance=20%")...).out; !strings.Contains(text, "auto ("+report["winner"].(string)+")") || !strings.Contains(text, "(auto.tolerance=20%)") {
		t.Errorf("it does not say so:\n%s", text)
	}
	for _, bad := range []string{"-1%", "2", "much"} {
		if r := plimsoll(t, append(args, "auto.tolerance="+bad)...); r.code != exitUsage {
			t.Errorf("auto.tolerance=%s: exit code %d, %s", bad, r.code, r.err)
		}
	}
}

// noneIsFaster checks what a plan of auto says of its members.
func noneIsFaster(t *testing.T, o map[string]any) {
	t.Helper()
	candidates := o["auto"].(map[string]any)["candidates"].([]any)
	if n := len(candidates); n != len(planner.Sequences())-1 {
		t.Errorf("%d candidates", n)
	}
	for _, x := range candidates {
		c := x.(map[string]any)
		if m, ok := c["makespan_s"].(float64); ok && m < o["makespan_s"].(float64) || !ok && c["reason"] == nil {
			t.Errorf("candidate %v beside %v", c, o["makespan_s"])
		}
	}
}

// The frontier: monotone in text, JSON and CSV, and exact where the strategy is.
func TestFrontier(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f.csv")
	golden(t, "frontier.txt", works(t, "frontier", "-c", five, "--strategy", "rotor-exact", "-o", file).out)
	golden(t, "frontier.csv", read(t, file))
	for _, args := range [][]string{{"--strategy", "rotor-exact"}, {"--bandwidth", "200B/s"}, {"--strategy", "pofo", "--duplex", "--points", "5"}} {
		o := object(t, append([]string{"frontier", "-c", five}, args...)...)
		points := o["points"].([]any)
		if len(points) < 2 || o["exact"] != (args[1] == "rotor-exact") {
			t.Fatalf("%v: %v", args, o)
		}
		for i, x := range points {
			p := x.(map[string]any)
			if p["lower_bound_s"].(float64) > p["makespan_s"].(float64) || p["gap"].(float64) < 0 {
				t.Errorf("%v: point %v", args, p)
			}
			if i == 0 {
				continue
			}
			if before := points[i-1].(map[string]any); before["memory_bytes"].(float64) >= p["memory_bytes"].(float64) ||
				before["makespan_s"].(float64) <= p["makespan_s"].(float64) || before["saved_s_per_gib"].(float64) <= 0 {
				t.Errorf("%v: %v before %v", args, before, p)
			}
		}
	}
}

// check reads the plans that plan writes, and both print the same figures. The text form gives the same figures too, from a file and from
// standard input.
func TestCheckAgreesWithPlan(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.json")
	checked := 0
	for _, s := range planner.Names() {
		for _, memory := range []string{"100%", "70%", "900"} {
			r := plimsoll(t, "plan", "-c", five, "--memory", memory, "--strategy", s, "--bandwidth", "1000B/s", "-o", file, "--json")
			if r.code == exitNoFit {
				continue
			}
			r.out = withoutReport(r.out)
			if got := works(t, "check", "-c", five, "-p", file, "--json"); r.out != got.out {
				t.Errorf("%s at %s: plan says\n%s, check\n%s%s", s, memory, r.out, got.out, got.err)
			}
			text := works(t, "plan", "-c", five, "--memory", memory, "--strategy", s, "--bandwidth", "1000B/s", "--text").out
			in := plimsollIn(t.Context(), t, text, "check", "-c", five, "-p", "-", "--memory", memory, "--bandwidth", "1000B/s", "--json")
			if want := strings.Replace(winner.ReplaceAllString(r.out, ""), `"`+s+`"`, `"given"`, 1); in.out != want {
				t.Errorf("%s at %s: the text form gives\n%s%s, want\n%s", s, memory, in.out, in.err, want)
			}
			checked++
		}
	}
	if checked < 12 {
		t.Errorf("only %d plans", checked)
	}
}

// winner is whom auto chose, which a text form does not say.
var winner = regexp.MustCompile(`\s*"winner": .*`)

// withoutReport leaves out what auto alone says, the last field.
func withoutReport(object string) string {
	if before, _, found := strings.Cut(object, ",\n  \"auto\":"); found {
		return before + "\n}\n"
	}
	return object
}

func TestCheckOfAStrangersPlan(t *testing.T) {
	t.Parallel()
	golden(t, "check.txt", works(t, "check", "-c", five, "--bandwidth", "200B/s",
		"--text", "Fall1 O2 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 P2 B2 B1").out)
	plan := `{"format":"plimsoll.plan/v1","chain":"five","ops":[{"op":"forward_all","layer":1}],
		"predicted":{"makespan_s":1,"peak_bytes":7}}`
	plan = strings.Replace(plan, `{"op":"forward_all","layer":1}`, planOps(
		"forward_all:1 forward_all:2 forward_all:3 forward_all:4 forward_all:5 backward:5 backward:4 backward:3 backward:2 backward:1"), 1)
	r := works(t, "check", "-c", five, "-p", write(t, filepath.Join(t.TempDir(), "p.json"), plan))
	if !strings.Contains(r.err, "peak of 7 B") || !strings.Contains(r.err, "makespan of 1 s") {
		t.Errorf("what the plan promised in vain is not noted: %s", r.err)
	}
}

func planOps(ops string) string {
	_, rest, _ := strings.Cut(planOf("five", ops), `"ops":[`)
	return strings.TrimSuffix(rest, "]}")
}

// Only this test finds a profile that leaves out the table of --layers, or counts nothing beside the static bytes.
func TestProfileThenPlanThenTrain(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	c := filepath.Join(folder, "c.json")
	job := []string{"-m", "tiny", "--batch", "32"}
	o := object(t, append([]string{"profile", "-o", c}, job...)...)
	if o["layers"].(float64) != 6 || o["forward_s"].(float64) <= 0 || o["store_all_peak_bytes"].(float64) <= o["static_bytes"].(float64) {
		t.Errorf("profile: %v", o)
	}
	if table := works(t, append([]string{"profile", "--layers"}, job...)...).out; !strings.Contains(table, "preact") {
		t.Errorf("no table of layers: %s", table)
	}
	works(t, "plan", "-c", c, "--memory", "85%", "-o", filepath.Join(folder, "p.json"))
	works(t, "check", "-c", c, "-p", filepath.Join(folder, "p.json"))
	works(t, append([]string{"train", "--profile", c, "--memory", "90%", "--steps", "2", "-q"}, job...)...)
}

// trainTiny trains a few steps and returns the summary.
func trainTiny(t *testing.T, args ...string) map[string]any {
	t.Helper()
	return object(t, append([]string{"train", "-m", "tiny", "--batch", "32", "--steps", "5", "-q"}, args...)...)
}

// The limit, the strategy and the number of threads change nothing about the weights; the seed does.
// Only this test finds weights of an image model that depend on threads or the cache, or do not depend on --seed.
func TestTrainGivesTheSameWeights(t *testing.T) {
	t.Parallel()
	want := trainTiny(t)
	for _, args := range [][]string{
		{"--memory", "85%"}, {"--memory", "85%", "--strategy", "revolve"}, {"--debug", "threads=1"}, {"--option", "profile.no-cache"},
	} {
		got := trainTiny(t, args...)
		for _, field := range []string{"weights_sha256", "loss", "accuracy", "test_correct"} {
			if got[field] != want[field] {
				t.Errorf("%v: %s is %v, unlimited %v", args, field, got[field], want[field])
			}
		}
		if got["measured_peak_bytes"] != got["predicted_peak_bytes"] || got["measured_peak_bytes"].(float64) > got["limit_bytes"].(float64) {
			t.Errorf("%v: measured peak %v, predicted %v, limit %v", args, got["measured_peak_bytes"], got["predicted_peak_bytes"], got["limit_bytes"])
		}
	}
	if got := trainTiny(t, "--seed", "2"); got["weights_sha256"] == want["weights_sha256"] {
		t.Error("another seed gives the same weights")
	}
	if want["test_samples"].(float64) != 360 {
		t.Errorf("evaluated on %v samples", want["test_samples"])
	}
}

// A limit that is too small with the state in the arena is enough without it, clipped and in parts of a step too, and the weights are the same.
// Only this test finds that --offload-state lets train fit in no smaller limit.
func TestTrainWithOffloadedState(t *testing.T) {
	if testing.Short() {
		t.Skip("shorter tests of executors offload state; the command is tried at full size")
	}
	t.Parallel()
	args := []string{"--batch", "8", "--image", "16", "--optimizer", "adam", "--bandwidth", "1GB/s"}
	for _, more := range [][]string{nil, {"--clip-norm", "0.5", "--on-nan", "skip"}, {"--accumulate", "2"}} {
		all := append(args[:len(args):len(args)], more...)
		want := trainTiny(t, all...)
		r := plimsoll(t, append([]string{"train", "-m", "tiny", "--steps", "5", "--strategy", "rotor", "--memory", "1KiB"}, all...)...)
		_, rest, _ := strings.Cut(r.err, "(--memory ")
		smallest, err := strconv.Atoi(rest[:strings.Index(rest+")", ")")])
		if r.code != exitNoFit || err != nil {
			t.Fatalf("without offloading: %+v", r)
		}
		for state, strategy := range map[string]string{"optimizer": "zero-offload", "weights": "layer-window"} {
			got := trainTiny(t, append(all, "--memory", strconv.Itoa(smallest-1), "--offload-state", state)...)
			if got["weights_sha256"] != want["weights_sha256"] || got["measured_peak_bytes"] != got["predicted_peak_bytes"] || got["strategy"] != strategy {
				t.Errorf("%s %v: %v, unlimited %v", state, more, got, want)
			}
		}
	}
}

// Only this test finds a flag of the optimizer, the data set or the learning rate that changes nothing in training.
func TestTrainWithEveryOptimizerAndDataSet(t *testing.T) {
	t.Parallel()
	seen := map[any]string{}
	for _, args := range [][]string{
		{}, {"--optimizer", "sgd", "--option", "sgd.momentum=0"}, {"--optimizer", "adam"}, {"--optimizer", "adamw"}, {"--optimizer", "muon"}, {"--optimizer", "muon", "--option", "muon.momentum=0"}, {"--data", "glyphs"},
		{"--lr-schedule", "cosine", "--warmup", "2"}, {"--lr-schedule", "step", "--option", "step.every=1"}, {"--clip-norm", "0.5"}, {"--lr", "0.05"}, {"--option", "data.channels=1"}, {"--classes", "12"},
	}[:atSize(13, 9)] {
		hash := trainTiny(t, append(args, "--steps", "2")...)["weights_sha256"]
		if other, taken := seen[hash]; taken {
			t.Errorf("%v gives the weights of %s", args, other)
		}
		seen[hash] = strings.Join(args, " ")
	}
}

func TestTrainWritesItsFolder(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "deep", "run")
	trainTiny(t, "--memory", "85%", "--out", out, "--eval-every", "2")
	want := []string{"chain.json", "final.safetensors", "log.jsonl", "plan.json", "report.html", "report.json", "run.json", "trace.json"}
	if files := tree(t, out); !slices.Equal(files, want) {
		t.Fatalf("files %v, want %v", files, want)
	}
	for _, curve := range []string{
		"Loss", "Accuracy", "Learning rate", "held out", "device idle", "idle: host", "store-all, predicted", "what the peak is made of", "saved set", "<dt>command</dt><dd>plimsoll train -m tiny", "<dt>version</dt>", "<dt>batch</dt>",
	} {
		if !strings.Contains(read(t, filepath.Join(out, "report.html")), curve) {
			t.Errorf("the report has no curve %q", curve)
		}
	}
	wantLog(t, out, 5, 2, 4, 5)
	works(t, "check", "-c", filepath.Join(out, "chain.json"), "-p", filepath.Join(out, "plan.json"))
}

// wantLog checks that a log has each of some steps once, in order, with its figures, and the evaluations after the given
// numbers of steps.
func wantLog(t *testing.T, out string, steps int, evals ...float64) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(read(t, filepath.Join(out, "log.jsonl"))))
	n := 0
	var evaluated []float64
	for lines.Scan() {
		var o map[string]float64
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			t.Fatalf("line %s: %v", lines.Text(), err)
		}
		if done, ok := o["eval"]; ok {
			if evaluated = append(evaluated, done); o["loss"] <= 0 || o["samples"] != 360 || o["seconds"] <= 0 || int(done) != n {
				t.Errorf("after %d steps: %s", n, lines.Text())
			}
			continue
		}
		for _, field := range []string{"loss", "lr", "norm", "seconds", "sequence_s", "update_s", "peak_bytes"} {
			if o[field] <= 0 {
				t.Errorf("step %d: %s is %v", n, field, o[field])
			}
		}
		if wait, ok := o["data_wait_s"]; !ok || wait < 0 || o["step"] != float64(n) {
			t.Errorf("line of step %d: %s", n, lines.Text())
		}
		n++
	}
	if n != steps || !slices.Equal(evaluated, evals) {
		t.Errorf("%d lines for %d steps, evaluations after %v, want %v", n, steps, evaluated, evals)
	}
}

func TestTrainIsReadable(t *testing.T) {
	t.Parallel()
	r := works(t, "train", "-m", "tiny", "--batch", "32", "--steps", "10", "--memory", "85%")
	for _, want := range []string{"trained", "loss", "accuracy", "85.0% of store-all's", "peak", "predicted", "measured", "sha256"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the summary lacks %q:\n%s", want, r.out)
		}
	}
	if strings.Count(r.err, "step ") != 10 {
		t.Errorf("progress:\n%s", r.err)
	}
	if r := works(t, "train", "-m", "tiny", "--batch", "8", "--steps", "1", "-q"); r.err != "" {
		t.Errorf("--quiet says %s", r.err)
	}
}

// A rate that blows up is an error that says so, and no summary.
func TestDivergence(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	r := plimsoll(t, "train", "-m", "mlp", "--batch", "8", "--steps", "60", "--lr", "1e30", "--out", out, "-q")
	if r.code != exitFailed || !strings.Contains(r.err, "lower --lr") || !strings.Contains(r.err, `layer "hidden`) || r.out != "" {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	for _, file := range tree(t, out) {
		if strings.HasPrefix(file, "report") || strings.HasSuffix(file, ".safetensors") {
			t.Errorf("%s of a failed run", file)
		}
	}
}

// TestValidate: every row is compared, audit included.
// Only this test finds that validate loses a strategy, a refusal or one of its four files.
func TestValidate(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	o := object(t, "validate", "-m", "tiny", "--batch", "32", "--memory", "100%,85%,10%", "--steps", "2", "--audit", "-q", "--out", out)
	rows, skipped := o["rows"].([]any), o["skipped"].([]any)
	if len(rows) < 5 || len(rows)+len(skipped) != 3*len(planner.Sequences()) {
		t.Fatalf("%d rows, %d skipped", len(rows), len(skipped))
	}
	for _, x := range rows {
		row := x.(map[string]any)
		if row["identical"] != true || row["measured_peak_bytes"] != row["predicted_peak_bytes"] || row["measured_s"].(float64) <= 0 {
			t.Errorf("row %v", row)
		}
	}
	for _, x := range skipped {
		if s := x.(map[string]any); s["smallest_bytes"].(float64) <= s["limit_bytes"].(float64) {
			t.Errorf("skipped %v", s)
		}
	}
	if files := tree(t, out); !slices.Equal(files, []string{"index.html", "report.json", "trace.json", "validate.json"}) {
		t.Errorf("files %v", files)
	}
}

// Only this test finds a demo without a table, a page or the rows on devices smaller than store-all and than the weights.
func TestDemo(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out", "demo")
	r := works(t, "demo", "-m", "tiny", "--batch", "32", "--language", "gpt2-4-16", "--length", "32", "--steps", "2", "--out", out)
	if !strings.Contains(r.out, "offload-dynprog") || !strings.Contains(r.out, "median error") || !strings.Contains(r.out, "\ngpt2-4-16 on opticks, 32 samples of 32 tokens:") {
		t.Errorf("no tables:\n%s", r.out)
	}
	all := strings.Fields("demo.json index.html report.json text/demo.json text/index.html text/report.json text/trace.json trace.json")
	if files := tree(t, out); !slices.Equal(files, all) {
		t.Errorf("files %v", files)
	}
	var o struct {
		Rows []map[string]any `json:"rows"`
		All  float64          `json:"store_all_bytes"`
		Text struct {
			Rows []bench.Row `json:"rows"`
		} `json:"text"`
		Moved bench.Moved `json:"moved"`
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "demo.json"))), &o); err != nil || len(o.Rows) == 0 {
		t.Fatalf("%d rows, %v", len(o.Rows), err)
	}
	for _, field := range []string{"strategy", "limit_bytes", "predicted_peak_bytes", "measured_peak_bytes", "predicted_s", "measured_s", "identical"} {
		if _, ok := o.Rows[0][field]; !ok {
			t.Errorf("rows lack %s", field)
		}
	}
	limited := 0
	for _, row := range o.Text.Rows {
		if row.Limit != "100 %" {
			limited++
		}
		if !row.Identical || row.PredictedPeakBytes != row.MeasuredPeakBytes || row.MeasuredPeakBytes > row.LimitBytes {
			t.Errorf("a row of the language model: %+v", row)
		}
	}
	if limited == 0 {
		t.Errorf("none of %d rows of the language model has a limit", len(o.Text.Rows))
	}
	if m := o.Moved; len(m.Rows) != 2 || m.Rows[1].LimitBytes >= m.WeightBytes || m.Rows[1].MeasuredPeakBytes > m.Rows[1].LimitBytes ||
		m.Rows[0].WeightsSHA256 != m.Rows[1].WeightsSHA256 || !strings.Contains(r.out, "\n"+m.Model+" on opticks, 4 samples of 32 tokens: ") {
		t.Errorf("no row on a device smaller than the weights: %+v", m)
	}
	small := o.Rows[len(o.Rows)-1]
	device, ok := small["device_bytes"].(float64)
	if !ok || device >= o.All || small["extent_bytes"].(float64) > device || small["identical"] != true {
		t.Errorf("the last row is not on a device smaller than %v: %v", o.All, small)
	}
	if !regexp.MustCompile(`store-all needs .* times as much\na step there takes [0-9.]+% (longer|less time) with `).MatchString(r.out) || !strings.Contains(read(t, filepath.Join(out, "index.html")), "ran on a device of") {
		t.Errorf("nothing is said of the small device:\n%s", r.out)
	}
}

// Every command line and every make target of the documents exists.
func TestDocumentsNameCommandsThatExist(t *testing.T) {
	t.Parallel()
	root := (&app{}).root()
	makefile := read(t, "../../Makefile")
	commands, targets := 0, 0
	for _, doc := range documents(t) {
		text := consoleBlock.ReplaceAllString(read(t, doc), "") // which TestDocumentsShowWhatIsPrinted runs
		text = strings.ReplaceAll(text, "; echo exit $?", "")
		for _, m := range regexp.MustCompile(`(?m)^\$? ?(?:bin/)?plimsoll ([a-z]+(?: [^\n#|>]*)?)(?:$|[#|>])`).FindAllStringSubmatch(text, -1) {
			args := strings.Fields(strings.ReplaceAll(m[1], `"`, ""))
			cmd, rest, err := root.Find(args)
			if err != nil || cmd == root {
				t.Errorf("%s: plimsoll %s: %v", doc, m[1], err)
				continue
			}
			cmd.InitDefaultHelpFlag()
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("%s: plimsoll %s: %v", doc, m[1], err)
			}
			commands++
		}
		for _, m := range regexp.MustCompile("(?m)(?:^\\$? ?|`)make ([a-z-]+)").FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).MatchString(makefile) {
				t.Errorf("%s: there is no make %s", doc, m[1])
			}
			targets++
		}
	}
	if commands < 8 || targets < 4 {
		t.Errorf("only %d commands and %d targets were checked", commands, targets)
	}
}

func documents(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		if _, err := os.Stat("../../" + name); err != nil {
			t.Errorf("%v", err)
			continue
		}
		docs = append(docs, "../../"+name)
	}
	return docs
}
