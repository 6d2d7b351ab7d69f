//go:build cuda && linux && amd64

package cudatest

import (
	_ "embed"
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/devicetest"
)

//go:embed mix.ptx
var mixPTX []byte

//go:embed src/mix.cu
var mixSource []byte

// Open opens devices as c says, and skips the test when there is no GPU.
func Open(t testing.TB, c cuda.Config) []*cuda.Device {
	t.Helper()
	if s := driver.Load(); s.Err != nil {
		t.Skipf("needs a GPU: %v", s.Err)
	}
	devices, err := cuda.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		if err := warm(d); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, d := range devices {
			if err := d.Close(); err != nil && !errors.Is(err, runtime.ErrClosed) {
				t.Errorf("close: %v", err)
			}
		}
	})
	return devices
}

// Mix returns a launch with dst[i] = 31*dst[i] + src[i] modulo 256 for two spans of d's arena. An error in its
// preparation is the error of the launch.
func Mix(d runtime.Device, dst, src runtime.Span) runtime.Launch {
	k, err := mix(d.(*cuda.Device), dst, src)
	if err != nil {
		return failing{"cudatest_mix", err}
	}
	return k
}

// warm loads the test kernel and launches it once: the driver may wait for the whole context when it loads one, which never
// ends behind a Gate.
func warm(d *cuda.Device) error {
	k, err := kernel(d, 0, 0, 0)
	if err != nil {
		return err
	}
	return d.Run(func() error {
		s, err := cu.MakeStream(cu.NonBlocking)
		if err != nil {
			return err
		}
		return errors.Join(k.Issue(s), s.Synchronize(), s.Destroy())
	})
}

// Module loads the test kernels.
func Module(d *cuda.Device) (*cuda.Module, error) { return d.Module("cudatest", mixPTX) }

func mix(d *cuda.Device, dst, src runtime.Span) (runtime.Launch, error) {
	to, errTo := d.Address(dst)
	from, errFrom := d.Address(src)
	if err := errors.Join(errTo, errFrom); err != nil {
		return nil, err
	}
	return kernel(d, to, from, dst.Bytes)
}

func kernel(d *cuda.Device, to, from cu.DevicePtr, bytes int64) (*cuda.Kernel, error) {
	m, err := Module(d)
	if err != nil {
		return nil, err
	}
	f, err := m.Function("cudatest_mix")
	if err != nil {
		return nil, err
	}
	args := struct{ dst, src, bytes uint64 }{uint64(to), uint64(from), uint64(bytes)}
	blocks := uint32(max(bytes+127, 128) / 128)
	return d.NewKernel("cudatest_mix", f, [3]uint32{blocks, 1, 1}, [3]uint32{128, 1, 1}, 0, unsafe.Pointer(&args), unsafe.Sizeof(args))
}

// failing is a launch that fails when it is issued.
type failing struct {
	name string
	err  error
}

func (f failing) Kernel() string { return f.name }

func (f failing) Issue(cu.Stream) error { return fmt.Errorf("issue: %w", f.err) }

// Fails returns a launch that fails because of cause.
func Fails(_ runtime.Device, cause error) runtime.Launch { return failing{"failing", cause} }

// Suite is devicetest's for the devices that open gives.
func Suite(open func(t testing.TB, n int) []runtime.Device) devicetest.Suite {
	return devicetest.Suite{Open: open, Mix: Mix, Gate: Gate, Fail: Fails}
}
