package kernels

import "math/bits"

// Philox is the counter-based generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy
// as 1, 2, 3; SC 2011): four random words for each counter and key.
func Philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		high0, low0 := bits.Mul32(0xD2511F53, counter[0])
		high1, low1 := bits.Mul32(0xCD9E8D57, counter[2])
		counter = [4]uint32{high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}

// DropoutStream is the random stream of one dropout in one step. Every library draws the same: the words of
// elements 4i to 4i+3 are Philox(i, High; Key), i in the two low words of the counter.
type DropoutStream struct {
	High, Key uint64
}

// NewDropoutStream derives the stream from the step's scalars and the call's salt by two rounds of Philox.
func NewDropoutStream(s Scalars, salt uint64) DropoutStream {
	a := philox64(s.Step, s.Microbatch, s.Seed)
	b := philox64(salt, a[1], a[0])
	return DropoutStream{High: b[1], Key: b[0]}
}

// Word returns the random word of an element.
func (d DropoutStream) Word(element uint64) uint32 {
	words := philox64(element/4, d.High, d.Key)
	return uint32(words[element/2%2] >> (element % 2 * 32))
}

// philox64 is Philox on pairs of words, the low one first.
func philox64(low, high, key uint64) [2]uint64 {
	w := Philox([4]uint32{uint32(low), uint32(low >> 32), uint32(high), uint32(high >> 32)}, [2]uint32{uint32(key), uint32(key >> 32)})
	return [2]uint64{uint64(w[0]) | uint64(w[1])<<32, uint64(w[2]) | uint64(w[3])<<32}
}

// Threshold is the smallest word that keeps its element: a word is below it with probability P.
func (d Dropout) Threshold() uint32 { return uint32(float64(d.P) * (1 << 32)) }
