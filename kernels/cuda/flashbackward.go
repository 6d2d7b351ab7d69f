//go:build cuda && linux && amd64

package cuda

import (
	"fmt"

	"plimsoll/kernels"
)

const (
	gradientTile    = 64  // FIXED and
	gradientThreads = 128 // FLASH_THREADS in src/flashbackward.cu
)

// gradientHeads are the sizes of heads that src/flashbackward.cu has kernels for. Smaller heads are padded with zeros.
var gradientHeads = []int64{32, 64, 96, 128}

// flashBackward returns the size of the kernels that compute gradients of heads of so many channels on tensor cores, or 0.
// Rows of 16 bytes need channels that are whole vectors.
func (l *Library) flashBackward(d kernels.DType, channels int64) int64 {
	if !l.tensor || d != kernels.BFloat16 || channels%wide(d) != 0 {
		return 0
	}
	for _, size := range gradientHeads {
		if channels <= size {
			return size
		}
	}
	return 0
}

// gradientShared returns the bytes of panels in src/flashbackward.cu.
func gradientShared(head int64) int64 {
	rows := int64(64)
	if head > 64 {
		rows = 32
	}
	const operands, stages = 2, 2
	width := head + 8
	return 2*operands*width*(gradientTile+stages*rows) + 4*operands*stages*rows
}

// gradientKernel is the name of a kernel of src/flashbackward.cu.
func gradientKernel(name string, d kernels.DType, head int64) string {
	return fmt.Sprintf("flash_%s%s_d%d", name, suffix(d), head)
}
