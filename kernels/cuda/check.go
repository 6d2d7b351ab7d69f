//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"maps"
	"slices"

	"plimsoll/kernels"
)

// Modules lists the modules that hold our kernels for the device, by name.
func (l *Library) Modules() []string {
	names := slices.Sorted(maps.Keys(images))
	if hasWarpgroups(l.device) {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == warpgroups.module })
}

// LoadModule lets the driver compile a module, unless the device has loaded it.
func (l *Library) LoadModule(name string) error {
	_, err := l.device.Module(name, imageOf(name))
	return err
}

// Prove lets an algorithm, "ours", "ours, wgmma", "cublas" or "cudnn", compute a convolution or a linear layer, and compares the result with naive
// sums. Errors: ErrWrong, nvidia.ErrMissing, those of the vendor's library.
func (l *Library) Prove(call kernels.Call, by string) error {
	a := Choice{Algorithm: by}.algorithm()
	for vendor, why := range map[algorithm]error{cublas: l.vendors.loaded.NoBLAS, cudnn: l.vendors.loaded.NoDNN} {
		if a == vendor && why != nil {
			return why
		}
	}
	c := definition(call).simplified()
	asynchronous := a == wgmma && hasWarpgroups(l.device) && c.asynchronous(call.Pass)
	if !asynchronous && !slices.Contains(l.candidates(call, c), a) {
		return fmt.Errorf("%s does not compute %s %s of %v", by, call.Op.Kind(), call.Pass, call.In)
	}
	return l.proof(call, a)
}
