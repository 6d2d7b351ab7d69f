package data

import (
	"math/bits"
	"math/rand/v2"
)

// Keys keep the random streams of different uses apart.
const (
	orderKey = iota + 1
	classKey
	sampleKey
	splitKey
	pairKey
	windowKey
	centerKey
	clozeKey
)

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014):
// a bijection of 64-bit words in which every input bit moves every output bit.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// golden is 2^64 divided by the golden ratio, the increment of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// hash combines a seed, a key and a number; for a given seed and key, different numbers give different hashes.
func hash(seed, key, n uint64) uint64 {
	return mix(mix(mix(seed+golden)^key*golden) + n*golden)
}

// stream seeds the generator of one sample. Seeds of different samples or splits differ in the second word, so
// that no two samples of a data set, training or test, share a stream.
func stream(r *rand.PCG, seed uint64, split Split, index int64) {
	r.Seed(hash(seed, sampleKey, uint64(split)), mix(uint64(index)<<1|uint64(split)))
}

// uniform returns a number in [lo, hi) with 53 random bits. The conversion keeps compilers from fusing the
// product with the sum, so that every platform draws the same number.
func uniform(r *rand.PCG, lo, hi float64) float64 {
	u := float64(r.Uint64()>>11) / (1 << 53)
	return lo + float64(u*(hi-lo))
}

// below returns a whole number in [0, n), for n below 2^32.
func below(r *rand.PCG, n int) int { return int(r.Uint64() >> 32 * uint64(n) >> 32) }

// permutation is a keyed bijection of 0..n-1 that needs no memory (Black, Rogaway: Ciphers with arbitrary finite
// domains, 2002). It is a balanced Feistel network over the smallest even number of bits that holds n, walked
// until it lands below n. The walk takes less than 4 rounds of the network on average.
type permutation struct {
	n    uint64
	key  uint64
	half uint // bits of each half
}

func newPermutation(n, key uint64) permutation {
	return permutation{n, key, max(1, uint(bits.Len64(n-1)+1)/2)}
}

// at returns where the permutation takes i < n.
func (p permutation) at(i uint64) uint64 {
	for i = p.network(i); i >= p.n; i = p.network(i) {
	}
	return i
}

func (p permutation) network(x uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	left, right := x>>p.half, x&mask
	for round := range uint64(6) {
		left, right = right, left^hash(p.key, round, right)&mask
	}
	return left<<p.half | right
}
