//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"
	"sync"

	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/runtime/cuda"
)

// vendors are NVIDIA's libraries on one device. The zero value has none.
type vendors struct {
	loaded     *nvidia.Libraries
	convolver  *nvidia.Convolver
	multiplier *nvidia.Multiplier
	workspace  int64 // most bytes for a product of cuBLAS
	part       int64 // partBytes
	slice      int64 // sliceBytes
	choices    *choices
	time       func(algorithm, cuda.Launch) (microseconds float64, err error)

	mu        sync.Mutex
	described map[string]described
}

// described is a convolution that cuDNN was asked about.
type described struct {
	*nvidia.Convolution
	err error
}

// NVIDIA's recommended workspace of cuBLAS, in bytes: for GPUs from Hopper (9.0) on, and before.
const (
	largeProductWorkspace = 32 << 20
	smallProductWorkspace = 4 << 20
)

// newVendors loads the libraries. With nvidia.Prefer, what is not there is only noted.
func newVendors(device *cuda.Device, mode nvidia.Mode, search nvidia.Search) (*vendors, error) {
	v := &vendors{
		loaded: &nvidia.Libraries{}, choices: remembered, time: clock, workspace: smallProductWorkspace, part: partBytes, slice: sliceBytes,
		described: map[string]described{},
	}
	if major, _ := device.Capability(); major >= 9 {
		v.workspace = largeProductWorkspace
	}
	var err error
	if v.loaded, err = nvidia.Load(mode, search); err != nil {
		return nil, err
	}
	if err := errors.Join(device.Run(v.open), device.OnClose(v.close)); err != nil {
		return nil, errors.Join(err, device.Run(v.close))
	}
	if mode == nvidia.Require {
		return v, errors.Join(v.loaded.Missing()...)
	}
	return v, nil
}

// open makes the handles, and notes why one cannot be made. The context is current.
func (v *vendors) open() (err error) {
	l := v.loaded
	if l.BLAS != nil {
		if v.multiplier, err = l.BLAS.NewMultiplier(); err != nil {
			l.NoBLAS = fmt.Errorf("%s: %w", l.BLAS.Path, err)
		}
	}
	if l.DNN != nil {
		if v.convolver, err = l.DNN.NewConvolver(); err != nil {
			l.NoDNN = fmt.Errorf("%s: %w", l.DNN.Path, err)
		}
	}
	return nil
}

// close destroys the handles, when the device closes and launches have run. The context is current.
func (v *vendors) close() (err error) {
	if v.convolver != nil {
		err = v.convolver.Close()
	}
	if v.multiplier != nil {
		err = errors.Join(err, v.multiplier.Close())
	}
	v.convolver, v.multiplier = nil, nil
	return err
}

// name lists what is used: "+cublas-12.6.4+cudnn-9.10.2".
func (v *vendors) name() string {
	name := ""
	if v.multiplier != nil {
		name += "+cublas-" + v.loaded.BLAS.Version
	}
	if v.convolver != nil {
		name += "+cudnn-" + v.loaded.DNN.Version
	}
	return name
}

// Bytes in float32 of the rows of a result that are computed at a time, in whole tiles of rows. Parts stay in an L2 cache of 50 MB, where
// a wave of tiles keeps an H100 busy. Slices do not, and need no waves of their own.
const (
	partBytes  = 32 << 20
	sliceBytes = 64 << 20
	rowsAtOnce = 128
)
