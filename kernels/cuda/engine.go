//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
)

const maxTile = 256

// tile is the rows and columns of a product that one block computes.
type tile struct{ m, n int64 }

func (t tile) blocks(rows, columns int64) int64 { return ceil(rows, t.m) * ceil(columns, t.n) }

func (t tile) grid(rows, columns, z int64) dim { return dim{ceil(rows, t.m), ceil(columns, t.n), z} }

// engine is a family of product kernels: one source, one type, one width of loads.
type engine struct {
	module string
	prefix string        // of the kernels' names
	dtype  kernels.DType // of activations, or TF32
	packed kernels.DType // of packed weights
	slab   int64         // inner indices at a time
	vector int64         // of loads
	rate   float64       // multiplications and additions of a multiprocessor in a clock
	tiles  []tile        // largest first
	room   []int64       // blocks of each tile that a multiprocessor has room for: the bounds of the kernels in src
	block  int64         // threads of a block
}

// Families: in registers, on tensor cores (src/mma.cu), and on those of capability 9.0 alone (src/wgmma.cu).
var (
	registers = engine{
		module: "conv", packed: kernels.Float32, slab: 8, vector: 4, rate: 128, block: 256,
		tiles: []tile{{128, 128}, {128, 64}, {64, 64}}, room: []int64{1, 2, 2},
	}
	tensors = engine{
		module: "mma", prefix: "mma_", packed: kernels.BFloat16, slab: 32, vector: 8, rate: 1024, block: 128,
		tiles: []tile{{128, 128}, {128, 64}, {64, 128}, {64, 64}}, room: []int64{2, 3, 3, 4},
	}
	tensors32 = engine{
		module: "mma", prefix: "mma_", packed: kernels.TF32, slab: 16, vector: 4, rate: 512, block: tensors.block,
		tiles: tensors.tiles, room: tensors.room,
	}
	warpgroups = engine{
		module: "wgmma", prefix: "wgmma_", dtype: kernels.BFloat16, packed: kernels.BFloat16, slab: 64, vector: 8, rate: 2048, block: 256,
		tiles: []tile{{128, 256}, {128, 128}, {128, 64}}, room: []int64{1, 2, 2},
	}
)

// The GPU that cut assumes, whatever GPU there is, so that any gives the same bits.
const (
	multiprocessors = 132
	loadRate        = 32   // bytes that a multiprocessor loads in a clock
	startClocks     = 1000 // before a block's first product
	sumClocks       = 3000 // to begin to add up splits
	leastInner      = 256  // inner indices that are worth a split
	maxPartial      = 16 << 20
	maxSplits       = 256
)

// cut chooses, together, the tile of a product and the number of parts of its inner dimension, by the expected time of each pair
// for the shape. Few large tiles load least for each product, and leave multiprocessors idle unless they are cut. Small tiles and
// many parts are the reverse. Splits take a workspace of maxPartial bytes at most, and are 1 unless divisible.
func (e engine) cut(rows, columns, inner, panels int64, divisible bool) (best tile, splits int64) {
	most := int64(1)
	if divisible {
		most = max(min(inner/leastInner, maxPartial/(4*rows*columns*panels), maxSplits), 1)
	}
	least := math.Inf(1)
	for i, t := range e.tiles {
		for n := int64(1); n <= most; n++ {
			if clocks := e.clocks(t, e.room[i], n, rows, columns, inner, panels); clocks < least {
				best, splits, least = t, n, clocks
			}
		}
	}
	return best, splits
}

// clocks estimates a product in n splits: blocks run in waves, those of a multiprocessor, which has room for so many, share what it loads
// and multiplies.
func (e engine) clocks(t tile, room, n, rows, columns, inner, panels int64) float64 {
	blocks := t.blocks(rows, columns) * panels * n
	waves := ceil(blocks, multiprocessors*room)
	beside := min(ceil(blocks, multiprocessors), room)
	step := max(float64((t.m+t.n)*e.packed.Size())/loadRate, float64(t.m*t.n)/e.rate)
	busy := float64(beside+room) / 2 // fewer blocks hide less of each other's latencies
	total := float64(waves) * busy * (float64(ceil(inner, n))*step + startClocks)
	if n > 1 {
		total += sumClocks + float64((2*n+1)*rows*columns*panels*4)/(loadRate*multiprocessors)
	}
	return total
}

// limited returns the family with one tile, if it has that one.
func (e engine) limited(only tile) engine {
	if i := slices.Index(e.tiles, only); i >= 0 {
		e.tiles, e.room = e.tiles[i:i+1], e.room[i:i+1]
	}
	return e
}

// name is the name of the kernel: "window_f32_128x64_v4".
func (e engine) name(product string, t tile) string {
	return fmt.Sprintf("%s%s%s_%dx%d_v%d", e.prefix, product, suffix(e.dtype), t.m, t.n, e.vector)
}

const (
	stages = 4 // STAGES in src/mma.cu
	pad    = 8 // PAD: values behind each row of a pixel product in shared memory

	stageBytes = 192 << 10 // STAGE_BYTES in src/wgmma.cu: of all blocks of a multiprocessor
	atomBytes  = 1024      // ATOM, to which the first stage is aligned
)

// windowShared and pixelShared return the bytes of dynamic shared memory of a window or pixel product.
func (e engine) windowShared(t tile) int64 {
	switch e.module {
	case tensors.module:
		return stages * (t.m + t.n) * (e.slab*e.packed.Size() + 16)
	case warpgroups.module:
		return e.swizzledShared(t)
	}
	return 0
}

func (e engine) pixelShared(t tile) int64 {
	switch e.module {
	case tensors.module:
		return stages * e.slab * (t.m + t.n + 2*pad) * e.packed.Size()
	case warpgroups.module:
		return e.swizzledShared(t)
	}
	return 0
}

// swizzledShared is the bytes of either product by wgmma.
func (e engine) swizzledShared(t tile) int64 {
	return stageBytes/e.room[slices.Index(e.tiles, t)] + atomBytes
}
