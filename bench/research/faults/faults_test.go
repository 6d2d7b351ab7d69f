package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every fault can be planted: the sources have what it replaces, once.
func TestFaultsCanBePlanted(t *testing.T) {
	for _, f := range faults {
		for _, e := range f.edits {
			text, err := os.ReadFile(filepath.Join("../../..", e.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), e.old); n != 1 || e.old == e.new {
				t.Errorf("%s: %s has %q %d times", f.what, e.file, e.old, n)
			}
		}
	}
}

// TestTableKeepsRows: the rows of a table are read by their faults; without a file there are none.
func TestTableKeepsRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults.md")
	if rows, err := readTable(path); err != nil || len(rows) > 0 {
		t.Errorf("without a file: %v, %v", rows, err)
	}
	text := "# Faults\n\n" + tableHead + "| 1 | a sum is left out | `a.cu` | TestA, TestB |\n| 2 | nobody waits | `b.go` | **not found** |\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	rows, err := readTable(path)
	if err != nil || rows["a sum is left out"] != "`a.cu` | TestA, TestB |" || rows["nobody waits"] != "`b.go` | **not found** |" {
		t.Errorf("%v, %v", rows, err)
	}
}
