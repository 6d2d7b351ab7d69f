//go:build cuda && linux && amd64

package cuda_test

import (
	"testing"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
	"plimsoll/runtime/devicetest"
)

// limit is what a device of the tests may have: real GPUs are shared.
const limit = 8 << 20

func suite(split bool) devicetest.Suite {
	return cudatest.Suite(func(t testing.TB, n int) []runtime.Device {
		return openGPUs(t, n, split)
	})
}

// openGPUs returns n devices: parts of one GPU, or one GPU each.
func openGPUs(t testing.TB, n int, split bool) []runtime.Device {
	t.Helper()
	var devices []runtime.Device
	add := func(c cuda.Config) {
		for _, d := range cudatest.Open(t, c) {
			devices = append(devices, d)
		}
	}
	if split {
		add(cuda.Config{Parts: n, Memory: int64(n) * limit})
		return devices
	}
	for i := range n {
		add(cuda.Config{Index: i, Memory: limit})
	}
	return devices
}

// every is the number of cases: a GPU can show all of them.
var every = devicetest.Report{Ran: 44}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name  string
		split bool
		gpus  int
	}{{"one GPU in parts", true, 1}, {"two GPUs", false, 2}} {
		t.Run(c.name, func(t *testing.T) {
			needGPUs(t, c.gpus)
			if got := devicetest.Run(t, suite(c.split)); got != every {
				t.Errorf("got %+v, want %+v", got, every)
			}
		})
	}
}

func TestInspector(t *testing.T) {
	needGPUs(t, 1)
	d := openGPUs(t, 1, false)[0]
	if err := d.Reserve(1<<12, 1<<12); err != nil {
		t.Fatal(err)
	}
	devicetest.Inspect(t, d)
}
