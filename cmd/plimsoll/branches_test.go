package main

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A model of branches is measured, planned and trained like a chain: to store-all's bits, at the predicted peak.
func TestBranches(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "run")
	train := func(args ...string) map[string]any {
		return object(t, append([]string{"train", "-m", "siamese", "--image", "8", "--batch", "64", "--steps", "3"}, args...)...)
	}
	all := train("--strategy", "multi-delta")
	if run := train("--memory", "75%"); run["weights_sha256"] != all["weights_sha256"] || run["strategy"] != "auto" {
		t.Errorf("by default: %v, with all memory %v", run, all)
	}
	run := train("--strategy", "multi-empty", "--memory", "80%", "--out", folder)
	if run["weights_sha256"] != all["weights_sha256"] || run["measured_peak_bytes"] != run["predicted_peak_bytes"] {
		t.Errorf("%v, with all memory %v", run, all)
	}
	if run["limit_bytes"].(float64) >= all["measured_peak_bytes"].(float64) {
		t.Errorf("a limit of %v is none", run["limit_bytes"])
	}
	c, p := filepath.Join(folder, "chain.json"), filepath.Join(folder, "plan.json")
	if text := works(t, "check", "-c", c, "-p", p).out; !strings.Contains(text, "the plan keeps every rule") {
		t.Errorf("check: %s", text)
	}
	whole, tight := object(t, "plan", "-c", c, "--memory", "100%", "--strategy", "multi-empty"), object(t, "plan", "-c", c, "--memory", "60%", "--strategy", "multi-empty")
	// The same times, added up in another order.
	if math.Abs(whole["makespan_s"].(float64)/whole["store_all_s"].(float64)-1) > 1e-9 || tight["makespan_s"].(float64) <= whole["makespan_s"].(float64) || tight["forwards"].(float64) <= tight["layers"].(float64) {
		t.Errorf("%v, with all memory %v", tight, whole)
	}
	if files := tree(t, folder); !slices.Contains(files, "report.html") || !slices.Contains(files, "trace.json") {
		t.Errorf("%v", files)
	}
	if plan := object(t, "plan", "-c", c, "--memory", "60%"); plan["makespan_s"].(float64) > tight["makespan_s"].(float64) {
		t.Errorf("%v, multi-empty has %v", plan, tight)
	}
	for _, k := range []struct {
		args []string
		says string
	}{
		{[]string{"plan", "-c", c, "--memory", "60%", "--strategy", "rotor"}, "use auto, multi-delta or multi-empty"},
		{[]string{"train", "-m", "siamese", "--image", "8", "--strategy", "rotor"}, "rotor cannot plan siamese of 2 branches"},
		{[]string{"frontier", "-c", c}, "use plimsoll plan"},
		{[]string{"bench", "--chain", c, "--out", t.TempDir()}, "use plimsoll plan"},
	} {
		if r := plimsoll(t, k.args...); r.code != exitUsage || !strings.Contains(r.err, k.says) {
			t.Errorf("plimsoll %s: exit code %d, %s", strings.Join(k.args, " "), r.code, r.err)
		}
	}
}
