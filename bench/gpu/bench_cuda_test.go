//go:build cuda && linux && amd64

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/kernels/cuda/nvidia/fake"
	"plimsoll/runtime/cuda/cudatest"
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

// TestKernelsEstimated: the page of estimates says what the kernels, their launches and the assembler's table say.
func TestKernelsEstimated(t *testing.T) {
	if s := driver.Load(); s.Err != nil {
		t.Skipf("needs a GPU, or the emulated driver: %v", s.Err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"floors"}, &out); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "results", "kernels-estimated.md"))
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(page) {
		t.Error("bench/results/kernels-estimated.md is of other kernels: run make kernels-estimated")
	}
	if n := strings.Count(out.String(), "\n| "); n < 250 {
		t.Errorf("%d rows", n)
	}
}

// TestSmokeSaysWhatToMend: when a driver takes no PTX or a vendor's library computes wrongly, the smoke part is red and says what to mend.
// With libraries that compute rightly it says go.
func TestSmokeSaysWhatToMend(t *testing.T) {
	if status := driver.Load(); status.Err != nil || !cudatest.Emulated() {
		t.Skip("needs the emulated driver, which can be told to fail: ", status.Err)
	}
	t.Setenv(nvidia.PathVariable, fake.Build(t, fake.CuDNN, fake.CuBLAS))
	t.Setenv("PLIMSOLL_CUDA_WGMMA", "1")
	smoke := func() (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), []string{"-tiny", "smoke"}, &out)
		return out.String(), err
	}
	text, err := smoke()
	for _, want := range []string{"| cublas | green |", "| cudnn | green |", "| module mma | green |", "| wgmma | green |", "| graph | green |", "| streams | green |",
		"float32 step 0", "tf32 step 0", "bfloat16 step 0", "\ngo: "} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%v: %q is not in\n%s", err, want, text)
		}
	}
	t.Setenv("FAKE_WRONG", "scaled")
	if text, err := smoke(); err == nil || !strings.Contains(err.Error(), "mend: cublas: it computes wrongly") || !strings.Contains(text, "; cudnn: it computes wrongly") || strings.Contains(text, "go: ") {
		t.Errorf("a wrong library: %v\n%s", err, text)
	}
	t.Setenv("FAKE_WRONG", "")
	cudatest.Fail(t, "cuModuleLoadDataEx:1=218")
	if text, err := smoke(); err == nil || !strings.Contains(err.Error(), "mend: module activation: ") || !strings.Contains(text, "| module attention | green |") {
		t.Errorf("a module that does not load: %v\n%s", err, text)
	}
}
