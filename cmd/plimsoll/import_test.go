package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// threeForms writes one chain as a chain file, as PipeDream's graph.txt and as a table.
func threeForms(t *testing.T) map[string]string {
	t.Helper()
	folder := t.TempDir()
	at := func(name, text string) string { return write(t, filepath.Join(folder, name), text) }
	return map[string]string{
		"graph": at("x.graph.txt", `node1 -- Input0 -- forward_compute_time=0, backward_compute_time=0, activation_size=100, parameter_size=0
node2 -- Linear(1) -- forward_compute_time=1, backward_compute_time=2, activation_size=300, parameter_size=7
node3 -- Linear(2) -- forward_compute_time=3, backward_compute_time=4, activation_size=200, parameter_size=8
	node1 -- node2
	node2 -- node3
`),
		"table": at("x.csv", `name,forward_ms,backward_ms,output_bytes,weight_bytes
input,,,100,
1 node2 Linear,1,2,300,7
2 node3 Linear,3,4,200,8
loss,0,0,0,0
`),
		"chain": at("x.json", `{"format":"plimsoll.chain/v1","name":"x","input_bytes":100,"layers":[
{"name":"1 node2 Linear","forward_s":0.001,"backward_s":0.002,"output_bytes":300,"weight_bytes":7},
{"name":"2 node3 Linear","forward_s":0.003,"backward_s":0.004,"output_bytes":200,"weight_bytes":8},
{"name":"loss","forward_s":0,"backward_s":0,"output_bytes":0}]}`),
	}
}

// Every command that takes a chain reads all forms, and says the same of each; import writes each as the same file.
func TestEveryCommandReadsEveryForm(t *testing.T) {
	t.Parallel()
	forms := threeForms(t)
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	const store = "Fall1 Fall2 Fall3 B3 B2 B1"
	for _, args := range [][]string{
		{"plan", "--memory", "100%", "--strategy", "rotor-exact", "-c"},
		{"plan", "--devices", "2", "--bandwidth", "1GB/s", "--strategy", "gpipe", "-c"},
		{"frontier", "--strategy", "rotor-exact", "-c"},
		{"check", "--text", store, "-c"},
		{"trace", "--text", store, "-o", at("t.json"), "-c"},
		{"convert", "--text", store, "-o", at("p.json"), "-c"},
		{"bench", "--strategy", "rotor", "--points", "2", "--out", at("bench"), "-c"},
		{"bench", "pipelines", "--strategy", "contiguous,madpipe", "--devices", "2", "--memory", "1MB", "--bandwidths", "1GB/s", "--out", at("pipelines"), "-c"},
		{"import"},
	} {
		said := map[string]string{}
		for form, file := range forms {
			said[works(t, append(slices.Clone(args), file)...).out] = form
		}
		if len(said) != 1 && args[0] != "bench" { // which adds to its folder
			t.Errorf("%v says otherwise of %v", args, slices.Sorted(maps.Values(said)))
		}
	}
	written := map[string]bool{}
	for form, file := range forms {
		works(t, "import", file, "-o", at(form+".json"))
		written[read(t, at(form+".json"))] = true
	}
	if len(written) != 1 {
		t.Errorf("import writes %v", slices.Collect(maps.Keys(written)))
	}
}

// import adds what a form does not say, and prints what it is.
func TestImport(t *testing.T) {
	t.Parallel()
	forms := threeForms(t)
	out := filepath.Join(t.TempDir(), "c.json")
	o := object(t, "import", forms["table"], "--name", "mine", "--bandwidth", "2kB/s", "--batch", "8", "-o", out)
	want := map[string]any{"chain": "mine", "layers": 3.0, "forward_s": 0.004, "backward_s": 0.006, "input_bytes": 100.0, "weight_bytes": 15.0, "store_all_peak_bytes": 1100.0, "bandwidth_bytes_per_s": 2000.0}
	if !maps.Equal(o, want) {
		t.Errorf("%v, want %v", o, want)
	}
	if text := read(t, out); !strings.Contains(text, `"batch":8`) || !strings.Contains(text, `"bandwidth_bytes_per_s":2000`) {
		t.Errorf("%s", text)
	}
	works(t, "plan", "-c", out, "--memory", "100%", "--strategy", "pofo") // it has a link now
	if text := works(t, "import", forms["graph"], "--layers").out; !strings.Contains(text, "2 node3 Linear") || !strings.Contains(text, "1.074 KiB") {
		t.Errorf("%s", text)
	}
	for want, args := range map[string][]string{
		"give one file":   {},
		"no chain":        {"import.go"},
		"none.txt":        {"none.txt"},
		"--batch is -1":   {forms["table"], "--batch", "-1"},
		"no folder":       {forms["table"], "-o", "none/c.json"},
		"unknown flag --": {forms["table"], "--memory", "1"},
	} {
		if r := plimsoll(t, append([]string{"import"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d: %s", args, r.code, r.err)
		}
	}
}

// A sequence is checked, drawn, traced and made a plan file, and comes back as it was; so is a table of a pipeline, but for a text.
func TestConvert(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	text := works(t, "plan", "-c", five, "--memory", "70%", "--strategy", "pofo", "--text").out
	sequence := write(t, at("s.txt"), text)
	link := []string{"--bandwidth", "1000B/s"}
	for _, args := range [][]string{
		{"check", "-c", five, "-p", sequence},
		{"trace", "-c", five, "-p", sequence, "-o", at("t.json"), "--svg", at("t.svg")},
		{"convert", "-c", five, "-p", sequence, "-o", at("p.json")},
	} {
		works(t, append(args, link...)...)
	}
	if svg := read(t, at("t.svg")); !strings.HasPrefix(svg, "<svg xmlns") || !strings.Contains(svg, "five, given") {
		t.Errorf("the drawing is %.200s", svg)
	}
	if back := works(t, "convert", "-c", five, "-p", at("p.json")).out; back != text {
		t.Errorf("%s came back as %s", text, back)
	}
	works(t, "convert", "-c", five, "-p", at("p.json"), "-o", at("again.txt"))
	if again := read(t, at("again.txt")); again != text {
		t.Errorf("%s came back as %s", text, again)
	}
	given, planned := object(t, "check", "-c", five, "-p", at("p.json")), object(t, "check", "-c", five, "--text", text, "--bandwidth", "1000B/s")
	if given["makespan_s"] != planned["makespan_s"] || given["peak_bytes"] != planned["peak_bytes"] {
		t.Errorf("%v, %v", given, planned)
	}
	table := tables + "gpipe_4ranks_1stages_8mb.csv"
	works(t, "convert", "-p", table, "-o", at("pipeline.json"))
	works(t, "trace", "-p", table, "-o", at("pt.json"), "--svg", at("pt.svg"))
	unit := write(t, at("unit.json"), `{"format":"plimsoll.chain/v1","name":"unit","input_bytes":0,"layers":[`+
		strings.TrimSuffix(strings.Repeat(`{"forward_s":1,"backward_s":2,"output_bytes":0},`, 4), ",")+`]}`)
	works(t, "check", "-c", unit, "-p", at("pipeline.json"))
	works(t, "trace", "-c", unit, "-p", at("pipeline.json"), "--svg", at("pt2.svg"))
	if read(t, at("pt.svg")) != read(t, at("pt2.svg")) {
		t.Error("a table and its plan file are drawn otherwise")
	}
	if r := plimsoll(t, "convert", "-p", table); r.code != exitUsage || !strings.Contains(r.err, "-o p.json") {
		t.Errorf("a pipeline as text: %+v", r)
	}
	if r := plimsoll(t, "trace", "-c", five, "-p", sequence, "-o", at("u.json")); r.code != exitUsage || !strings.Contains(r.err, "--bandwidth 12GB/s") {
		t.Errorf("transfers without a link: %+v", r)
	}
	works(t, "plan", "-c", five, "--memory", "70%", "--strategy", "rotor", "--svg", at("one.svg"), "--trace", at("one.json"))
	if svg := read(t, at("one.svg")); !strings.Contains(svg, "five, rotor") || !strings.Contains(svg, "limit 1.162 KiB") {
		t.Errorf("the drawing is %.200s", svg)
	}
}
