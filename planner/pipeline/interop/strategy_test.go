package interop

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
)

// A table as a strategy gives the plan of its run, which the checker accepts, with the table's order on every device.
func TestTablesAreStrategies(t *testing.T) {
	t.Parallel()
	planned, refused := 0, 0
	files, err := filepath.Glob("testdata/pytorch/*.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		s, err := Strategy(file)
		if errors.Is(err, ErrIllegal) {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		table, err := ReadSchedule(file)
		if err != nil {
			t.Fatal(err)
		}
		c := UnitChain(table.Stages)
		r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(len(table.Rows), pipeline.NoLimit, 1e9)}
		p, err := s.Solve(context.Background(), r)
		if errors.Is(err, ErrIllegal) {
			refused++ // it waits for ever
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if p.Microbatches != table.Microbatches || p.Microbatches != s.Microbatches || p.Strategy != file || p.PerDevicePeak == nil {
			t.Errorf("%s: %d microbatches, strategy %q", file, p.Microbatches, p.Strategy)
		}
		r.Microbatches = table.Microbatches + 1
		if _, err := s.Solve(context.Background(), r); !errors.Is(err, ErrChain) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s with another number of microbatches: %v", file, err)
		}
		planned++
	}
	if planned < 30 || planned+refused != len(files) {
		t.Errorf("%d planned, %d refused of %d", planned, refused, len(files))
	}
}

func TestFilesThatAreNoStrategies(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.csv")
	if err := os.WriteFile(path, []byte("0F0,what\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, "none.csv"} {
		if _, err := Strategy(file); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if IsTable("1f1b") || !IsTable("a.csv") || !IsTable("A.CSV") {
		t.Error("names of files are told from others by their ending")
	}
}
