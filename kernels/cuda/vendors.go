//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/runtime/cuda"
)

// deviceAddress is what kernels take as an address.
type deviceAddress = C.u64

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

// What NVIDIA recommends as cuBLAS's workspace, in bytes: for GPUs from Hopper (9.0) on, and before.
const (
	largeProductWorkspace = 32 << 20
	smallProductWorkspace = 4 << 20
)

// newVendors loads the libraries. With nvidia.Prefer, what is not there is only noted.
func newVendors(device *cuda.Device, o Options) (*vendors, error) {
	v := &vendors{
		loaded: &nvidia.Libraries{}, choices: remembered, time: clock, workspace: smallProductWorkspace, part: partBytes, slice: sliceBytes,
		described: map[string]described{},
	}
	if major, _ := device.Capability(); major >= 9 {
		v.workspace = largeProductWorkspace
	}
	mode := o.Vendor
	if mode == "" {
		mode = nvidia.Refuse
	}
	o.Search.Emulated = emulated(device)
	var err error
	if v.loaded, err = nvidia.Load(mode, o.Search); err != nil {
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

// Vendors lists the files of the vendors' libraries that are used, and why others are not.
func (l *Library) Vendors() (files []string, missing []error) {
	if l.vendors.multiplier != nil {
		files = append(files, l.vendors.loaded.BLAS.Path)
	}
	if l.vendors.convolver != nil {
		files = append(files, l.vendors.loaded.DNN.Path)
	}
	return files, l.vendors.loaded.Missing()
}

// candidates lists who computes a call with the sums and roundings that kernels asks for, ours first.
//
// cuDNN rounds its results to the type of the images. So in bfloat16 it is not asked for what has more to come (a bias, a
// sum with what is there), nor for the weights' gradients, which are float32.
func (l *Library) candidates(call kernels.Call, c convolution) []algorithm {
	all := append([]algorithm{ours}, l.products(call, c)...)
	more := call.Pass == kernels.BackwardParams || call.Adds(0) || len(call.Op.Params(call.In)) > 1 && call.Pass == kernels.Forward
	if l.vendors.convolver == nil || c.dtype == kernels.BFloat16 && more {
		return all
	}
	if _, err := l.describe(call.Pass, c); err == nil {
		all = append(all, cudnn)
	}
	return all
}

var passes = map[kernels.Pass]nvidia.Pass{
	kernels.Forward: nvidia.Forward, kernels.BackwardInput: nvidia.BackwardData, kernels.BackwardParams: nvidia.BackwardFilter,
}

// describe asks cuDNN about a convolution, once.
func (l *Library) describe(p kernels.Pass, c convolution) (*nvidia.Convolution, error) {
	v := l.vendors
	v.mu.Lock()
	defer v.mu.Unlock()
	key := fmt.Sprintf("%v %+v", p, c)
	d, known := v.described[key]
	if !known {
		d.err = l.device.Run(func() (err error) {
			d.Convolution, err = v.convolver.Convolution(c.shape(), passes[p])
			return err
		})
		v.described[key] = d
	}
	return d.Convolution, d.err
}

func (c convolution) shape() nvidia.Shape {
	return nvidia.Shape{
		N: c.n, H: c.h.in, W: c.w.in, C: c.channels, OH: c.h.out, OW: c.w.out, O: c.out, KH: c.h.kernel, KW: c.w.kernel,
		SH: c.h.stride, SW: c.w.stride, PH: c.h.pad, PW: c.w.pad, DH: c.h.dilation, DW: c.w.dilation, Groups: c.groups,
		BFloat16: c.dtype == kernels.BFloat16, TF32: c.dtype == kernels.TF32,
	}
}

// halve appends the kernel that packs the float32 weights to bfloat16, and returns where.
func (b *builder) halve(weight C.u64, n int64) C.u64 {
	packed := b.reserve(2 * n)
	addStream(b, "map", "cast_f32_bf16", n, 4, C.struct_map_args{a: weight, out: packed, n: C.i64(n)})
	return packed
}
