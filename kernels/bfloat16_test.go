package kernels

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestBFloat16: bit patterns worked out by hand. The fraction of 1 ends with bit 16, so 0x8000 is half a unit.
func TestBFloat16(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   uint32
		want uint16
		what string
	}{
		{0x00000000, 0x0000, "zero"},
		{0x80000000, 0x8000, "minus zero"},
		{0x3f800000, 0x3f80, "one"},
		{0xc0490fdb, 0xc049, "minus pi"},
		{0x3f807fff, 0x3f80, "below a tie"},
		{0x3f808000, 0x3f80, "a tie, even below"},
		{0x3f808001, 0x3f81, "above a tie"},
		{0x3f818000, 0x3f82, "a tie, even above"},
		{0xbf818000, 0xbf82, "a negative tie"},
		{0x3fffffff, 0x4000, "a carry into the exponent"},
		{0x7f7f7fff, 0x7f7f, "the last that stays finite"},
		{0x7f7f8000, 0x7f80, "the first that does not"},
		{0xff7fffff, 0xff80, "the lowest float32"},
		{0x7f800000, 0x7f80, "infinity"},
		{0xff800000, 0xff80, "minus infinity"},
		{0x7fc00000, 0x7fc0, "NaN"},
		{0x7f800001, 0x7fc0, "a NaN whose high half is infinity"},
		{0xffffffff, 0xffff, "a NaN that would overflow"},
		{0xff812345, 0xffc1, "a negative signalling NaN"},
		{0x00000001, 0x0000, "the smallest subnormal"},
		{0x00008000, 0x0000, "half of the smallest bfloat16"},
		{0x00008001, 0x0001, "more than half of it"},
		{0x80018000, 0x8002, "a subnormal tie"},
		{0x007fffff, 0x0080, "a subnormal that becomes normal"},
	} {
		if got := ToBFloat16(math.Float32frombits(c.in)); got != c.want {
			t.Errorf("%s, %#08x, is rounded to %#04x, want %#04x", c.what, c.in, got, c.want)
		}
	}
}

// TestBFloat16Values: every bfloat16 is itself again, and every float32 goes to the nearest as math/big rounds it.
func TestBFloat16Values(t *testing.T) {
	t.Parallel()
	for b := range uint32(1 << 16) {
		v := FromBFloat16(uint16(b))
		switch got := ToBFloat16(v); {
		case v != v:
			if w := FromBFloat16(got); w == w {
				t.Fatalf("NaN %#04x became %v", b, w)
			}
		case got != uint16(b):
			t.Fatalf("%#04x is %v and became %#04x", b, v, got)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	normal := 0
	for range 200_000 {
		v := math.Float32frombits(r.Uint32())
		if a := math.Abs(float64(v)); !(a >= 0x1p-126 && a < 0x1.ffp127) {
			continue
		}
		want, _ := new(big.Float).SetPrec(8).SetFloat64(float64(v)).Float32()
		if got := RoundBFloat16(v); got != want {
			t.Fatalf("%v is rounded to %v, want %v", v, got, want)
		}
		normal++
	}
	if normal < 150_000 {
		t.Errorf("only %d numbers compared", normal)
	}
}

// TestTypes: an output has the type of its inputs, which must agree; only the loss leaves it, and Cast.
func TestTypes(t *testing.T) {
	t.Parallel()
	image, other := F32(2, 4, 4, 6), F32(2, 4, 4, 6).As(BFloat16)
	for _, op := range everyOp {
		in := inputsOf(op, BFloat16)
		y, err := op.Infer(in)
		if err != nil {
			t.Errorf("%s of %v: %v", op.Kind(), in, err)
		}
		want := BFloat16
		switch op.(type) {
		case Cast, SoftmaxCrossEntropy, ElementLoss, Embedding:
			want = Float32
		}
		if y.DType != want {
			t.Errorf("%s of %v is %v", op.Kind(), in, y)
		}
	}
	for _, c := range []struct {
		op    Op
		in    []Desc
		field string
	}{
		{BatchNorm{Residual: true}, []Desc{image, other}, "X"},
		{Add{}, []Desc{other, image}, "X"},
		{Concat{}, []Desc{image, other}, "X"},
		{SoftmaxCrossEntropy{}, []Desc{F32(2, 6).As(BFloat16), F32(2).As(BFloat16)}, "X"},
		{ElementLoss{Of: MSE}, []Desc{other, other}, "X"},
		{Cast{To: Float32}, []Desc{image}, "To"},
		{Cast{To: BFloat16}, []Desc{other}, "To"},
		{Cast{To: Int32}, []Desc{image}, "To"},
		{Cast{To: 9}, []Desc{image}, "To"},
		{Cast{To: BFloat16}, []Desc{labels(3)}, "X"},
		{Cast{To: BFloat16}, []Desc{image, image}, "X"},
		{ReLU{}, []Desc{{Shape: Shape{3}, DType: 3}}, "X"},
		{Multiply{}, []Desc{image, other}, "X"},
	} {
		var e *OpError
		if _, err := c.op.Infer(c.in); !errors.As(err, &e) || e.Kind != c.op.Kind() || e.Field != c.field {
			t.Errorf("%+v of %v: %v; want an OpError about %s", c.op, c.in, err, c.field)
		}
	}
	for name, want := range map[string]DType{"float32": Float32, "bf16": BFloat16, "bfloat16": BFloat16} {
		if got, err := ParseFloat(name); got != want || err != nil {
			t.Errorf("%s is %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "int32", "float16", "dtype(3)"} {
		if _, err := ParseFloat(name); err == nil {
			t.Errorf("%q is a type", name)
		}
	}
}

// TestSizes: in bfloat16 a call's activations and their gradients have half the bytes; nothing else changes.
func TestSizes(t *testing.T) {
	t.Parallel()
	halved, kept := 0, 0
	for _, op := range everyOp {
		switch op.(type) {
		case Cast, Embedding: // their types are attributes
			continue
		}
		for _, pass := range passesOf(op) {
			uses := func(d DType) []Use {
				c := Call{Op: op, In: inputsOf(op, d), Pass: pass, Train: true, UpdateStats: true}
				return c.Uses(place(c, 64), 64)
			}
			wide, short := uses(Float32), uses(BFloat16)
			if len(wide) != len(short) {
				t.Fatalf("%s %v has %d operands, in bfloat16 %d", op.Kind(), pass, len(wide), len(short))
			}
			loss := IsLoss(op)
			for i, u := range wide {
				want := u.Bytes
				switch {
				case loss && (u.Role == Y || u.Operand == Operand{X, 1}):
				case u.Role == X, u.Role == DX, u.Role == Y, u.Role == DY:
					want /= 2
				}
				if short[i].Operand != u.Operand || short[i].Bytes != want {
					t.Errorf("%s %v: %v has %d bytes in bfloat16, want %d", op.Kind(), pass, u.Operand, short[i].Bytes, want)
				}
				if want < u.Bytes {
					halved++
				} else {
					kept++
				}
			}
		}
	}
	if halved < 50 || kept < 30 {
		t.Errorf("%d sizes are half, %d are the same: want at least 50 and 30", halved, kept)
	}
	c := Call{Op: Cast{To: BFloat16}, In: []Desc{F32(5)}, Pass: Backward}
	for _, u := range c.Uses(place(c, 0), 0) {
		if want := map[Role]int64{DX: 20, DY: 10}[u.Role]; u.Bytes != want {
			t.Errorf("the backward of a cast to bfloat16: %v has %d bytes, want %d", u.Operand, u.Bytes, want)
		}
	}
	if d := F32(3, 11).As(BFloat16); d.Bytes() != 66 || d.Storage() != 128 || d.String() != "bfloat16[3 11]" {
		t.Errorf("%v has %d bytes in %d", d, d.Bytes(), d.Storage())
	}
}
