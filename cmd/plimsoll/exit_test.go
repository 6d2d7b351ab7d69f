package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"plimsoll/runtime/world"
)

// With --json an error is one object on standard error: the line for people, a kind, the exit code, and of what does not fit the
// numbers.
func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want map[string]any
	}{
		{[]string{"plan", "--fast", "--json"}, map[string]any{"kind": "bad_input", "exit_code": 2.0, "command": "plimsoll plan"}},
		{[]string{"--json", "fly"}, map[string]any{"kind": "bad_input", "exit_code": 2.0, "command": "plimsoll"}},
		{[]string{"plan", "-c", "none.json", "--memory", "1GiB", "--json"}, map[string]any{"kind": "bad_input", "exit_code": 2.0}},
		{[]string{"plan", "-c", five, "--memory", "100", "--strategy", "rotor-exact", "--json"}, map[string]any{
			"kind": "does_not_fit", "exit_code": 3.0, "strategy": "rotor-exact", "limit_bytes": 100.0, "smallest_bytes": 800.0, "op": "B4", "layer": 4.0, "layer_name": "block3",
		}},
		{[]string{"check", "-c", five, "--text", "Fall1 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 B2 B1", "--memory", "900", "--json"}, map[string]any{
			"kind": "does_not_fit", "exit_code": 3.0, "limit_bytes": 900.0, "smallest_bytes": 1700.0, "op": "B4", "layer": 4.0,
		}},
		{[]string{"plan", "-c", five, "--devices", "2", "--bandwidth", "1GB/s", "--memory", "100", "--json"}, map[string]any{"kind": "does_not_fit", "exit_code": 3.0, "strategy": "auto-flush"}},
		{[]string{"train", "-m", "tiny", "--batch", "4", "--memory", "1KiB", "--strategy", "rotor", "-q", "--json"}, map[string]any{
			"kind": "does_not_fit", "exit_code": 3.0, "strategy": "rotor", "limit_bytes": 1024.0, "layer": 1.0,
		}},
		{[]string{"train", "-m", "tiny", "--batch", "4", "--memory", "1KiB", "--devices", "cpu*2", "--strategy", "gpipe", "-q", "--json"}, map[string]any{
			"kind": "does_not_fit", "exit_code": 3.0, "limit_bytes": 1024.0, "strategy": "gpipe",
		}},
		{[]string{"train", "-m", "tiny", "--batch", "4", "--offload-state", "weights", "--host-memory", "1MiB", "-q", "--json"}, map[string]any{
			"kind": "does_not_fit", "exit_code": 3.0, "limit_bytes": 1048576.0, "host_memory": true,
		}},
		{[]string{"validate", "-m", "tiny", "--batch", "4", "--memory", "10%", "-q", "--json"}, map[string]any{"kind": "does_not_fit", "exit_code": 3.0}},
		{[]string{"train", "-m", "mlp", "--batch", "8", "--steps", "60", "--lr", "1e30", "-q", "--json"}, map[string]any{"kind": "failed", "exit_code": 1.0, "command": "plimsoll train"}},
	} {
		r := plimsoll(t, c.args...)
		var got map[string]any
		if err := json.Unmarshal([]byte(r.err), &got); err != nil || strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Errorf("%v: %v: %s%s", c.args, err, r.out, r.err)
			continue
		}
		for field, want := range c.want {
			if got[field] != want {
				t.Errorf("%v: %s is %v, want %v", c.args, field, got[field], want)
			}
		}
		if got["kind"] == "does_not_fit" && !(got["smallest_bytes"].(float64) > 0) {
			t.Errorf("%v: the smallest limit is missing: %v", c.args, got)
		}
		if r.code != int(c.want["exit_code"].(float64)) || got["error"] == "" {
			t.Errorf("%v: exit code %d: %v", c.args, r.code, got)
		}
		plain := plimsoll(t, slices.DeleteFunc(slices.Clone(c.args), func(s string) bool { return s == "--json" })...)
		if want := got["command"].(string) + ": " + got["error"].(string) + "\n"; plain.err != want && got["kind"] != "failed" {
			t.Errorf("%v: for people it is %q, with --json %q, fields %v", c.args, plain.err, want, slices.Sorted(maps.Keys(got)))
		}
	}
}

// A process that finds out that another one has died while it reads what the user gave does not blame the user.
func TestTheEndOfAnotherIsNoInput(t *testing.T) {
	t.Parallel()
	if f := failureOf("train", usage(&world.RankError{Rank: 2, Why: world.Died})); f.ExitCode != exitFailed || f.Kind != kindFailed {
		t.Errorf("%+v", f)
	}
}
