//go:build cuda && linux && amd64

package cuda

import (
	"encoding/json"
	"strings"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/runtime/cuda"
)

// Library implements kernels.Library on one device.
type Library struct {
	device *cuda.Device
	tensor bool // products of bfloat16 and TF32 run on tensor cores
	// Products of bfloat16 may run by wgmma, if that is the fastest. Times of the emulated GPU say nothing: there tests alone ask for it.
	warpgroups bool
	tile       tile // of every product; the zero tile: each product chooses
	vendors    *vendors
	note       func(string)
	prove      func(kernels.Call, algorithm) error                // see proof.go
	choose     func(kernels.Call, convolution) (algorithm, error) // see chosen.go
	terms      int64                                              // that a proof adds up at most
}

// Options of a library. The zero value is the fastest that our kernels can do.
type Options struct {
	NoTensorCores bool        // compute products of bfloat16 and TF32 without tensor cores
	Vendor        nvidia.Mode // of NVIDIA's libraries; "": nvidia.Refuse, with which nothing is timed either
	Search        nvidia.Search
	// Note, when not nil, is told in one line of each algorithm that computed wrongly and is not used.
	Note func(string)
	// Choices are the choices of another process, by ExportChoices: this library repeats them.
	Choices json.RawMessage
	tile    tile // of every product, for tests; the zero tile: each product chooses
}

// Name implements kernels.Library: "cuda/tensor" where bfloat16 and TF32 run on tensor cores, else "cuda", and behind that the
// vendors' libraries.
func (l *Library) Name() string {
	name := "cuda"
	if l.tensor {
		name = "cuda/tensor"
	}
	return name + l.vendors.name()
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

// emulated reports whether the GPU is the emulated driver's.
func emulated(device *cuda.Device) bool { return strings.Contains(device.Info().Model, "emulated") }
