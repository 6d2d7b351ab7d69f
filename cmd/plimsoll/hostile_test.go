package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/planner"
)

// Every strategy plans chains with extreme times, on links of any speed, or says why not, as text and as JSON; no command fails. The times
// are next to nothing, next to nothing beside others, or centuries.
// Only this test finds a strategy that fails, or prints invalid JSON, for times near zero or links of any speed.
func TestHostileChains(t *testing.T) {
	t.Parallel()
	chains, err := filepath.Glob("testdata/hostile/*.json")
	if err != nil || len(chains) != 3 {
		t.Fatalf("%v, %v", chains, err)
	}
	links := []string{"", "0.001B/s", "12GB/s", "1e300B/s", "1e-100B/s"}[:atSize(5, 2)]
	h := &hostile{T: t}
	for _, c := range chains {
		for _, link := range links {
			for _, s := range planner.Names() {
				by := []string{"-c", c, "--strategy", s, "--option", "branch-and-bound.states=1000"} // after which branch-and-bound ends
				for _, memory := range []string{"1", "40%"} {
					h.try(link, append([]string{"plan", "--memory", memory}, by...)...)
				}
				if link == "" || link == "0.001B/s" {
					h.try(link, append([]string{"frontier", "--points", "3"}, by...)...)
				}
			}
			for _, s := range planner.Pipelines() {
				if s.Name == "ilp" || s.Name == "milp" { // which search
					continue
				}
				for _, devices := range []string{"1", "2", "3"} {
					h.try(link, "plan", "-c", c, "--strategy", s.Name, "--devices", devices, "--memory", "60MB")
				}
			}
		}
		out := t.TempDir()
		h.try("", "bench", "-c", c, "--points", "3", "--bandwidths", "0.001B/s,1B/s,12GB/s", "--out", out)
		h.try("", "bench", "pipelines", "-c", c, "--memory", "60MB", "--bandwidths", "1B/s,12GB/s", "--devices", "2,3", "--out", out)
	}
	if h.tried < atSize(1100, 450) || h.planned < atSize(250, 100) {
		t.Errorf("%d command lines were tried, %d of them planned", h.tried, h.planned)
	}
}

// hostile tries command lines.
type hostile struct {
	*testing.T
	tried, planned int
}

// try runs a command line, with a link if there is one, and reports a failure, or a result that is no JSON.
func (h *hostile) try(link string, args ...string) {
	h.Helper()
	if link != "" {
		args = append(args, "--bandwidth", link)
	}
	h.tried++
	r := plimsoll(h.T, append(args, "--json")...)
	switch {
	case r.code != exitOK && r.code != exitUsage && r.code != exitNoFit || strings.Contains(r.err, "BUG"):
		h.Errorf("%v: exit code %d: %s", args, r.code, r.err)
	case r.code == exitOK:
		h.planned++
		if !json.Valid([]byte(r.out)) {
			h.Errorf("%v prints no JSON: %s", args, r.out)
		}
	}
}

// Errors that quote a file are short, as text and as JSON, and name the file.
func TestErrorsAreShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 100_000)
	for name, text := range map[string]string{
		"c.json":           `{"format":"` + long + `"}`,
		"names.json":       `{"format":"plimsoll.chain/v1","name":"n","input_bytes":1,"layers":[{"name":"` + long + `","forward_s":-1,"backward_s":1,"output_bytes":1}]}`,
		"many words.json":  `{"format":"plimsoll.chain/v1","name":"n","input_bytes":1,"layers":"` + strings.Repeat("a ", 100_000) + `"}`,
		"control.json":     `{"format":"` + strings.Repeat(`\u001b`, 50_000) + `"}`,
		"unknown text.csv": long,
	} {
		file := write(t, filepath.Join(t.TempDir(), name), text)
		for _, args := range [][]string{{"plan", "-c", file, "--memory", "40%"}, {"plan", "-c", file, "--memory", "40%", "--json"}} {
			if r := plimsoll(t, args...); r.code != exitUsage || len(r.err) > 8000 || !strings.Contains(r.err, name) {
				t.Errorf("%s: exit code %d, %d bytes: %.200s", name, r.code, len(r.err), r.err)
			}
		}
	}
}
