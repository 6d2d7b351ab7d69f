//go:build cuda && linux && amd64

package cuda

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"plimsoll/kernels"
)

// nearest returns the bfloat16 nearest to a float32, the even one of two.
func nearest(bits uint32) uint16 {
	at := func(upper uint32) float64 { return float64(math.Float32frombits(upper << 16)) }
	down, v := bits>>16, float64(math.Float32frombits(bits))
	up := down + 1
	far := at(up)
	if math.IsInf(far, 0) { // where the next one would lie
		far = 2*at(down) - at(down-1)
	}
	switch below, above := math.Abs(v-at(down)), math.Abs(far-v); {
	case math.IsInf(v, 0), below < above, below == above && down%2 == 0:
		return uint16(down)
	}
	return uint16(up)
}

// TestRounding: float32 becomes bfloat16 as IEEE 754 says: to nearest, ties to even, of every exponent and sign; NaNs stay.
func TestRounding(t *testing.T) {
	b := newBench(t)
	var in []float32
	for upper := range uint32(1 << 16) {
		for _, lower := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
			in = append(in, math.Float32frombits(upper<<16|lower))
		}
	}
	c := kernels.Call{Op: kernels.Cast{To: kernels.BFloat16}, In: []kernels.Desc{typed(kernels.Float32, len(in))}, Train: true}
	out := compute(t, b, libraries(t, b)[0], c, data{operand(kernels.X, 0): encode(kernels.Float32, in)}, nil)[operand(kernels.Y, 0)]
	for i, v := range in {
		got := binary.LittleEndian.Uint16(out[2*i:])
		if isNaN := got&0x7fff > 0x7f80; isNaN != (v != v) || !isNaN && got != nearest(math.Float32bits(v)) {
			t.Fatalf("%08x becomes %04x", math.Float32bits(v), got)
		}
	}
}

// TestTF32Rounding: a product rounds a factor of any exponent and sign, beside a 1, as kernels.RoundTF32 does. The factor may be on either
// side, and the product on tensor cores or not. The gradient of a bias, a sum, is exact.
func TestTF32Rounding(t *testing.T) {
	b := newBench(t)
	var values []float32
	for upper := range uint32(1 << 9) {
		for _, lower := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fffff} {
			values = append(values, math.Float32frombits(upper<<23|lower))
		}
	}
	n := len(values)
	ones := slices.Repeat([]float32{1}, n)
	column, row := typed(kernels.TF32, n, 1), typed(kernels.TF32, 1, 1)
	x, weight, dy := operand(kernels.X, 0), operand(kernels.ParamRole, 0), operand(kernels.DY, 0)
	for _, c := range []struct {
		op              kernels.Linear
		in              kernels.Desc
		pass            kernels.Pass
		at, beside, out kernels.Operand
	}{
		{kernels.Linear{Out: 1}, column, kernels.Forward, x, weight, operand(kernels.Y, 0)},
		{kernels.Linear{Out: n}, row, kernels.Forward, weight, x, operand(kernels.Y, 0)},
		{kernels.Linear{Out: 1}, column, kernels.BackwardInput, dy, weight, operand(kernels.DX, 0)},
		{kernels.Linear{Out: 1}, typed(kernels.TF32, 1, n), kernels.BackwardInput, weight, dy, operand(kernels.DX, 0)},
		{kernels.Linear{Out: 1}, typed(kernels.TF32, 1, n), kernels.BackwardParams, x, dy, operand(kernels.DParam, 0)},
		{kernels.Linear{Out: n, Bias: true}, row, kernels.BackwardParams, dy, x, operand(kernels.DParam, 0)},
	} {
		call := kernels.Call{Op: as(kernels.TF32, c.op), In: []kernels.Desc{c.in}, Pass: c.pass, Train: true}
		for _, l := range libraries(t, b) {
			got := compute(t, b, l, call, data{c.at: encode(kernels.Float32, values), c.beside: encode(kernels.Float32, ones)}, nil)
			for i, v := range floats(got[c.out]) {
				// cvt.rna.tf32.f32 keeps the low bits of a NaN, which an H200's mma leaves out: what is left may be an infinity.
				if want := kernels.RoundTF32(values[i]); v != want && (v-v == 0 || want == want) {
					t.Fatalf("%s, %v of %v: %08x becomes %08x, want %08x", l.Name(), c.pass, c.at, math.Float32bits(values[i]), math.Float32bits(v), math.Float32bits(want))
				}
			}
			if sums := floats(got[operand(kernels.DParam, 1)]); c.op.Bias && !slices.EqualFunc(sums, values, func(a, b float32) bool { return a == b || a != a && b != b }) {
				t.Errorf("%s: the gradient of the bias is rounded", l.Name())
			}
		}
	}
}
