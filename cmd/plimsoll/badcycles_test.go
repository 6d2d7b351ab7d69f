package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/executor/train"
)

// blocksChain is the chain of docs/larger.md with some fields of its first layer set, or, with nil, left out.
func blocksChain(t *testing.T, set map[string]any) string {
	t.Helper()
	block := map[string]any{
		"forward_s": 0.010, "backward_s": 0.020, "output_bytes": 4000000, "saved_bytes": 60000000,
		"weight_bytes": 200000000, "state_bytes": 400000000, "update_s": 0.002, "host_update_s": 0.030,
	}
	first, second := maps.Clone(block), maps.Clone(block)
	first["name"], second["name"] = "block1", "block2"
	maps.Copy(first, set)
	maps.DeleteFunc(first, func(_ string, v any) bool { return v == nil })
	head := map[string]any{"name": "head", "forward_s": 0.002, "backward_s": 0.004, "output_bytes": 12, "saved_bytes": 1000}
	text, err := json.Marshal(map[string]any{
		"format": "plimsoll.chain/v1", "name": "blocks", "input_bytes": 4000000, "bandwidth_bytes_per_s": 25e9, "layers": []any{first, second, head},
	})
	if err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(t.TempDir(), "blocks.json"), string(text))
}

// h100Without is the description of an H100 with a field set, or, with nil, left out.
func h100Without(t *testing.T, field string, value any) string {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal([]byte(read(t, "../../executor/estimate/devices/h100.json")), &d); err != nil {
		t.Fatal(err)
	}
	if d[field] = value; value == nil {
		delete(d, field)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(t.TempDir(), "device.json"), string(text))
}

// badCycles are mistakes in plans that move weights and state.
func badCycles(t *testing.T) []badCase {
	t.Helper()
	blocks := blocksChain(t, nil)
	plan := func(chain string, more ...string) []string {
		return append([]string{"plan", "-c", chain, "--memory", "700MB", "--strategy", "residency", "-o", "OUT"}, more...)
	}
	check := func(text string, more ...string) []string {
		return append([]string{"check", "-c", blocks, "--memory", "700MB", "--text", text}, more...)
	}
	on := func(field string, value any) []string {
		return []string{"profile", "-m", "gpt2-1-32", "--length", "16", "--device", h100Without(t, field, value), "-o", "OUT"}
	}
	return []badCase{
		{"cycle: host memory", plan(blocks, "--host-memory", "100MB"), 3, []string{"residency: ", "100,000,000 B", "the least found is 1.304 GiB", "--host-memory 1400000000"}},
		{"cycle: memory", plan(blocks, "--memory", "300MB"), 3, []string{"residency: a limit of 286.1 MiB is too small", "(--memory 472000000)", "layer 2 (block2)"}},
		{"cycle: memory of train", []string{"train", "-m", "gpt2-1-32", "--length", "16", "--batch", "2", "--strategy", "residency", "--memory", "1KiB", "--out", "OUT"}, 3,
			[]string{"residency: a limit of 1.000 KiB is too small: the smallest found is ", "(--memory "}},
		{"cycle: host memory of train", []string{"train", "-m", "gpt2-1-32", "--length", "16", "--batch", "2", "--strategy", "zero-offload", "--host-memory", "1MiB", "--out", "OUT"}, 3,
			[]string{"zero-offload: 1.000 MiB (1,048,576 B) of host memory are too little", "give at least --host-memory "}},
		{"cycle: tied to no layer", plan(blocksChain(t, map[string]any{"weight_bytes": nil, "state_bytes": nil, "weights_of": 9})), 2,
			[]string{"layer 1 (block1)", `"weights_of" is 9`, "1 to 3"}},
		{"cycle: tied to a layer without weights", plan(blocksChain(t, map[string]any{"weight_bytes": nil, "state_bytes": nil, "weights_of": 3})), 2,
			[]string{"layer 1 (block1)", `"weights_of" is 3`, "without weights of its own"}},
		{"cycle: state below 0", plan(blocksChain(t, map[string]any{"state_bytes": -4})), 2, []string{"layer 1 (block1)", `"state_bytes" is -4`, "negative"}},
		{"cycle: no such op", check("Fall1 Fall2 Fall3 B3 B2 Qw2"), 2, []string{"op 5", `"Qw2" is none of`}},
		{"cycle: no such op behind one of state", check("Fall1 Fall2 Fall3 B3 B2 U2 Qw2"), 2, []string{"op 6", `"Qw2" is no op`, "Pw, Ow"}},
		{"cycle: no weights", check("Fall1 Fall2 Fall3 Ow1 Dw1 B3 B2 U2 B1 U1"), 2, []string{"op 8 (B1)", "weights of layer 1"}},
		{"cycle: no gradient on the host", check("Fck1 Fall2 Fall3 B3 B2 Dw2 Og2 H2 Fall1 B1 Dw1 H1 Pw1 Pw2"), 2, []string{"op 11 (H1)", "the gradient of layer 1 is on the device"}},
		{"cycle: no update", check("Fall1 Fall2 Fall3 B3 B2 U2 B1"), 2, []string{"layer 1 is never updated"}},
		{"cycle: two updates", check("Fall1 Fall2 Fall3 B3 B2 U2 U2 B1 U1"), 2, []string{"op 6 (U2)", "twice"}},
		{"cycle: no cycle", check("Fall1 Fall2 Fall3 B3 B2 Dw2 Og2 H2 B1 U1"), 2, []string{"the plan is not cyclic", "the weights of layer 2"}},
		{"cycle: no layer", check("Fall1 Fall2 Fall3 B3 B2 U2 B1 U9"), 2, []string{"op 7 (U9)", "layers 1 to 3"}},
		{"cycle: resident over the limit", check("Fall1 Fall2 Fall3 B3 B2 U2 B1 U1", "--memory", "300MB"), 3, []string{"what is resident when a step begins takes", "300,000,000 B"}},
		{"device: no memory", on("memory_bytes", nil), 2, []string{"device.json", `"memory_bytes" is missing`}},
		{"device: a bandwidth below 0", on("to_host_bytes_per_s", -1), 2, []string{"device.json", `"to_host_bytes_per_s" is -1`}},
		{"device: no products", on("flop_per_s", nil), 2, []string{"device.json", `"flop_per_s" is missing`}},
	}
}

// Check reads the text form that plan prints, for plans that move weights and state, too.
func TestCheckReadsCycles(t *testing.T) {
	t.Parallel()
	blocks := blocksChain(t, nil)
	args := []string{"-c", blocks, "--memory", "700MB", "--duplex"}
	text := strings.TrimSpace(works(t, append([]string{"plan", "--strategy", "residency", "--text"}, args...)...).out)
	want := object(t, append([]string{"plan", "--strategy", "residency"}, args...)...)
	got := object(t, append([]string{"check", "--text", text}, args...)...)
	for _, field := range []string{"makespan_s", "seconds_per_minibatch", "lower_bound_s", "cycle"} {
		if got[field] == nil || got[field] != want[field] {
			t.Errorf("%s: %v, as planned %v", field, got[field], want[field])
		}
	}
	if got["valid"] != true || !strings.Contains(text, "Og2") {
		t.Errorf("%v of %s", got, text)
	}
}

// The least host memory of the error works, and gives the same weights. Only this test finds an error that counts what the planner counts,
// and not the batches and buffers of a run.
func TestTheLeastHostMemoryWorks(t *testing.T) {
	t.Parallel()
	args := []string{"train", "-m", "mlp", "--batch", "16", "--steps", "2", "--optimizer", "adamw", "--option", "profile.steps=1", "-q"}
	want := weights(t, works(t, append(slices.Clone(args), "--json")...).out)
	for _, strategy := range []string{"residency", "zero-offload", "layer-window"} {
		line := append(slices.Clone(args), "--strategy", strategy, "--memory", "5500KB")
		r := plimsoll(t, append(line, "--host-memory", "1KiB")...)
		_, least, found := strings.Cut(strings.TrimSpace(r.err), "give at least --host-memory ")
		if !found || r.code != exitNoFit || !strings.Contains(r.err, strategy+": 1.000 KiB (1,024 B) of host memory are too little") {
			t.Fatalf("%s: exit code %d: %s", strategy, r.code, r.err)
		}
		var o train.Summary
		if err := json.Unmarshal([]byte(works(t, append(line, "--host-memory", least, "--json")...).out), &o); err != nil || o.WeightsSHA256 != want {
			t.Errorf("%s: %+v, %v, want %s", strategy, o, err, want)
		}
		if most, err := strconv.ParseInt(least, 10, 64); err != nil || o.HostBytes > most {
			t.Errorf("%s: %d B of %s, %v", strategy, o.HostBytes, least, err)
		}
	}
}

// The plan of a run that moves weights and state is run again within the limit that it has taken, to the same weights.
func TestCyclicPlansOfRunsAreRunAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"train", "-m", "gpt2-1-32", "--length", "16", "--batch", "2", "--optimizer", "adamw", "--steps", "2"}
	first := object(t, append(args, "--strategy", "residency", "--memory", "750KiB", "--out", filepath.Join(dir, "run"))...)
	plan := filepath.Join(dir, "run", "plan.json")
	var file struct {
		Arena int64 `json:"arena_bytes"`
	}
	if err := json.Unmarshal([]byte(read(t, plan)), &file); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{file.Arena, 2 * file.Arena} {
		again := object(t, append(args, "--plan", plan, "--profile", filepath.Join(dir, "run", "chain.json"), "--memory", fmt.Sprint(limit))...)
		if again["weights_sha256"] != first["weights_sha256"] {
			t.Errorf("within %d bytes: %v, want %v", limit, again, first)
		}
	}
}
