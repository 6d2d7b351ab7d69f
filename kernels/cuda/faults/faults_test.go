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
