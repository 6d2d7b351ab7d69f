//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

type dim [3]int64

// maxGrid is the largest grid that CUDA allows along x, y and z.
var maxGrid = dim{1<<31 - 1, 1<<16 - 1, 1<<16 - 1}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// suffix is the part of a kernel's name that says the type of activations, or of factors.
func suffix(d kernels.DType) string {
	switch d {
	case kernels.BFloat16:
		return "_bf16"
	case kernels.TF32:
		return "_tf32"
	}
	return "_f32"
}

// wide returns the elements of 16 bytes.
func wide(d kernels.DType) int64 { return 16 / d.Size() }

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// decimal is the number that the user wrote.
func decimal(v float32) C.double { return C.double(kernels.Decimal(v)) }
