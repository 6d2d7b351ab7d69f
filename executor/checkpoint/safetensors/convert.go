package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
)

// toFloat32 converts elements; on an error it returns which one has no float32.
func toFloat32(d DType, raw []byte, dst []float32) (at int, err error) {
	le := binary.LittleEndian
	switch d {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(raw[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = fromHalf(le.Uint16(raw[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le.Uint16(raw[2*i:])) << 16)
		}
	case F64:
		return each(dst, func(i int) (float32, error) { return fromDouble(math.Float64frombits(le.Uint64(raw[8*i:]))) })
	case I64:
		return each(dst, func(i int) (float32, error) { return fromInt(int64(le.Uint64(raw[8*i:]))) })
	case I32:
		return each(dst, func(i int) (float32, error) { return fromInt(int64(int32(le.Uint32(raw[4*i:])))) })
	case U8:
		for i := range dst {
			dst[i] = float32(raw[i])
		}
	}
	return 0, nil
}

func each(dst []float32, convert func(int) (float32, error)) (at int, err error) {
	for i := range dst {
		if dst[i], err = convert(i); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// fromHalf returns the same number (IEEE 754-2019, binary16: 1 sign, 5 exponent and 10 fraction bits).
func fromHalf(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1F), uint32(h&0x3FF)
	switch exponent {
	case 0: // zero and subnormals: fraction * 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1F:
		return math.Float32frombits(sign | 0xFF<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

func fromDouble(x float64) (float32, error) {
	y := float32(x)
	if math.IsInf(float64(y), 0) && !math.IsInf(x, 0) {
		return 0, fmt.Errorf("is %g, too large for float32", x)
	}
	return y, nil
}

func fromInt(n int64) (float32, error) {
	x := float32(n)
	if x >= 1<<63 || int64(x) != n {
		return 0, fmt.Errorf("is %d, which is no float32", n)
	}
	return x, nil
}
