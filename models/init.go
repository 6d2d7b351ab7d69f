package models

import (
	"cmp"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
)

// Init fills dst, the elements of p, with the initial values of p. They come from Fill, or else depend on the seed and the
// parameter's name alone: the same bits on every machine.
func Init(p Parameter, seed uint64, dst []float32) {
	if p.Fill != nil {
		p.Fill(dst)
		return
	}
	h := fnv.New64a()
	h.Write([]byte(p.Name))
	r := rand.NewPCG(seed, h.Sum64())
	scale := cmp.Or(p.StartScale, 1)
	switch p.Start {
	case Zeros:
		fill(dst, func() float64 { return 0 })
	case Ones:
		fill(dst, func() float64 { return 1 })
	case KaimingFanIn:
		drawNormals(dst, r, math.Sqrt(2/float64(p.FanIn))*scale)
	case KaimingFanOut:
		drawNormals(dst, r, math.Sqrt(2/float64(p.FanOut))*scale)
	case NormalTenth:
		drawNormals(dst, r, 0.1*scale)
	case NormalFiftieth:
		drawNormals(dst, r, 0.02*scale)
	case NormalHundredth:
		drawNormals(dst, r, 0.01*scale)
	case UniformFanIn:
		bound := scale / math.Sqrt(float64(p.FanIn))
		fill(dst, func() float64 { return (2*uniform(r) - 1) * bound })
	}
}

func fill(dst []float32, next func() float64) {
	for i := range dst {
		dst[i] = float32(next())
	}
}

// normalBlock is how many numbers of a tensor a processor draws at a time. It is even, as they come in pairs.
const normalBlock = 1 << 16

// drawNormals fills dst with normal numbers with mean 0, those of one source in its order, on all processors: the source runs ahead of them
// from block to block.
func drawNormals(dst []float32, r *rand.PCG, deviation float64) {
	var all sync.WaitGroup
	for len(dst) > normalBlock {
		block, from := dst[:normalBlock], *r
		all.Go(func() { fill(block, normal(&from, deviation)) })
		for range normalBlock / 2 {
			pair(r)
		}
		dst = dst[normalBlock:]
	}
	fill(dst, normal(r, deviation))
	all.Wait()
}

// uniform returns a number in (0, 1).
func uniform(r *rand.PCG) float64 { return (float64(r.Uint64()>>11) + 0.5) * 0x1p-53 }

// normal returns a source of normal numbers with mean 0 (the polar method, Marsaglia and Bray 1964). The conversions
// keep a compiler from fusing products into sums, which would change bits from one machine to the next.
func normal(r *rand.PCG, deviation float64) func() float64 {
	var spare float64
	var have bool
	return func() float64 {
		if have {
			have = false
			return spare
		}
		u, v, s := pair(r)
		f := deviation * math.Sqrt(-2*ln(s)/s)
		spare, have = v*f, true
		return u * f
	}
}

// pair returns a point within the unit circle, and the square of its distance from the middle.
func pair(r *rand.PCG) (u, v, square float64) {
	for {
		u, v = 2*uniform(r)-1, 2*uniform(r)-1
		if square = float64(u*u) + float64(v*v); square < 1 {
			return u, v, square
		}
	}
}

// ln is the natural logarithm for 0 < x < 1, to about 1e-15, from operations that every machine rounds alike:
// ln(m 2^e) = e ln 2 + 2 artanh((m-1)/(m+1)).
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	z := (m - 1) / (m + 1)
	square, term, sum := z*z, z, 0.0
	for k := 1.0; k < 24; k += 2 {
		sum += float64(term / k)
		term = float64(term * square)
	}
	return float64(float64(e)*math.Ln2) + float64(2*sum)
}
