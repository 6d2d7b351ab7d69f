package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll/kernels"
	"plimsoll/models"
)

// A point has a row for each strategy, of plans that keep every rule, and auto-flush is as fast as the fastest with a flush. Two levels want four
// devices. A file that has a point is gone on with: its rows stay, and no point is planned twice.
func TestGrid(t *testing.T) {
	t.Parallel()
	c, err := estimated("gpt2-2-32", models.Config{Batch: 1, Image: 16, Classes: 64, DType: kernels.BFloat16})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "schedules.csv")
	have := "tiny,4,1,1,auto-flush,0,late\n"
	if err := os.WriteFile(path, []byte(have), 0o600); err != nil {
		t.Fatal(err)
	}
	g := grid{lists: [4][]string{{"tiny"}, {"2", "4"}, {"1"}, {"1", "450/1"}}, limit: time.Minute, chains: chains{"tiny": c}}
	if err := g.parse(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.write(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	all, failure := points(path)
	if rows := strings.Count(string(text), "\n"); err != nil || failure != nil || len(all) != 3 || rows != 1+2*len(strategies()) || !strings.HasPrefix(string(text), have) {
		t.Fatalf("%d points, %d rows, %v, %v:\n%s", len(all), rows, err, failure, text)
	}
	for _, p := range all[1:] {
		if p.slower() || p.seconds[stale] == 0 || len(p.seconds) < 10 || p.winner == "" {
			t.Errorf("%+v", p)
		}
	}
}

// Values that are no platform are refused with the flag that they are of.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, lists := range [][3]string{{"two", "1", "1"}, {"2", "1.5", "1"}, {"0", "1", "1"}, {"2", "1", "1/2/3"}, {"2", "1", "-1"}, {"2", "1", "1/"}} {
		g := grid{lists: [4][]string{{"tiny"}, {lists[0]}, {lists[1]}, {lists[2]}}}
		if err := g.parse(); err == nil || !strings.Contains(err.Error(), "-") || !strings.Contains(err.Error(), "give") {
			t.Errorf("%q: %v", lists, err)
		}
	}
	if _, err := (chains{}).named("none"); err == nil || !strings.Contains(err.Error(), "none.json") {
		t.Errorf("a chain that is not there: %v", err)
	}
}

// The table says where auto-flush is slower, or was late. Joint, whose weights are stale, counts for neither.
func TestTable(t *testing.T) {
	t.Parallel()
	text := "a,2,3,1,auto-flush,1,zb-v\na,2,3,1,joint-flush,2,\na,2,3,1,gpipe,3,\na,2,3,1,joint,0.5,\n" +
		"a,4,3,1,auto-flush,4,gpipe\na,4,3,1,joint-flush,8,\na,4,3,1,gpipe,3,\na,4,3,1,joint,0,\n" +
		"b,2,3,1,auto-flush,0,late\nb,2,3,1,gpipe,1,\nb,4,3,1,auto-flush,0,\nb,4,3,1,gpipe,0,\n"
	path := filepath.Join(t.TempDir(), "schedules.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printTable(&out, path); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 points. auto-flush is slower than some schedule, or has no plan where one has, in 1. No schedule has a plan in 1.",
		"Left out are 1 points", "| zb-v | 1 |", "| joint-flush | 2 | 2.000 | 2.000 | 2.00 | 0 |",
		"| the best fixed schedule | 2 | 1.500 | 0.750 | 3.00 | 1 |", // the root of 3 x 0.75
		"| joint | 1 | 0.500 | 0.500 | 0.50 | 1 |", "| a | 2 | 2.000 | 1.500 | 0.500 |",
		"It is slower here:", "| a | 4 | 3 | 1 | 4 s | gpipe | 8 s | 3 s | gpipe |", "It was late here:",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if slices.ContainsFunc(strings.Split(out.String(), "\n"), func(line string) bool { return strings.Contains(line, "NaN") }) {
		t.Error(out.String())
	}
}
