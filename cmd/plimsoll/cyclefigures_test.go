package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// stateful is a chain of two layers whose weights and state do not fit beside each other.
const stateful = `{"format": "plimsoll.chain/v1", "name": "two", "input_bytes": 10, "bandwidth_bytes_per_s": 100, "layers": [
 {"name": "a", "forward_s": 1, "backward_s": 2, "output_bytes": 10, "saved_bytes": 20,
  "weight_bytes": 100, "state_bytes": 200, "update_s": 0.5, "host_update_s": 1},
 {"name": "b", "forward_s": 1, "backward_s": 2, "output_bytes": 10, "saved_bytes": 20,
  "weight_bytes": 100, "state_bytes": 200, "update_s": 0.5, "host_update_s": 1}]}`

// plan and check say what the peak of a cyclic plan is made of, and its bound; plan and trace draw it.
func TestCyclicPlansAreShown(t *testing.T) {
	t.Parallel()
	at := inFolder(t)
	write(t, at("c.json"), stateful)
	planned := object(t, "plan", "-c", at("c.json"), "--memory", "450", "--duplex", "--strategy", "residency", "-o", at("p.json"),
		"--svg", at("plan.svg"), "--trace", at("plan.trace"))
	checked := object(t, "check", "-c", at("c.json"), "-p", at("p.json"))
	for _, got := range []map[string]any{planned, checked} {
		sum := 0.0
		for _, part := range got["at_peak"].([]any) {
			sum += part.(map[string]any)["bytes"].(float64)
		}
		if peak := got["per_device_peak_bytes"].([]any)[0]; sum != peak || got["lower_bound_s"] != planned["lower_bound_s"] || got["lower_bound_s"] == 0.0 {
			t.Errorf("parts of %v bytes: %v", sum, got)
		}
		if first, last := got["first_step_s"].(float64), got["last_step_s"].(float64); first <= 0 || last < got["makespan_s"].(float64) {
			t.Errorf("a first step of %v s, a last one of %v s: %v", first, last, got)
		}
	}
	r := works(t, "check", "-c", at("c.json"), "-p", at("p.json"))
	if !strings.Contains(r.out, " of weights\n") || !strings.Contains(r.out, "no such plan within the limits is faster") {
		t.Error(r.out)
	}
	works(t, "trace", "-c", at("c.json"), "-p", at("p.json"), "-o", at("t.json"), "--svg", at("t.svg"))
	for _, pair := range [][2]string{{"plan.svg", "t.svg"}, {"plan.trace", "t.json"}} {
		if a, b := read(t, at(pair[0])), read(t, at(pair[1])); a != b {
			t.Errorf("%v differ", pair)
		}
	}
	if svg := read(t, at("t.svg")); !strings.Contains(svg, "gradients of weights") || !strings.Contains(svg, "compute") {
		t.Error(svg)
	}
}

// inFolder returns the paths of files in a folder of the test's own.
func inFolder(t *testing.T) func(name string) string {
	folder := t.TempDir()
	return func(name string) string { return filepath.Join(folder, name) }
}
