package pipeline

import (
	"encoding/binary"

	"plimsoll/internal/parallel"
	"plimsoll/kernels"
)

// widen converts bfloat16 in the second half of the memory of to. All processors convert at a time what they write below all that is still to be
// read.
func widen(to []float32, from []byte) {
	for begin, n := 0, len(to); begin < n; {
		end := (n + begin) / 2
		if n-begin < leastWidened {
			for i := begin; i < n; i++ {
				to[i] = kernels.FromBFloat16(binary.LittleEndian.Uint16(from[2*i:]))
			}
			return
		}
		parallel.Ranges(end-begin, leastWidened, func(first, last int) {
			for i := begin + first; i < begin+last; i++ {
				to[i] = kernels.FromBFloat16(binary.LittleEndian.Uint16(from[2*i:]))
			}
		})
		begin = end
	}
}

// leastWidened are so many numbers that a goroutine for them is worth its start.
const leastWidened = 1 << 16
