package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLimitsLeaveTime: of a quarter of an hour two minutes are free when every part takes all of its time, and every call ends by itself
// before it would be ended. Parts of correctness run beside each other.
func TestLimitsLeaveTime(t *testing.T) {
	t.Parallel()
	calls, all := map[string]time.Duration{}, time.Duration(0)
	for _, e := range table {
		if e.call == correctness {
			calls[e.call] = max(calls[e.call], e.limit)
			continue
		}
		calls[e.call] += e.limit
	}
	for call, took := range calls {
		if all += took; took > 530*time.Second {
			t.Errorf("the call %s may take %v, and run.sh ends after 530 s", call, took)
		}
	}
	if all > 13*time.Minute {
		t.Errorf("all parts may take %v", all)
	}
	if calls[smokeCall] > time.Minute || len(calls) != 4 {
		t.Errorf("the calls take %v", calls)
	}
}

func TestListOfParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"parts smoke copies", "smoke 60 judges\ncopies 15 measures\n"},
		{"-limits 7 parts speed", "throughput 7 measures\noffload 7 measures\nvendors 7 measures\nbeyond 7 measures\n"},
		{"-limits beyond=9 parts speed", "throughput 120 measures\noffload 40 measures\nvendors 40 measures\nbeyond 9 measures\n"},
		{"parts jump", `unknown part "jump": known are the calls smoke, correctness`},
		{"-limits x parts copies", `LIMIT has "x"`},
		{"-limits jump=7 parts copies", `LIMIT has "jump=7"`},
		{"-limits copies=0 parts copies", `LIMIT has "copies=0"`},
	} {
		var out bytes.Buffer
		err := run(t.Context(), strings.Fields(c.args), &out)
		if err != nil {
			out.WriteString(err.Error())
		}
		if got := out.String(); got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %q, %v; want %q", c.args, got, err, c.want)
		}
	}
	without, err := choose(nil)
	if err != nil || len(without) < 2 || slices.ContainsFunc(without, func(e entry) bool { return !e.judges() }) {
		t.Errorf("without a name: %v, %v", without, err)
	}
}

// TestReadmeHasEveryCallAndPart: README.md types each call once, in the order of the table, and explains each part.
func TestReadmeHasEveryCallAndPart(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("README.md")
	must(t, err)
	text := string(raw)
	var calls, explained []string
	for _, m := range regexp.MustCompile(`(?m)^    out/gpu-suite/run\.sh ([a-z]+) `).FindAllStringSubmatch(text, -1) {
		calls = append(calls, m[1])
	}
	var want []string
	for _, e := range table {
		if !slices.Contains(want, e.call) {
			want = append(want, e.call)
		}
	}
	if !slices.Equal(calls, want) {
		t.Errorf("the calls are %v, want %v", calls, want)
	}
	_, rows, _ := strings.Cut(text, "## What each part asks")
	for _, m := range regexp.MustCompile("(?m)^\\| (`[a-z]+`(?:, `[a-z]+`)*) \\|").FindAllStringSubmatch(rows, -1) {
		explained = append(explained, strings.Split(strings.ReplaceAll(m[1], "`", ""), ", ")...)
	}
	if !slices.Equal(explained, partNames()) {
		t.Errorf("README.md explains %v, the parts are %v", explained, partNames())
	}
}

// TestMerge: the results of several calls become one, of a part that ran twice the later; logs are kept.
func TestMerge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := func(name string) string { return filepath.Join(dir, name) }
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, parts := range map[string][]outcome{
		"late":  {{Part: "smoke", State: green, Summary: "go", Started: at.Add(time.Hour)}, {Part: "ops", State: green, Started: at}},
		"early": {{Part: "smoke", State: red, Summary: "mend", Started: at}, {Part: "kernels", State: green, Started: at}},
	} {
		must(t, os.Mkdir(folder(name), 0o755))
		for _, p := range parts {
			must(t, record(folder(name), &p))
		}
		must(t, os.WriteFile(filepath.Join(folder(name), logName), []byte("log of "+name+"\n"), 0o600))
	}
	for _, order := range [][]string{{"early", "late"}, {"late", "early"}} {
		into := folder("merged " + order[0])
		var out bytes.Buffer
		must(t, run(t.Context(), []string{"-out", into, "merge", folder(order[0]), folder(order[1])}, &out))
		r, err := readResults(into)
		must(t, err)
		states := []string{}
		for _, p := range r.Parts {
			states = append(states, p.Part+" "+p.State)
		}
		if got := strings.Join(states, ", "); got != "smoke green, kernels green, ops green" || strings.Count(out.String(), "\n") != 3 {
			t.Errorf("%v: %s; printed %s", order, got, out.String())
		}
		log, err := os.ReadFile(filepath.Join(into, logName))
		must(t, err)
		if want := "log of " + order[0] + "\nlog of " + order[1] + "\n"; string(log) != want {
			t.Errorf("the log is %q", log)
		}
		if page, err := os.ReadFile(filepath.Join(into, "results.md")); err != nil || !strings.Contains(string(page), "| kernels | green |") {
			t.Errorf("the page is %s, %v", page, err)
		}
	}
	must(t, os.Mkdir(folder("empty"), 0o755))
	for says, args := range map[string][]string{"needs the folders": {"merge"}, "no results.json": {"merge", folder("empty")}} {
		if err := run(t.Context(), append([]string{"-out", folder("none")}, args...), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", args, err, says)
		}
	}
}

// TestEveryPartIsMeasuredOrRun: the table has each part that this program measures, and run.sh performs the others.
func TestEveryPartIsMeasuredOrRun(t *testing.T) {
	t.Parallel()
	for name := range maps.Keys(parts) {
		if !slices.Contains(partNames(), name) {
			t.Errorf("the table lacks %s", name)
		}
	}
	script, err := os.ReadFile("run.sh")
	must(t, err)
	for _, name := range partNames() {
		performed := regexp.MustCompile(`(?m)^\t[a-z| ]*\b` + name + `\b[a-z| ]*\) `).Match(script)
		if _, measured := parts[name]; !measured && !performed {
			t.Errorf("run.sh does not perform %s", name)
		}
	}
}
