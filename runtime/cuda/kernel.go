//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda/driver"
)

// Kernel is a function with its grid and its parameter, ready to be launched again and again.
type Kernel struct {
	device      *Device
	name        string
	function    cu.Function
	grid, block [3]uint32
	shared      uint32         // bytes of dynamic shared memory per block
	arguments   unsafe.Pointer // C memory: see driver.NewArguments
}

var _ Launch = (*Kernel)(nil)

// staticSharedMemory is the shared memory that every block may have without asking, in bytes.
const staticSharedMemory = 48 << 10

// NewKernel prepares the launch of a function that takes one parameter, the struct of so many bytes at args, which is
// copied. The copy lives until the device closes. shared is dynamic shared memory in bytes.
func (d *Device) NewKernel(name string, f cu.Function, grid, block [3]uint32, shared uint32, args unsafe.Pointer, bytes uintptr) (*Kernel, error) {
	k := &Kernel{device: d, name: name, function: f, grid: grid, block: block, shared: shared}
	err := d.use("kernel "+name, func() error {
		if err := k.check(); err != nil {
			return d.wrap("kernel "+name, err)
		}
		k.arguments = driver.NewArguments(args, bytes)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.kernels = append(d.kernels, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// check refuses what no launch can be, and asks for the shared memory.
func (k *Kernel) check() error {
	for _, size := range [][3]uint32{k.grid, k.block} {
		if size[0] == 0 || size[1] == 0 || size[2] == 0 {
			return fmt.Errorf("a grid of %v blocks of %v threads is empty", k.grid, k.block)
		}
	}
	if int(k.shared) > k.device.shared {
		return fmt.Errorf("it needs %d bytes of shared memory per block, the GPU has %d", k.shared, k.device.shared)
	}
	if k.shared <= staticSharedMemory {
		return nil
	}
	return callError("cuFuncSetAttribute", driver.SetDynamicShared(k.function, int(k.shared)))
}

// Kernel returns the name.
func (k *Kernel) Kernel() string { return k.name }

// Issue launches the kernel on s. Its device must not be closed.
func (k *Kernel) Issue(s cu.Stream) error {
	if k.device.closed.Load() {
		return k.device.wrap("kernel "+k.name, runtime.ErrClosed)
	}
	return callError("cuLaunchKernel", driver.LaunchKernel(k.function, k.grid, k.block, k.shared, s, k.arguments))
}

func (k *Kernel) free() { driver.FreeArguments(k.arguments) }

// sequence is several launches as one.
type sequence struct {
	name     string
	launches []Launch
}

// Sequence returns the launches, one after the other, as one.
func Sequence(name string, launches ...Launch) Launch {
	return &sequence{name: name, launches: launches}
}

// Kernel returns the name.
func (q *sequence) Kernel() string { return q.name }

// Issue issues all of them, up to the first error, which it names.
func (q *sequence) Issue(s cu.Stream) error {
	for _, l := range q.launches {
		if err := l.Issue(s); err != nil {
			return fmt.Errorf("%s: %w", l.Kernel(), err)
		}
	}
	return nil
}
