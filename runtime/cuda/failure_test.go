//go:build cuda && linux && amd64

package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/devices"
)

func arena(offset, bytes int64) runtime.Span {
	return runtime.Span{Space: runtime.Arena, Offset: offset, Bytes: bytes}
}

func host(offset, bytes int64) runtime.Span {
	return runtime.Span{Space: runtime.Host, Offset: offset, Bytes: bytes}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("error has more than one line: %v", err)
	}
}

// emulated returns a device of the emulated driver, without memory.
func emulated(t testing.TB) *cuda.Device {
	t.Helper()
	needGPUs(t, 1)
	if !cudatest.Emulated() {
		skipped.Add(1)
		t.Skip("injects failures: needs the emulated driver")
	}
	return cudatest.Open(t, cuda.Config{Memory: limit})[0]
}

// reserved returns a device with memory, and a stream.
func reserved(t testing.TB, d *cuda.Device) (*cuda.Device, runtime.Stream) {
	t.Helper()
	must(t, d.Reserve(1<<16, 1<<16))
	s, err := d.NewStream("s")
	must(t, err)
	return d, s
}

func TestReserveThatFailsLeavesNothingBehind(t *testing.T) {
	for call, space := range map[string]runtime.Space{"cuMemAlloc": runtime.Arena, "cuMemHostAlloc": runtime.Host} {
		d := emulated(t)
		freed := cudatest.Count(t, "cuMemFree")
		cudatest.Fail(t, call+":1=2")
		err := d.Reserve(1<<20, 1<<20)
		var oom *runtime.OutOfMemoryError
		if !errors.As(err, &oom) || oom.Space != space || oom.Asked != 1<<20 || oom.Device != "cuda:0" {
			t.Errorf("%s fails: Reserve = %v", call, err)
		}
		if space == runtime.Arena {
			wantText(t, err, "are free now", "8,388,608 B")
			must(t, d.Reserve(1<<20, 1<<20))
			continue
		}
		wantText(t, err, "1,048,576 B", "the system refused to page-lock that", "programs can still take", "give less --host-memory")
		if n := cudatest.Count(t, "cuMemFree") - freed; n != 1 {
			t.Errorf("the arena was freed %d times", n)
		}
		must(t, d.Reserve(1<<20, 1<<20))
	}
}

func TestErrorsNameTheCallAndTheDevice(t *testing.T) {
	d := emulated(t)
	cudatest.Fail(t, "cuMemAlloc:1=801")
	wantText(t, d.Reserve(1<<20, 0), "cuda:0", "cuMemAlloc", "CUDA_ERROR_NOT_SUPPORTED (801)")
	cudatest.Fail(t, "cuCtxSetCurrent:1=3")
	wantText(t, d.Reserve(1<<20, 0), "cuda:0", "cuCtxSetCurrent", "CUDA_ERROR_NOT_INITIALIZED (3)")
	d, s := reserved(t, d)
	cudatest.Fail(t, "cuStreamCreate:1=2,cuEventCreate:1=2")
	_, err := d.NewStream("other")
	wantText(t, err, "cuda:0", "new stream other", "cuStreamCreate", "CUDA_ERROR_OUT_OF_MEMORY")
	_, err = d.NewEvent()
	wantText(t, err, "cuda:0", "new event", "cuEventCreate")
	_, err = d.Module("nonsense", []byte("this is no code"))
	wantText(t, err, "cuda:0", "module nonsense", "cuModuleLoadDataEx")
	must(t, s.Synchronize())
}

func TestAFailedCallStopsItsStreamAlone(t *testing.T) {
	d, s := reserved(t, emulated(t))
	other, err := d.NewStream("other")
	must(t, err)
	launch := cudatest.Mix(d, arena(0, 64), arena(64, 64))
	for fault, issue := range map[string]func(runtime.Stream) error{
		"cuLaunchKernel":    func(s runtime.Stream) error { return s.Launch(launch) },
		"cuMemcpyHtoDAsync": func(s runtime.Stream) error { return s.Copy(arena(0, 8), host(0, 8)) },
		"cuMemcpyDtoHAsync": func(s runtime.Stream) error { return s.Copy(host(0, 8), arena(0, 8)) },
	} {
		s, err := d.NewStream("failing")
		must(t, err)
		cudatest.Fail(t, fault+":1=701")
		must(t, issue(s))
		var stopped *runtime.StreamError
		if err := s.Synchronize(); !errors.As(err, &stopped) || stopped.Stream != "failing" || stopped.Device != "cuda:0" {
			t.Errorf("%s fails: Synchronize = %v", fault, err)
		}
		wantText(t, s.Synchronize(), fault, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)")
		must(t, issue(other))
		must(t, other.Synchronize())
	}
	must(t, s.Synchronize())
}

// A kernel that goes wrong on the GPU takes the context along: every stream reports it, and Close is quiet.
func TestALostDeviceIsReportedAndCanBeClosed(t *testing.T) {
	for fault, name := range map[string]string{
		"launch:1=719": "CUDA_ERROR_LAUNCH_FAILED",
		"launch:1=700": "CUDA_ERROR_ILLEGAL_ADDRESS",
		"copy:1=716":   "CUDA_ERROR_MISALIGNED_ADDRESS",
	} {
		d, s := reserved(t, emulated(t))
		other, err := d.NewStream("other")
		must(t, err)
		launch := cudatest.Mix(d, arena(0, 64), arena(64, 64))
		cudatest.Fail(t, fault)
		_ = s.Launch(launch) // the call succeeds, the kernel does not
		_ = s.Copy(host(0, 8), arena(0, 8))
		err = s.Synchronize()
		if !errors.Is(err, cuda.ErrLost) {
			t.Errorf("%s: Synchronize = %v", fault, err)
		}
		wantText(t, err, "cuda:0", "stream s", name)
		if err := errors.Join(other.Launch(launch), other.Synchronize()); !errors.Is(err, cuda.ErrLost) {
			t.Errorf("%s: on another stream: %v", fault, err)
		}
		must(t, d.Close())
	}
}

func TestBadDevicesAreNamedInOneLine(t *testing.T) {
	_, err := devices.Open("cuda:99", devices.Options{})
	if !errors.Is(err, devices.ErrUnknown) {
		t.Errorf("got %v", err)
	}
	if driver.Load().Err != nil {
		wantText(t, err, `"cuda:99"`, "no NVIDIA driver", "--devices cpu")
		return
	}
	wantText(t, err, `"cuda:99"`, "there is no GPU 99", "number")
}

func TestPartsShareTheMemory(t *testing.T) {
	needGPUs(t, 1)
	opened, err := devices.Open("cuda:0*4", devices.Options{Memory: 4 << 20, HostMemory: 4 << 10})
	must(t, err)
	for i, d := range opened {
		if got := d.Info(); got.Name != "cuda:0*4/"+string(rune('0'+i)) || got.Memory != 1<<20 || got.Kind != "cuda" || got.Model == "" {
			t.Errorf("part %d: %+v", i, got)
		}
		var oom *runtime.OutOfMemoryError
		if err := d.Reserve(1, 1025); !errors.As(err, &oom) || oom.Space != runtime.Host || oom.Limit != 1024 {
			t.Errorf("part %d: Reserve of too much host memory = %v", i, err)
		}
		must(t, d.Close())
	}
	var oom *runtime.OutOfMemoryError
	if _, err := cuda.Open(cuda.Config{Parts: 4, Memory: 3}); !errors.As(err, &oom) {
		t.Errorf("four parts of three bytes: %v", err)
	}
}

func TestAvailableMemoryLeavesRoom(t *testing.T) {
	needGPUs(t, 1)
	d := cudatest.Open(t, cuda.Config{})[0]
	if got := d.Info().Memory; got <= 0 || got >= d.Total() {
		t.Errorf("an arena of %d bytes on a GPU of %d", got, d.Total())
	}
	if major, _ := d.Capability(); major < 7 || d.Multiprocessors() < 1 || d.SharedMemory() < 48<<10 {
		t.Errorf("capability %d, %d multiprocessors, %d bytes of shared memory", major, d.Multiprocessors(), d.SharedMemory())
	}
}

func TestKernelsThatCannotBeAreRefused(t *testing.T) {
	needGPUs(t, 1)
	d := cudatest.Open(t, cuda.Config{Memory: limit})[0]
	must(t, d.Reserve(1<<10, 0))
	one := [3]uint32{1, 1, 1}
	m, err := cudatest.Module(d)
	must(t, err)
	f, err := m.Function("cudatest_mix")
	must(t, err)
	_, err = m.Function("no_such_kernel")
	wantText(t, err, "cuda:0", "no_such_kernel", "cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND")
	_, err = d.NewKernel("k", f, [3]uint32{1, 0, 1}, one, 0, nil, 0)
	wantText(t, err, "cuda:0", "kernel k", "empty")
	_, err = d.NewKernel("k", f, one, one, 1<<30, nil, 0)
	wantText(t, err, "cuda:0", "kernel k", "shared memory")
	if _, err := d.Address(host(0, 0)); err == nil {
		t.Error("the host space has an address in the arena")
	}
}
