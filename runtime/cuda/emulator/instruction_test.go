//go:build cuda

package emulator

import (
	"math"
	"slices"
	"testing"
)

var warp = shape{1, 32, 512}

// product is C = A*B of the first 16 rows of inner values and the next inner rows of 8.
func product(v []float32, inner int) []float32 {
	c := make([]float32, 16*8)
	for i := range c {
		for k := range inner {
			c[i] += v[i/8*inner+k] * v[16*inner+k*8+i%8]
		}
	}
	return c
}

func TestMultiplyIsTheProduct(t *testing.T) {
	for kernel, inner := range map[string]int{"multiply": 16, "multiply_tf32": 8} {
		values := make([]float32, 24*inner)
		for i := range values {
			values[i] = float32(i*i%17 - 8)
		}
		g := start(t, false)
		from, to := g.alloc(4*len(values)), g.alloc(4*128)
		g.upload(from, values)
		for _, swapped := range []float32{0, 1} {
			g.launch(0, kernel, warp, scaleArgs{to, from, 1, swapped, 0}.bytes())
			if got := g.download(to, 128); slices.Equal(got, product(values, inner)) != (swapped == 0) {
				t.Errorf("%s, swapped %v: %v", kernel, swapped, got)
			}
		}
	}
}

// Of the factors of TF32, mma uses 10 bits of fraction; cvt.rna rounds to them, ties away from zero, and keeps what is no
// number. Factors lie beside a 1: the product has them in its first column.
func TestFactorsOfTF32(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct{ v, cut, rounded float32 }{
		{1 + 0x1p-11, 1, 1 + 0x1p-10},
		{-1 - 0x1p-11, -1, -1 - 0x1p-10},
		{1 + 0x1p-10 + 0x1p-11, 1 + 0x1p-10, 1 + 0x1p-9},
		{1 + 0x1p-11 - 0x1p-23, 1, 1},
		{2 - 0x1p-23, 2 - 0x1p-10, 2},
		{math.MaxFloat32, 0x1.ffcp127, inf},
		{-inf, -inf, -inf},
	} {
		for side := range 2 {
			values := make([]float32, 16*8+8*8)
			values[0], values[128] = c.v, 1
			if side == 1 {
				values[0], values[128] = 1, c.v
			}
			g := start(t, false)
			from, to := g.alloc(4*len(values)), g.alloc(4*128)
			g.upload(from, values)
			for how, want := range map[float32]float32{0: c.cut, 2: c.rounded} {
				g.launch(0, "multiply_tf32", warp, scaleArgs{to, from, 1, how, 0}.bytes())
				if got := g.download(to, 1)[0]; got != want && !(math.IsInf(float64(want), 0) && got != got) {
					t.Errorf("%v as factor %d, rounded %v, is %v, want %v", c.v, side, how == 2, got, want)
				}
			}
		}
	}
}

// cvt.rn.bf16x2 rounds to nearest, ties to even, and puts its first number into the upper half; ex2 has no subnormal results.
func TestNumbersAreConverted(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	cases := []struct {
		v     float32
		half  uint32 // of bfloat16
		power float32
	}{
		{0, 0, 1}, {1 + 0x1p-8, 0x3f80, 0}, {1 + 0x1p-7 + 0x1p-8, 0x3f82, 0}, {-1 - 0x1p-8 - 0x1p-20, 0xbf81, 0}, {10, 0x4120, 1024},
		{math.MaxFloat32, 0x7f80, inf}, {-126, 0xc2fc, 0x1p-126}, {-127, 0xc2fe, 0}, {-inf, 0xff80, 0}, {inf, 0x7f80, inf}, {nan, 0x7fff, nan},
	}
	values := make([]float32, 32)
	for i, c := range cases {
		values[i] = c.v
	}
	g := start(t, false)
	from, to := g.alloc(128), g.alloc(128)
	g.upload(from, values)
	g.launch(0, "convert", warp, scaleArgs{to, from, 1, 0, 0}.bytes())
	halves := g.download(to, 32)
	g.launch(0, "convert", warp, scaleArgs{to, from, 1, 1, 0}.bytes())
	powers := g.download(to, 32)
	for i, c := range cases {
		if got := math.Float32bits(halves[i]); got != c.half<<16|0x3f80 {
			t.Errorf("%v becomes %08x, want %04x above 3f80", c.v, got, c.half)
		}
		if whole := c.v == float32(int(c.v)) || c.v-c.v != 0; whole && powers[i] != c.power && (c.power == c.power || powers[i] == powers[i]) {
			t.Errorf("2^%v is %v, want %v", c.v, powers[i], c.power)
		}
	}
	g.wantNoFinding()
}

// The element e of row r of matrix m holds 64*m + 8*r + e.
func TestMatricesAreLoadedAsTheISASays(t *testing.T) {
	halves := make([]uint16, 256)
	for i := range halves {
		halves[i] = uint16(i)
	}
	values := make([]float32, 128)
	for i := range values {
		values[i] = math.Float32frombits(uint32(halves[2*i]) | uint32(halves[2*i+1])<<16)
	}
	g := start(t, false)
	from, to := g.alloc(512), g.alloc(512)
	g.upload(from, values)
	load := func(how float32) []float32 {
		g.launch(0, "matrices", warp, scaleArgs{to, from, 1, how, 0}.bytes())
		return g.download(to, 128)
	}
	if missing := load(1); math.Float32bits(missing[1]) == 64|65<<16 {
		t.Error("copies arrive without a wait")
	}
	for how, step := range map[float32][2]int{0: {8, 1}, 2: {1, 8}} { // of lane/4, and of an element
		for i, v := range load(how) {
			lane, matrix := i/4, i%4
			first := 64*matrix + lane/4*step[0] + lane%4*2*step[1]
			if want := uint32(first) | uint32(first+step[1])<<16; math.Float32bits(v) != want {
				t.Fatalf("transposed %v: lane %d gets %08x of matrix %d, want %08x", how == 2, lane, math.Float32bits(v), matrix, want)
			}
		}
	}
	g.wantNoFinding()
}

func TestInstructionsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		kernel string
		s      shape
		add    float32
		result int
		text   string
	}{
		"memory for a number":  {"malformed", warp, 0, invalidPTX, `"cp.async.wait_group [%0];" is no instruction`},
		"no model":             {"malformed", warp, 1, invalidPTX, `"wgmma.fence.aligned;" is no instruction`},
		"no such operand":      {"malformed", warp, 2, invalidPTX, "%1 is no operand"},
		"an output that reads": {"malformed", warp, 3, invalidPTX, `%0 is "=r"`},
		"too little memory":    {"matrices", shape{1, 32, 496}, 0, illegalAddress, "touches byte 496 of 496 bytes of dynamic shared memory"},
		"misaligned":           {"matrices", warp, 0, misaligned, "not from a multiple of 16"},
		"half a warp":          {"multiply", shape{1, 16, 0}, 0, notSupported, "whole warps"},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, false)
			from, to := g.alloc(2048), g.alloc(2048)
			if c.result == misaligned {
				from += 4
			}
			g.launch(0, c.kernel, c.s, scaleArgs{to, from, 1, c.add, 0}.bytes())
			g.want(c.result, "cuCtxSynchronize")
			g.wantFinding(c.text)
		})
	}
}
