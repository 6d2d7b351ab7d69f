//go:build cuda && linux && amd64

package cuda_test

import (
	"errors"
	"testing"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/devicetest"
)

// limit bounds the memory of a device in the tests: real GPUs are shared.
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

// Page-locked memory serves the copies of every GPU, whichever was current when it was allocated.
func TestHostMemoryIsForEveryGPU(t *testing.T) {
	needGPUs(t, 2)
	devices := openGPUs(t, 2, false)
	first, second := devices[0].(*cuda.Device), devices[1].(*cuda.Device)
	const bytes = 4096
	var host unsafe.Pointer
	must(t, first.Run(func() (err error) {
		host, err = driver.AllocHost(bytes)
		return err
	}))
	must(t, second.Run(func() error {
		s, err := cu.MakeStream(cu.NonBlocking)
		must(t, err)
		at, err := cu.MemAlloc(bytes)
		must(t, err)
		return errors.Join(cu.MemcpyHtoDAsync(at, host, bytes, s), s.Synchronize(), cu.MemFree(at), s.Destroy())
	}))
	must(t, first.Run(func() error { return cu.MemFreeHost(host) }))
}

func TestInspector(t *testing.T) {
	needGPUs(t, 1)
	d := openGPUs(t, 1, false)[0]
	if err := d.Reserve(1<<12, 1<<12); err != nil {
		t.Fatal(err)
	}
	devicetest.Inspect(t, d)
}
