package kernels

import "math"

// ToBFloat16 returns the bits of the bfloat16 nearest to f; a tie goes to the one whose last bit is 0. A value beyond
// the largest bfloat16 becomes infinite; a NaN stays a NaN, quiet, with its sign.
func ToBFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	if f != f {
		return uint16(bits>>16) | 0x40 // the payload's high bits alone could be those of an infinity
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// FromBFloat16 returns the float32 that the bits of a bfloat16 stand for: it has them all.
func FromBFloat16(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

// RoundBFloat16 returns the bfloat16 nearest to f as a float32.
func RoundBFloat16(f float32) float32 { return FromBFloat16(ToBFloat16(f)) }
