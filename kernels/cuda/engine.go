//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

const (
	convThreads = 256 // CONV_THREADS in src/conv.cuh
	maxTile     = 128
)

// tile is the rows and columns of a product that one block computes.
type tile struct{ m, n int64 }

func (t tile) blocks(rows, columns int64) int64 { return ceil(rows, t.m) * ceil(columns, t.n) }

func (t tile) grid(rows, columns, z int64) dim { return dim{ceil(rows, t.m), ceil(columns, t.n), z} }

// engine is a family of product kernels: one source, one type, one width of loads.
type engine struct {
	module string
	prefix string        // of the kernels' names
	dtype  kernels.DType // of activations
	packed kernels.DType // of packed weights
	slab   int64         // inner indices at a time
	vector int64         // of loads
	tiles  []tile        // largest first
}

// Families: in registers, and tensor cores (src/mma.cu).
var (
	registers = engine{module: "conv", packed: kernels.Float32, slab: 8, vector: 4, tiles: []tile{{128, 128}, {128, 64}, {64, 64}}}
	tensors   = engine{module: "mma", prefix: "mma_", packed: kernels.BFloat16, slab: 32, vector: 8, tiles: registers.tiles}
)

// engine chooses the family for activations of a type. Wide loads need all that counts to be whole vectors: counts is the
// bitwise or of those numbers.
func (l *Library) engine(d kernels.DType, counts int64) engine {
	e := registers
	switch {
	case d == kernels.BFloat16 && l.tensor:
		e = tensors
	case d == kernels.BFloat16: // for GPUs before tensor cores: one size will do
		e.tiles = e.tiles[2:]
	}
	if slices.Contains(e.tiles, l.tile) {
		e.tiles = []tile{l.tile}
	}
	e.dtype = d
	if counts%e.vector != 0 {
		e.vector = 1
	}
	return e
}

// tile takes the largest that leaves no multiprocessor without work, and that columns fill.
func (e engine) tile(rows, columns, panels int64) tile {
	for _, t := range e.tiles {
		if (t.n <= maxTile/2 || columns > maxTile/2) && t.blocks(rows, columns)*panels >= fullGrid {
			return t
		}
	}
	return e.tiles[len(e.tiles)-1]
}

// name is that of the kernel: "window_f32_128x64_v4".
func (e engine) name(product string, t tile) string {
	return fmt.Sprintf("%s%s%s_%dx%d_v%d", e.prefix, product, suffix(e.dtype), t.m, t.n, e.vector)
}

const (
	stages = 3 // STAGES in src/mma.cu
	pad    = 8 // PAD: values behind each row in shared memory
)

// windowShared and pixelShared return the bytes of dynamic shared memory of a window or pixel product.
func (e engine) windowShared(t tile) int64 {
	if e.module != tensors.module {
		return 0
	}
	return stages * (t.m + t.n) * (e.slab + pad) * e.packed.Size()
}

func (e engine) pixelShared(t tile) int64 {
	if e.module != tensors.module {
		return 0
	}
	return stages * e.slab * (t.m + t.n + 2*pad) * e.packed.Size()
}
