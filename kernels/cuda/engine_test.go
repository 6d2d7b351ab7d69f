//go:build cuda && linux && amd64

package cuda

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
)

// tiledCalls have several tiles of every size in both directions, with edges; wide loads and others; one split and more.
var tiledCalls = []struct {
	op    kernels.Op
	shape []int
}{
	{kernels.Conv2D{Out: 136, KernelH: 3, KernelW: 2, PadH: 1, Bias: true}, []int{1, 12, 13, 24}},
	{kernels.Conv2D{Out: 131, KernelH: 2, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1}, []int{1, 23, 26, 35}},
	{kernels.Conv2D{Out: 272, KernelH: 2, KernelW: 1, Groups: 2}, []int{1, 13, 12, 272}},
	{kernels.Linear{Out: 140, Bias: true}, []int{130, 520}},
	{kernels.Linear{Out: 133}, []int{131, 519}},
}

// withTile returns the libraries whose products all have tiles of a size: on tensor cores, and in registers.
func withTile(t testing.TB, b *bench, size tile) (all []*Library) {
	t.Helper()
	for _, plain := range libraries(t, b) {
		l := *plain
		l.tile = size
		all = append(all, &l)
	}
	return all
}

// productKernels returns the product kernels of a call.
func productKernels(t testing.TB, l *Library, c kernels.Call) (names []string) {
	t.Helper()
	b, err := l.build(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range b.steps {
		if strings.Contains(s.function, "window_") || strings.Contains(s.function, "pixel_") {
			names = append(names, s.function)
		}
	}
	return names
}

// TestEveryTile: both kinds of products, in every size of tile, family and width of loads, against the reference. The
// shapes of tests are too small to choose most of them.
func TestEveryTile(t *testing.T) {
	b := newBench(t)
	ran := map[string]int{} // by kernel: the call that it last ran in
	calls := tiledCalls
	if testing.Short() {
		calls = calls[:2]
	}
	for i, c := range calls {
		for _, d := range factorTypes {
			r := rand.New(rand.NewPCG(uint64(d), uint64(i)))
			forward, backward := randomCalls(r, as(d, c.op), []kernels.Desc{typed(d, c.shape...)})
			for j := range backward {
				backward[j].SkipDX = nil
			}
			inputs := randomInputs(r, forward)
			for _, size := range tensors.tiles {
				for _, l := range withTile(t, b, size) {
					names := slices.Concat(productKernels(t, l, forward), productKernels(t, l, backward[0]), productKernels(t, l, backward[1]))
					if ran[names[0]] == i+1 {
						continue // the library without tensor cores has the same for float32, or no tile of this size
					}
					check(t, b, l, forward, backward, inputs)
					for _, name := range names {
						ran[name] = i + 1
					}
				}
			}
		}
	}
	// Kinds, widths, families: registers have one tile of bfloat16 and TF32.
	if want := 2 * 2 * (len(registers.tiles) + 2*len(tensors.tiles) + 2); len(ran) != want {
		t.Errorf("ran %d kernels, want %d: %v", len(ran), want, ran)
	}
}

// TestNaNsStayInTheirWindows: a NaN reaches the results whose windows show it, and no other: what lies behind the channels of
// a window is not read, although packed weights are zero there.
func TestNaNsStayInTheirWindows(t *testing.T) {
	b := newBench(t)
	for i, c := range tiledCalls[:3] {
		for _, d := range factorTypes {
			r := rand.New(rand.NewPCG(uint64(d), uint64(i)))
			forward, backward := randomCalls(r, as(d, c.op), []kernels.Desc{typed(d, c.shape...)})
			backward[0].SkipDX, backward[0].AddDX = nil, nil
			for _, call := range []kernels.Call{forward, backward[0]} {
				inputs := randomInputs(r, call)
				nan := encode(d, []float32{float32(math.NaN())})
				for _, bytes := range [][]byte{inputs[operand(kernels.X, 0)], inputs[operand(kernels.DY, 0)]} {
					for range 8 {
						copy(bytes[r.IntN(len(bytes)/len(nan))*len(nan):], nan)
					}
				}
				want := reference(t, call, inputs)
				for _, l := range libraries(t, b) {
					compare(t, call, d, newRig(call, 0, nil).types, compute(t, b, l, call, inputs, nil), want)
				}
			}
		}
	}
}

// TestFullGrids: calls that fill a large GPU choose the largest tile by themselves.
func TestFullGrids(t *testing.T) {
	b := newBench(t)
	for _, full := range []struct {
		op     kernels.Op
		shape  []int
		passes []kernels.Pass
	}{
		{kernels.Conv2D{Out: 256, KernelH: 1, KernelW: 1}, []int{1, 130, 130, 16}, []kernels.Pass{kernels.Forward}},
		{kernels.Conv2D{Out: 16, KernelH: 1, KernelW: 1}, []int{1, 130, 130, 250}, []kernels.Pass{kernels.BackwardInput}},
		{kernels.Linear{Out: 2050}, []int{3, 2100}, []kernels.Pass{kernels.BackwardParams}},
	} {
		for _, d := range factorTypes {
			if testing.Short() && d == kernels.Float32 {
				continue
			}
			l := libraries(t, b)[0]
			for _, pass := range full.passes {
				c := kernels.Call{Op: as(d, full.op), Pass: pass, In: []kernels.Desc{typed(d, full.shape...)}, Train: true}
				name := productKernels(t, l, c)[0]
				if !strings.Contains(name, "_128x128_") {
					t.Errorf("%+v chooses %s", c, name)
				}
				inputs := randomInputs(rand.New(rand.NewPCG(3, 5)), c)
				compare(t, c, d, newRig(c, 0, nil).types, compute(t, b, l, c, inputs, nil), reference(t, c, inputs))
			}
		}
	}
}

// TestCut: tiles and splits of weight gradients are chosen together. For ResNet-50's weight gradients at batch 64, large tiles multiply
// where splits keep the GPU busy. No choice leaves a multiprocessor idle that its inner dimension could feed, or takes more workspace than
// it may.
func TestCut(t *testing.T) {
	type shape struct{ rows, columns, inner int64 }
	shapes := []shape{{64, 7 * 7 * 3, 64 * 112 * 112}}
	for i, blocks := range []int64{3, 4, 6, 3} {
		width, pixels := int64(64)<<i, int64(64*56*56)>>(2*i)
		for k := range blocks {
			in, first := 4*width, pixels
			if k == 0 {
				in = max(width*2, 64)
				shapes = append(shapes, shape{4 * width, in, pixels})
				first = min(4*pixels, 64*56*56)
			}
			shapes = append(shapes, shape{width, in, first}, shape{width, 9 * width, pixels}, shape{4 * width, width, pixels})
		}
	}
	for _, e := range []engine{registers, tensors, tensors32} {
		tiles := map[tile]int{}
		for _, s := range shapes {
			size, splits := e.cut(s.rows, s.columns, s.inner, 1, true)
			tiles[size]++
			blocks, bytes := size.blocks(s.rows, s.columns)*splits, 4*splits*s.rows*s.columns
			if splits < 1 || splits > max(s.inner/leastInner, 1) || splits > 1 && bytes > maxPartial {
				t.Errorf("%+v: %d splits of %v take %d bytes", s, splits, size, bytes)
			}
			if more := min(s.inner/leastInner, maxPartial/(4*s.rows*s.columns)); blocks < multiprocessors*2/3 && splits < more {
				t.Errorf("%+v: %d blocks of %v, and %d splits would be allowed", s, blocks, size, more)
			}
			if one, whole := e.cut(s.rows, s.columns, s.inner, 1, false); whole != 1 || one.m == 0 {
				t.Errorf("%+v is cut into %d splits of %v, and may not be", s, whole, one)
			}
		}
		// With fewer large tiles cut would count what small ones load too cheap; float32 has the fewest.
		if large := len(shapes) - tiles[tile{64, 64}]; len(shapes) != 53 || large < 14 {
			t.Errorf("%s: %d of %d weight gradients have large tiles: %v", e.module, large, len(shapes), tiles)
		}
	}
}
