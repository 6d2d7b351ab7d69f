package kernels

import "math"

// RoundTF32 returns the number with 10 bits of fraction nearest to f, as the PTX instruction cvt.rna.tf32.f32 does. A
// tie goes to the number further from zero. A value beyond the largest number becomes infinite; a NaN stays a NaN,
// quiet.
func RoundTF32(f float32) float32 {
	bits := math.Float32bits(f)
	if f != f {
		bits |= 1 << 22 // the payload's high bits alone could be those of an infinity
	} else {
		bits += 1 << 12
	}
	return math.Float32frombits(bits &^ (1<<13 - 1))
}

// InTF32 returns a Conv2D, ConvTranspose2D or Linear in float32 that rounds both factors of each product with RoundTF32: X and the weight,
// the weight and DY, DY and X. Sums, among them the bias's gradient, are those of float32. Of an Attention in float32 it returns one that may
// round so: where a library has no faster products for it, they are those of float32. Other ops are returned as they are: they have no
// products of this kind.
func InTF32(op Op) Op {
	if f, ok := op.(factors); ok {
		return f.inTF32()
	}
	return op
}

// factors is implemented by ops whose products may be in TF32.
type factors interface {
	inTF32() Op
	usesTF32() bool
}

// UsesTF32 reports whether an op is one that InTF32 has changed.
func UsesTF32(op Op) bool {
	f, ok := op.(factors)
	return ok && f.usesTF32()
}
