//go:build cuda && linux && amd64

package main

import (
	"strings"
	"testing"

	"plimsoll/runtime/cuda/driver"
)

// TestPartsOnAGPU runs every line of the measuring program on a GPU, or on the emulated driver, which the results say.
func TestPartsOnAGPU(t *testing.T) {
	if s := driver.Load(); s.Err != nil {
		t.Skipf("needs a GPU: %v", s.Err)
	}
	emulated := driver.Symbol("plimsollEmulatorCount") != nil
	all := measureAll(t, "cuda:0")
	checkFigures(t, all, 3)
	for name, o := range all {
		e := o.Environment
		if e.Simulated != emulated || emulated != strings.Contains(e.Device, "emulated") || e.CUDA == "" || e.Units == 0 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
