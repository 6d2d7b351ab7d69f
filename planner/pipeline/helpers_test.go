package pipeline_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"
)

func equal[T comparable](x, y []T) bool { return slices.Equal(x, y) }

func near(x, y float64) bool { return math.Abs(x-y) <= 1e-9*max(1, math.Abs(x), math.Abs(y)) }

func read(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}
