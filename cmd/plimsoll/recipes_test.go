package main

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
)

// Recipes are run as they are, but for a smaller model and, in place of a cluster, what it would set.
var smaller = []string{"-m", "mlp", "--data", "glyphs", "--image", "16", "--batch", "16", "--microbatches", "4", "--strategy", "1f1b-flush", "--debug", "threads=1", "--option", "profile.steps=1", "--lr", "0.001", "--json"}

// endless is more steps than a test waits for: what is interrupted goes on to fewer.
const endless = "1000000"

// asOneProcess trains what a recipe trains on n devices of one process.
func asOneProcess(t *testing.T, n, steps int) string {
	t.Helper()
	args := slices.Concat([]string{"train", "--devices", fmt.Sprintf("cpu*%d", n), "--steps", strconv.Itoa(steps)}, smaller)
	return summaryOf(t, works(t, args...).out).WeightsSHA256
}
