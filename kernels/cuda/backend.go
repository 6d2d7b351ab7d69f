//go:build cuda && linux && amd64

package cuda

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/kernels/library"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
)

// init makes the library known to kernels/library.
func init() {
	library.Register(library.Backend{Kind: "cuda", OpenHost: openHost, Open: func(dev runtime.Device, o library.Options) (kernels.Library, error) {
		device, ok := dev.(*cuda.Device)
		if !ok {
			return nil, fmt.Errorf("BUG: %s says that it is a CUDA device and is a %T", dev.Info().Name, dev)
		}
		mode := nvidia.Mode(o.Vendor)
		if mode == "" {
			mode = nvidia.Prefer
		}
		return New(device, Options{Vendor: mode, Search: nvidia.NewSearch(o.VendorPath), Note: o.Note, Choices: o.Choices})
	}})
}
