//go:build cuda && linux && amd64

package cuda

import (
	"encoding/binary"
	"math"
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
