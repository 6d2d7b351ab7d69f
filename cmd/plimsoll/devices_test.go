package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
)

// plan reads the file that devices writes: devices, memory, and the bandwidth that the links were slowed down to.
func TestPlatformFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "platform.json")
	o := object(t, "devices", "--devices", "cpu*3", "--peer-bandwidth", "100MB/s", "--memory", "1GiB", "-o", file)
	if n := len(o["devices"].([]any)); n != 3 {
		t.Errorf("%d devices", n)
	}
	peers := o["peers"].([]any)
	if len(peers) != 1 { // the parts are alike
		t.Fatalf("peers %v", peers)
	}
	p, err := pipeline.ReadPlatform(file)
	if err != nil {
		t.Fatal(err)
	}
	// A loaded machine may make links slower by a lot. Where it is late for the beginning of a copy, a link seems faster.
	if p.Devices != 3 || p.Smallest() != 1<<30 || !p.Uniform() || p.Beta(0, 2) > 1.5e8 || p.Beta(0, 2) < 1e5 {
		t.Errorf("%+v", p)
	}
	if p.Host < 1e5 { // that to host memory is not slowed down
		t.Errorf("%g bytes/s to host memory", p.Host)
	}
	if said := peers[0].(map[string]any)["bytes_per_s"]; said != p.Beta(0, 1) {
		t.Errorf("printed %v, in the file %v", said, p.Beta(0, 1))
	}
	works(t, "plan", "-c", five, "--platform", file, "--strategy", "1f1b-flush", "-o", filepath.Join(dir, "p.json"))
	works(t, "check", "-c", five, "-p", filepath.Join(dir, "p.json"), "--platform", file)
	if files := tree(t, dir); len(files) != 2 {
		t.Errorf("files %v", files)
	}
}

// Simulated devices have exactly what was stated; links that take no time are null in both places.
func TestPlatformOfSimulatedDevices(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "platform.json")
	works(t, "devices", "--devices", "null*4", "--peer-bandwidth", "1MB/s", "-o", file)
	p, err := pipeline.ReadPlatform(file)
	if err != nil || p.Devices != 4 || p.Smallest() != pipeline.NoLimit || p.Beta(0, 3) != 1e6 || p.Host != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	o := object(t, "devices", "--devices", "null*2", "-o", file)
	if p, err = pipeline.ReadPlatform(file); err != nil || p.Beta(0, 1) != pipeline.Free() || o["peers"].([]any)[0].(map[string]any)["bytes_per_s"] != nil {
		t.Errorf("%+v, %v, %v", p, err, o["peers"])
	}
	text := works(t, "devices", "--devices", "null*2,cpu").out
	for _, want := range []string{"null*2/1", "without limit", "null*2 - null*2", "in no time", "kernels"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	works(t, "devices", "--devices", "null", "--memory", "5GB", "-o", file)
	if p, err = pipeline.ReadPlatform(file); err != nil || p.Devices != 1 || p.Smallest() != 5e9 {
		t.Errorf("%+v, %v", p, err)
	}
}

// Links of several speeds: the slowest is the default, the faster ones are named.
func TestPlatformOfUnequalLinks(t *testing.T) {
	t.Parallel()
	v := &inventory{figures: make([]deviceFigures, 4), of: []int{0, 0, 1, 2}, links: map[[2]int]float64{{0, 0}: 9, {0, 1}: 5, {0, 2}: 5, {1, 2}: 7}}
	if got := v.pairs(5); len(got) != 2 || got[[2]int{0, 1}] != 9 || got[[2]int{2, 3}] != 7 {
		t.Errorf("%v", got)
	}
}

// A run that is interrupted writes nothing.
func TestInterruptedDevices(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	r := plimsollIn(ctx, t, "", "devices", "--devices", "null*2", "-o", filepath.Join(dir, "p.json"))
	if files := tree(t, dir); r.code != exitFailed || len(files) != 0 {
		t.Errorf("exit code %d, files %v", r.code, files)
	}
}
