package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
)

// TestTF32 multiplies numbers with visible roundings: with exact products and sums, any other rounding of either factor gives another
// result. The number 1+2^-11 is a tie, which goes up to 1+2^-10; a smaller one goes down.
func TestTF32(t *testing.T) {
	t.Parallel()
	const tie, down = 1 + 0x1p-11, 1 + 0x1p-12
	for _, path := range testedPaths() {
		lib := newLibrary(t, path, 1)
		for _, op := range []kernels.Op{kernels.Linear{Out: 1, Bias: true}, kernels.Conv2D{Out: 1, KernelH: 1, KernelW: 1, Bias: true}} {
			for _, c := range []struct {
				pass kernels.Pass
				out  kernels.Operand
				want float32
			}{
				{kernels.Forward, opY, (1+0x1p-10)*2 - 3 + down}, // x·w + b
				{kernels.BackwardInput, opDX, -2 * (1 + 0x1p-10)},
				{kernels.BackwardParams, opDW, -(1 + 0x1p-10) * (1 + 0x1p-10)},
				{kernels.BackwardParams, opDB, -tie}, // a sum, not a product
			} {
				x := kernels.F32(1, 1, 1, 2)
				in := data{opX: {tie, 3}, opW: {2, -down}, opB: {down}, opDY: {-tie}}
				got := run(t, lib, kernels.Call{Op: kernels.InTF32(op), In: []kernels.Desc{x}, Pass: c.pass}, in)
				if got[c.out][0] != c.want {
					t.Errorf("%v, %s %v: %v is %v, want %v", path, op.Kind(), c.pass, c.out, got[c.out][0], c.want)
				}
			}
		}
	}
}

// TestTF32KeepsWhatIsNotFinite: an infinity and a NaN with any payload go through a product.
func TestTF32KeepsWhatIsNotFinite(t *testing.T) {
	t.Parallel()
	for _, path := range testedPaths() {
		lib := newLibrary(t, path, 1)
		for _, bits := range []uint32{0x7f800000, 0xff800000, 0x7fffffff, 0x7f800001, 0xffffffff} {
			v := math.Float32frombits(bits)
			c := kernels.Call{Op: kernels.Linear{Out: 1, TF32: true}, In: []kernels.Desc{kernels.F32(1, 1)}}
			got := run(t, lib, c, data{opX: {v}, opW: {1}})[opY][0]
			if got != v && !(v != v && got != got) {
				t.Errorf("%v: %v·1 is %v", path, v, got)
			}
		}
	}
}

// rounded returns the inputs as products in TF32 see them.
func (d data) rounded() data {
	c := d.clone()
	for _, o := range []kernels.Operand{opX, opW, opDY} {
		for i, v := range c[o] {
			c[o][i] = kernels.RoundTF32(v)
		}
	}
	return c
}

// TestTF32IsFloat32OfRoundedFactors: a product in TF32 has the bits of one in float32 on factors that were rounded before, on
// every path and for every large shape.
func TestTF32IsFloat32OfRoundedFactors(t *testing.T) {
	t.Parallel()
	compared := 0
	for i, large := range largeCalls {
		if !large.op.Split() {
			continue
		}
		r := rand.New(rand.NewPCG(5, uint64(i)))
		forward, backward := randomCalls(r, large.op, large.in)
		in := randomInputs(r, forward)
		for _, path := range testedPaths() {
			lib := newLibrary(t, path, 2)
			for _, c := range append(backward, forward) {
				want := run(t, lib, c, in.rounded())
				c.Op = kernels.InTF32(c.Op)
				got := run(t, lib, c, in)
				delete(want, opDB) // the bias's gradient is no product
				delete(got, opDB)
				sameBits(t, path.String(), got, want)
				compared += len(want)
			}
		}
	}
	if compared < 20 {
		t.Errorf("only %d results compared", compared)
	}
}
