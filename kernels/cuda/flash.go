//go:build cuda && linux && amd64

package cuda

import (
	"fmt"

	"plimsoll/kernels"
)

const flashWarps = 4 // FLASH_WARPS in src/flash.cuh

var flashBlock = dim{flashWarps * 32, 1, 1}

// flashHeads are the sizes of heads that src/flash*forward.cu and src/flash*backward.cu have kernels for, in rising order. Smaller heads are
// padded with zeros.
var flashHeads = map[kernels.Pass]map[kernels.DType][]int64{
	kernels.Forward:  {kernels.BFloat16: {32, 64, 96, 128, 256}, kernels.TF32: {32, 64, 96, 128}},
	kernels.Backward: {kernels.BFloat16: {32, 64, 96, 128, 256}, kernels.TF32: {32, 64, 96, 128}},
}

// flash is the kernels on tensor cores for heads of up to so many channels and factors of a type; 0 channels: none.
type flash struct {
	head    int64
	factors kernels.DType
	general bool // not only causal attention without terms
}

// flash returns the kernels that compute attention in a pass. They copy rows in pieces of 16 bytes. Kernels of causal attention without
// terms hide scores before they scale them, so that the scale must be positive.
func (l *Library) flash(op kernels.Attention, x kernels.Desc, pass kernels.Pass) flash {
	d, channels := factors(op, x), int64(op.Dim(x))
	if !l.tensor || channels%wide(d) != 0 {
		return flash{}
	}
	for _, head := range flashHeads[pass][d] {
		if channels <= head {
			return flash{head, d, op.Bidirectional || !op.Plain() || op.ScoreScale(x) <= 0}
		}
	}
	return flash{}
}

// module is the source of the kernels of a pass.
func (f flash) module(pass string) string {
	if f.general {
		return "flashany" + pass
	}
	return "flash" + pass
}

// name is the name of a kernel.
func (f flash) name(of string) string {
	if f.general {
		of += "_any"
	}
	return f.kernel(of)
}

func (f flash) kernel(of string) string {
	return fmt.Sprintf("flash_%s%s_d%d", of, suffix(f.factors), f.head)
}

// rowBytes is the size of a row in shared memory, rows_of::WIDTH.
func (f flash) rowBytes() int64 { return f.head*f.factors.Size() + 16 }

// positions is the number of positions of a block in a pass: QUERIES of tiles forward, FIXED of panels backward. A warp has one or two times
// 16: two blocks of registers are slower for bfloat16 forward (160 against 196 us on an H200, heads of 64).
func (f flash) positions(pass kernels.Pass) int64 {
	if f.head <= 64 && (pass != kernels.Forward || f.factors == kernels.TF32) {
		return flashWarps * 2 * 16
	}
	return flashWarps * 16
}

// forwardShared returns the bytes of shared memory of src/flashforward.cuh: two stages of keys and values, and queries that registers do not
// hold.
func (f flash) forwardShared() int64 {
	keys, most, positions := int64(32), int64(256), f.positions(kernels.Forward)
	if positions > flashWarps*16 {
		most = 128
	}
	if f.head*f.factors.Size() <= most {
		keys = 64
	}
	rows := 2 * 2 * keys
	if f.head > 128 {
		rows += positions
	}
	return rows * f.rowBytes()
}

// backwardShared returns the bytes of panels in src/flashbackward.cuh.
func (f flash) backwardShared() int64 {
	return 2*f.positions(kernels.Backward)*f.head*f.factors.Size() + 2*2*f.moving()*f.rowBytes()
}

// moving is the number of positions of a stage backward, ROWS of panels.
func (f flash) moving() int64 {
	switch bytes := f.head * f.factors.Size(); {
	case bytes <= 128:
		return 64
	case bytes <= 384:
		return 32
	}
	return 16
}
