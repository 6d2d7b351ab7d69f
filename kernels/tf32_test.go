package kernels

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestTF32: bit patterns worked out by hand. The fraction of 10 bits ends with bit 13, so 0x1000 is half a unit.
func TestTF32(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, want uint32
		what     string
	}{
		{0x00000000, 0x00000000, "zero"},
		{0x80000000, 0x80000000, "minus zero"},
		{0x3f800000, 0x3f800000, "one"},
		{0x3f800fff, 0x3f800000, "below a tie"},
		{0x3f801000, 0x3f802000, "a tie, even below: away from zero"},
		{0x3f803000, 0x3f804000, "a tie, even above"},
		{0xbf801000, 0xbf802000, "a negative tie: away from zero"},
		{0x3f801001, 0x3f802000, "above a tie"},
		{0x3fffffff, 0x40000000, "a carry into the exponent"},
		{0x7f7fefff, 0x7f7fe000, "the last that stays finite"},
		{0x7f7ff000, 0x7f800000, "the first that does not"},
		{0xff7fffff, 0xff800000, "the lowest float32"},
		{0x7f800000, 0x7f800000, "infinity"},
		{0xff800000, 0xff800000, "minus infinity"},
		{0x00000fff, 0x00000000, "less than half of the smallest"},
		{0x00001000, 0x00002000, "half of the smallest"},
		{0x007fffff, 0x00800000, "a subnormal that becomes normal"},
	} {
		if got := math.Float32bits(RoundTF32(math.Float32frombits(c.in))); got != c.want {
			t.Errorf("%s, %#08x, is rounded to %#08x, want %#08x", c.what, c.in, got, c.want)
		}
	}
	for _, nan := range []uint32{0x7fc00000, 0x7f800001, 0xffffffff, 0x7fffffff, 0xff801fff} {
		if got := RoundTF32(math.Float32frombits(nan)); got == got || math.Float32bits(got)&0x1fff != 0 {
			t.Errorf("the NaN %#08x becomes %#08x", nan, math.Float32bits(got))
		}
	}
}

// TestTF32Values: every float32 goes to the nearest of 11 bits as math/big rounds it, ties away from zero, and stays there.
func TestTF32Values(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	normal := 0
	for i := range 200_000 {
		bits := r.Uint32()
		if i%4 == 0 {
			bits = bits&^0x1fff | 0x1000 // a tie
		}
		v := math.Float32frombits(bits)
		if a := math.Abs(float64(v)); !(a >= 0x1p-126 && a < 0x1.ffp127) {
			continue
		}
		want, _ := new(big.Float).SetPrec(11).SetMode(big.ToNearestAway).SetFloat64(float64(v)).Float32()
		if got := RoundTF32(v); got != want || RoundTF32(got) != got {
			t.Fatalf("%v is rounded to %v, want %v", v, got, want)
		}
		normal++
	}
	if normal < 150_000 {
		t.Errorf("only %d numbers compared", normal)
	}
}

// TestInTF32: ops with products change, and all their sizes stay; others are what they were. TF32 is for float32, and no
// tensor is of this type.
func TestInTF32(t *testing.T) {
	t.Parallel()
	changed := 0
	for _, op := range everyOp {
		round := InTF32(op)
		_, attention := op.(Attention)
		if UsesTF32(op) || UsesTF32(round) != (op.Split() || attention) {
			t.Errorf("%+v becomes %+v", op, round)
		}
		if !UsesTF32(round) {
			continue
		}
		changed++
		x := inputsOf(op, Float32)
		y, err := round.Infer(x)
		if want, _ := op.Infer(x); err != nil || !y.Equal(want) {
			t.Errorf("%+v gives %v, %v, want %v", round, y, err, want)
		}
		var e *OpError
		if _, err := round.Infer(inputsOf(op, BFloat16)); !errors.As(err, &e) || e.Field != "TF32" {
			t.Errorf("%+v of bfloat16: %v", round, err)
		}
		if _, err := op.Infer(inputsOf(op, TF32)); !errors.As(err, &e) || e.Field != "X" {
			t.Errorf("%+v of tensors in tf32: %v", op, err)
		}
	}
	if changed < 3 {
		t.Errorf("%d ops have products", changed)
	}
	if d, err := ParseFloat("tf32"); d != TF32 || err != nil || d.String() != "tf32" || d.Stored() != Float32 || BFloat16.Stored() != BFloat16 {
		t.Errorf("tf32 is %v, stored as %v: %v", d, d.Stored(), err)
	}
}
