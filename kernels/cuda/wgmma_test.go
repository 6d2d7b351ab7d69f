//go:build cuda && linux && amd64

package cuda

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/resources"
)

// withWarpgroups returns a library whose products run by wgmma wherever they can, with tiles of a size; the zero tile: each product chooses.
func withWarpgroups(t testing.TB, b *bench, size tile) *Library {
	t.Helper()
	l := *libraries(t, b)[0]
	if !hasWarpgroups(b.device) {
		t.Skip("needs capability 9.0")
	}
	l.warpgroups, l.tile = true, size
	l.choose = func(call kernels.Call, c convolution) (algorithm, error) {
		all := l.candidates(call, c)
		return all[len(all)-1], nil
	}
	return &l
}

// warpgroupCalls have rows and columns that fill no tile, padding, strides, dilation, groups, one slab and many, and images that are folded.
var warpgroupCalls = []struct {
	op    kernels.Op
	shape []int
}{
	{kernels.Linear{Out: 140, Bias: true}, []int{131, 520}},
	{kernels.Linear{Out: 264}, []int{5, 2104}},
	{kernels.Linear{Out: 8}, []int{1, 8}},
	{kernels.Linear{Out: 304, Bias: true}, []int{301, 64}},
	{kernels.Conv2D{Out: 264, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Bias: true}, []int{1, 11, 13, 24}},
	{kernels.Conv2D{Out: 72, KernelH: 3, KernelW: 2, PadH: 2, StrideH: 2, StrideW: 2, DilationH: 2}, []int{2, 13, 12, 72}},
	{kernels.Conv2D{Out: 272, KernelH: 2, KernelW: 3, PadW: 1, Groups: 2}, []int{1, 13, 12, 272}},
	{kernels.Conv2D{Out: 32, KernelH: 1, KernelW: 1, StrideH: 2, StrideW: 2}, []int{2, 15, 15, 72}},
	{kernels.Conv2D{Out: 24, KernelH: 7, KernelW: 7, StrideH: 2, StrideW: 2, PadH: 3, PadW: 3}, []int{2, 18, 19, 3}},
}

// TestWarpgroupProducts: products by wgmma in every size of tile against the reference, twice for the same bits.
func TestWarpgroupProducts(t *testing.T) {
	b := newBench(t)
	ran := map[string]int{}
	splits := 0
	for i, c := range warpgroupCalls {
		if testing.Short() && i%2 != 0 {
			continue
		}
		r := rand.New(rand.NewPCG(61, uint64(i)))
		forward, backward := randomCalls(r, c.op, []kernels.Desc{typed(kernels.BFloat16, c.shape...)})
		for j := range backward {
			backward[j].SkipDX = nil
		}
		inputs := randomInputs(r, forward)
		for k, size := range append(slices.Clone(warpgroups.tiles), tile{}) {
			if (i+k)%2 != 0 {
				continue // slow
			}
			l := withWarpgroups(t, b, size)
			check(t, b, l, forward, backward, inputs)
			splits += sums(t, l, append(backward, forward))
			for _, call := range append(backward, forward) {
				ran[productKernels(t, l, call)[0]]++
			}
		}
	}
	for _, size := range warpgroups.tiles {
		for _, product := range []string{"window", "pixel"} {
			if name := warpgroups.name(product, size); ran[name] < 4 {
				t.Errorf("%s ran in %d calls: %v", name, ran[name], ran)
			}
		}
	}
	if splits == 0 {
		t.Error("no product was split")
	}
}

var _ = strings.Contains
var _ resources.Launch
