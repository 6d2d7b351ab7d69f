package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/planner/chain"
)

// The tables have a row for each memory, number of devices, bandwidth and chain, the list every point, and the picture a curve for what is
// missing.
func TestResults(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	c := &chain.Chain{Name: "three", InputBytes: 1 << 28}
	for _, seconds := range []float64{1, 2, 3} {
		c.Layers = append(c.Layers, chain.Layer{ForwardS: seconds, BackwardS: seconds, OutputBytes: 1 << 28, SavedBytes: 3 << 28, GradientBytes: 1 << 28, WeightBytes: 1 << 20})
	}
	if err := c.Write(filepath.Join(folder, "three.json")); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(folder, "out", "x")
	if err := run(t.Context(), folder, out, "2,3", "2,9", "8,450"); err != nil {
		t.Fatal(err)
	}
	for file, wants := range map[string][]string{
		".md":         {"| memory | one stage | no replicas | no recomputation | points |", "| 2.000 GiB |", "| 9.000 GiB |", "| three |", "| 450 GB/s |", "joint beside no replicas: both fit at"},
		".svg":        {"no replicas", "memory of each device"},
		"/points.csv": {"three,3,9663676416,4.5e+11,joint,true"},
	} {
		text, err := os.ReadFile(out + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q: %.2000s", file, want, text)
			}
		}
	}
}

// run refuses arguments that it cannot read.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"0", "2", "8"}, {"2", "x", "8"}, {"2", "2", ""}, {"2", "2", "8"}} {
		if err := run(t.Context(), t.TempDir(), filepath.Join(t.TempDir(), "x"), args[0], args[1], args[2]); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
