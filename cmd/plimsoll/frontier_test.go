package main

import (
	"math"
	"strings"
	"testing"

	"plimsoll/planner/remat"
)

// Seconds per GiB of chains that take centuries are bounded, and no table says that something is infinite.
func TestSlopesAreBounded(t *testing.T) {
	t.Parallel()
	for per, want := range map[float64]string{0: "0", 0.00388: "0.00388", 1e12: "1e+12", 3.6e15: "over 1e+12", math.Inf(1): "over 1e+12"} {
		if got := slope(per); got != want {
			t.Errorf("%g is printed as %s, want %s", per, got, want)
		}
	}
}

// A plan of checkmate says what it is worth.
func TestCheckmateSaysThatItIsAWeakPeer(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]bool{remat.Checkmate: true, "rotor": false} {
		var out strings.Builder
		(&planFigures{planShape: planShape{Strategy: strategy}, sequenceFigures: &sequenceFigures{}}).write(&out)
		if strings.Contains(out.String(), "weak peer") != want {
			t.Errorf("%s:\n%s", strategy, out.String())
		}
	}
}
