package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/estimate"
	"plimsoll/planner/chain"
	"plimsoll/planner/residency"
)

// A point has a row for each strategy, and residency is as fast as the fastest of them. A point that the file already has is not planned
// again.
func TestGrid(t *testing.T) {
	t.Parallel()
	d, err := estimate.Open("h100")
	if err != nil {
		t.Fatal(err)
	}
	d.Workspace = 0
	var text strings.Builder
	g := grid{
		device: d, subjects: []subject{{"tiny", "gpt2-1-32", 0, 64}}, sizes: []int{16}, links: []float64{4, 400}, limits: 2,
		known: map[string]bool{"tiny,16,4,1 of 2": true}, out: csv.NewWriter(&text), chains: map[string]*chain.Chain{},
	}
	if err := g.plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "grid.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := points(path)
	if rows := strings.Count(text.String(), "\n"); err != nil || len(all) != 3 || rows != 3*len(residency.Strategies()) {
		t.Fatalf("%d points, %d rows, %v:\n%s", len(all), rows, err, text.String())
	}
	for _, p := range all {
		if p.gain() < 1-1e-9 || len(p.seconds) < 2 {
			t.Errorf("%+v", p)
		}
	}
}

// A list of models is refused where it has a name that the grid does not have.
func TestNamed(t *testing.T) {
	t.Parallel()
	if all, err := named("unet,gpt2"); err != nil || len(all) != 2 || all[0].name != "gpt2" || all[1].name != "unet" {
		t.Errorf("%v %v", all, err)
	}
	if all, err := named(""); err != nil || len(all) != len(subjects) {
		t.Errorf("all: %v %v", all, err)
	}
	for _, list := range []string{"gpt2,gtp2-xl", "gtp2-xl"} {
		if _, err := named(list); err == nil || !strings.Contains(err.Error(), `"gtp2-xl"`) {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// The table counts points at which residency is slower, alone or faster.
func TestTable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "grid.csv")
	text := "a,256,4,1 of 2,10,resident,0\na,256,4,1 of 2,10,auto,2\n" + // alone
		"a,256,4,2 of 2,20,resident,3\na,256,4,2 of 2,20,auto,1\n" +
		"b,256,4,2 of 2,20,resident,1\nb,256,4,2 of 2,20,auto,1.25\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printTable(&out, path); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 points. residency is slower than some other strategy, or has no plan where one has, in 1. It alone has a plan in 1.",
		"In the other 2 the fastest other plan takes 1.549 times as long", // the root of 3 x 0.8
		"| resident | 2 | 2 | 1.549 | 3.00 |", "| a | 1 | 3.000 |", "It is slower here:", "| b | 256 | 4 | 2 of 2 | 1.25 s | 1 s | resident | 0.800 |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
