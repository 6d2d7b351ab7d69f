//go:build cuda && linux && amd64

package measure_test

import (
	"os"
	"testing"

	"plimsoll/executor"
	_ "plimsoll/kernels/cuda"
	"plimsoll/kernels/library"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/devices"
)

// TestMain makes the emulated driver delay its work and fill new memory with NaNs, unless the environment says otherwise. Its
// settings are read once.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"CHAOS": "1", "POISON": "1"} {
		if name = "PLIMSOLL_EMULATOR_" + name; os.Getenv(name) == "" {
			_ = os.Setenv(name, value)
		}
	}
	os.Exit(m.Run())
}

// On a GPU, too, where an exercise is one graph.
func TestExercisesComputeTheGradientsOfATableOnAGPU(t *testing.T) {
	if status := driver.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	expectGradients(t, func() executor.Target {
		opened, err := devices.Open("cuda:0", devices.Options{Memory: 128 << 20, HostMemory: 128 << 20})
		must(t, err)
		t.Cleanup(func() { must(t, opened[0].Close()) })
		lib, err := library.Open(opened[0], library.Options{})
		must(t, err)
		return executor.Target{Device: opened[0], Library: lib}
	}, "resnet20", "siamese")
}
