package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// With kernels every device of a pipeline is as full as predicted and steps with a flush are one device's bits.
func TestValidatePipelines(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	svg := filepath.Join(t.TempDir(), "run.svg")
	o := object(t, "validate", "-m", "tiny", "--image", "16", "--batch", "8", "--devices", "cpu*2;cpu*3", "--strategy", "1f1b*,gpipe,chimera",
		"--microbatches", "4", "--versions", "stash", "--steps", "2", "--minibatches", "8", "--option", "profile.steps=9", "-q", "--out", out, "--svg", svg)
	rows := o["rows"].([]any)
	if len(rows) != 5 || len(o["skipped"].([]any)) != 1 || o["simulated_time"] != false {
		t.Fatalf("%d rows, skipped %v", len(rows), o["skipped"])
	}
	identical := 0
	for _, x := range rows {
		row := x.(map[string]any)
		if row["identical"] == true {
			identical++
		}
		if row["strategy"] == "1f1b*" && row["weight_versions"] != "stash" || row["measured_s"].(float64) <= 0 {
			t.Errorf("row %v", row)
		}
		looked := 0
		for _, x := range row["per_device"].([]any) {
			d := x.(map[string]any)
			touched, holds := d["measured_extent_bytes"].(float64)
			if !holds { // no stage: a plan by measured times may leave a device out
				continue
			}
			if extent := d["predicted_extent_bytes"].(float64); touched > extent || touched <= extent-128 {
				t.Errorf("%v: %v", row["strategy"], d)
			}
			looked++
		}
		if looked == 0 {
			t.Errorf("%v: no device was looked at", row["strategy"])
		}
	}
	if identical != 2 {
		t.Errorf("%d rows are bit-identical to one device", identical)
	}
	if files := tree(t, out); !slices.Equal(files, []string{"index.html", "report.json", "tables.md", "trace.json", "validate.json"}) {
		t.Errorf("files %v", files)
	}
	if picture := read(t, svg); !strings.Contains(picture, "<svg") || !strings.Contains(picture, ">planned<") || !strings.Contains(picture, ">measured<") || strings.Count(picture, "bar w") < 4 { // a stalled device may show one task alone
		t.Errorf("picture %s", picture)
	}
	var trace map[string]any
	if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "trace.json"))), &trace); err != nil {
		t.Error(err)
	}
}

// Simulated time is called so, and needs no measurement when times are drawn.
func TestValidateSimulated(t *testing.T) {
	t.Parallel()
	args := []string{
		"validate", "-m", "tiny", "--image", "16", "--batch", "4", "--devices", "cpu*2", "--strategy", "1f1b*,eager", "--simulated", "--draws", "2",
		"--minibatches", "2", "--peer-bandwidth", "50MB/s",
	}
	o := object(t, args...)
	rows := o["rows"].([]any)
	if len(rows) != 4 || o["simulated_time"] != true || !strings.Contains(o["title"].(string), "simulated time") {
		t.Fatalf("%d rows of %v", len(rows), o["title"])
	}
	slowest := 0.0 // a machine that stalls makes two minibatches end at once, in most rows it does not
	for _, x := range rows {
		row := x.(map[string]any)
		if row["measured_s"].(float64) <= 0 || row["identical"] != nil || row["draw"].(float64) < 1 {
			t.Errorf("row %v", row)
		}
		slowest = max(slowest, row["measured_to_predicted"].(float64))
	}
	if slowest < 0.8 {
		t.Errorf("no plan took its time: %v", rows)
	}
	r := works(t, args...)
	if !strings.Contains(r.out, "(simulated time)") || !strings.Contains(r.out, "1f1b* beside eager at 2 points") || strings.Contains(r.err, "measuring") {
		t.Errorf("%s%s", r.err, r.out)
	}
}

func TestValidatePipelinesRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	base := []string{"validate", "-m", "tiny", "--image", "16", "--batch", "8"}
	four := append(slices.Clone(base), "--devices", "cpu*4")
	cases := []badCase{
		{"one device", append(slices.Clone(base), "--simulated"), 2, []string{"--simulated is for pipelines", "cpu*4"}},
		{"one device, links", append(slices.Clone(base), "--peer-bandwidth", "1GB/s"), 2, []string{"--peer-bandwidth is for pipelines"}},
		{"spec", append(slices.Clone(base), "--devices", "cpu*2;"), 2, []string{"bad device"}},
		{"audit", append(slices.Clone(four), "--audit", "--simulated"), 2, []string{"--audit and --simulated do not go together"}},
		{"host memory", append(slices.Clone(four), "--host-memory", "1GiB"), 2, []string{"--host-memory is for one device"}},
		{"strategy", append(slices.Clone(four), "--strategy", "rotor"), 2, []string{"rotor plans for one device", "for several", "1f1b-flush"}},
		{"microbatches", append(slices.Clone(four), "--microbatches", "-1"), 2, []string{"--microbatches is -1"}},
		{"uneven", append(slices.Clone(four), "--strategy", "gpipe", "--microbatches", "3"), 2, []string{"--batch is 8", "3 microbatches"}},
		{"minibatches", append(slices.Clone(four), "--minibatches", "1"), 2, []string{"--minibatches is 1", "2 or more"}},
		{"draws", append(slices.Clone(four), "--draws", "2"), 2, []string{"--draws", "--simulated"}},
		{"negative draws", append(slices.Clone(four), "--simulated", "--draws", "-2"), 2, []string{"--draws is -2"}},
		{"versions", append(slices.Clone(four), "--versions", "flush"), 2, []string{`--versions is "flush"`, "stash"}},
		{"memory", append(slices.Clone(four), "--memory", "50%,0"), 2, []string{"--memory", "0"}},
		{"steps", append(slices.Clone(four), "--steps", "0"), 2, []string{"--steps is 0"}},
		{"svg", append(slices.Clone(four), "--svg", "none/run.svg"), 2, []string{"--svg none/run.svg", "no folder"}},
		{"out", append(slices.Clone(four), "--out", file), 2, []string{"--out", "is a file"}},
		{"simulated devices", append(slices.Clone(base), "--devices", "null*2", "--simulated"), 2, []string{"--simulated is for cpu"}},
		{"branches", []string{"validate", "-m", "siamese", "--devices", "cpu*2", "--batch", "8"}, 2, []string{"siamese", "--devices cpu*2"}},
		{"does not fit", append(slices.Clone(base), "--devices", "cpu*2", "--strategy", "1f1b*", "--simulated", "--draws", "1", "--memory", "10KiB"), 3, []string{"1f1b*", "--memory"}},
		{"no plan", append(slices.Clone(base), "--devices", "cpu*3", "--batch", "12", "--strategy", "chimera", "--simulated", "--draws", "1"), 2, []string{"no strategy has a plan", "chimera"}},
	}
	for _, c := range cases {
		r := plimsoll(t, c.args...)
		if r.code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", c.name, r.code, c.code, r.err)
		}
		for _, want := range c.want {
			if !strings.Contains(r.err, want) {
				t.Errorf("%s: no %q in %s", c.name, want, r.err)
			}
		}
		if strings.Contains(r.err, "BUG") || r.out != "" {
			t.Errorf("%s: %s%s", c.name, r.out, r.err)
		}
	}
}
