//go:build !cgo

package library

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// Compiled says whether the kernels of the cpu, which are C, are in the program.
const Compiled = false

// openCPU has nothing to open: the kernels are C.
func openCPU(dev runtime.Device, _ Options) (kernels.Library, error) {
	return nil, fmt.Errorf("%w: %s: this program was built without cgo, and the cpu's kernels are C: build it with a C compiler and CGO_ENABLED=1, or use the slower kernels of --debug reference",
		ErrNone, dev.Info().Name)
}

func openHostCPU(memory HostMemory, o Options) (kernels.Updater, error) {
	_, err := openCPU(memory.device, o)
	return nil, err
}
