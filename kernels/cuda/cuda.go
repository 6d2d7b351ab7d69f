//go:build cuda && linux && amd64

package cuda

// #cgo CFLAGS: -I${SRCDIR}/src
// #include "args.h"
import "C"

import (
	"cmp"
	"fmt"
	"os"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
)

var (
	_ kernels.Library = (*Library)(nil)
	_ kernels.Chooser = (*Library)(nil)
)

// tensorCapability is the first compute capability whose tensor cores multiply bfloat16 and TF32.
const tensorCapability = 8

// timesWarpgroups reports whether products by wgmma are candidates, by the variable's value, where anything is timed at all.
func timesWarpgroups(variable string, mode nvidia.Mode) bool {
	return variable == "1" && mode != "" && mode != nvidia.Refuse
}

// hasWarpgroups reports whether a device runs code for sm_90a, which newer GPUs do not.
func hasWarpgroups(device *cuda.Device) bool {
	major, minor := device.Capability()
	return major == 9 && minor == 0
}

// New returns the library for a device.
func New(device *cuda.Device, o Options) (*Library, error) {
	major, minor := device.Capability()
	if major < 7 || major == 7 && minor < 5 {
		return nil, fmt.Errorf("%s: its compute capability is %d.%d, the kernels need 7.5 or newer (Turing)", device.Info().Name, major, minor)
	}
	o.Search.Emulated = emulated(device)
	v, err := newVendors(device, cmp.Or(o.Vendor, nvidia.Refuse), o.Search)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", device.Info().Name, err)
	}
	l := &Library{device: device, tensor: major >= tensorCapability && !o.NoTensorCores, tile: o.tile, vendors: v, note: o.Note, terms: proofTerms}
	l.warpgroups = l.tensor && hasWarpgroups(device) && !emulated(device) && timesWarpgroups(os.Getenv(WgmmaVariable), o.Vendor)
	if emulated(device) {
		l.terms = emulatedProofTerms
	}
	if l.note == nil {
		l.note = func(string) {}
	}
	l.prove, l.choose = l.proof, l.measured
	return l, v.choices.adopt(l, o.Choices)
}

// Workspace implements kernels.Library.
func (l *Library) Workspace(c kernels.Call) (int64, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	b, err := l.build(c, nil)
	if err != nil {
		return 0, err
	}
	return b.used, nil
}

// Prepare implements kernels.Library.
func (l *Library) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	workspace, err := l.Workspace(c)
	if err != nil {
		return nil, err
	}
	if err := o.Check(c, workspace); err != nil {
		return nil, err
	}
	addresses, err := l.resolve(c.Uses(o, workspace))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Op.Kind(), err)
	}
	b, err := l.build(c, addresses)
	if err != nil {
		return nil, err
	}
	return l.launch(c.Op.Kind()+" "+c.Pass.String(), b)
}

// prepare binds what is no op, and was checked, to its operands.
func (l *Library) prepare(name string, checked error, uses []kernels.Use, build func(b *builder)) (runtime.Launch, error) {
	if checked != nil {
		return nil, checked
	}
	found, err := l.resolve(uses)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b := &builder{lib: l, address: found}
	if build(b); b.err != nil {
		return nil, b.err
	}
	return l.launch(name, b)
}

// resolve finds the addresses of operands.
func (l *Library) resolve(uses []kernels.Use) (addresses, error) {
	found := addresses{}
	for _, u := range uses {
		u.Span.Bytes = u.Bytes
		p, err := l.device.Address(u.Span)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", u.Operand, err)
		}
		found[u.Operand] = C.u64(p)
	}
	return found, nil
}
