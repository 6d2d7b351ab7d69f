package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The pictures in docs/results are drawn from the tables in bench/results: make pictures.
func TestPicturesAreOfTheTables(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	drawn := t.TempDir()
	if err := drawAll(filepath.Join(root, "bench", "results"), drawn); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"frontier.svg", "predicted.svg"} {
		want, err := os.ReadFile(filepath.Join(root, "docs", "results", name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(drawn, name)); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the tables say, %v: make pictures", name, err)
		}
	}
}
