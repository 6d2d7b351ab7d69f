package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
)

func dropped(t *testing.T, s kernels.Scalars, salt uint64, p float32) []float32 {
	t.Helper()
	c := kernels.Call{Op: kernels.Dropout{P: p}, In: []kernels.Desc{kernels.F32(100_003)}, Train: true, Salt: salt}
	ones := make([]float32, c.In[0].Elements())
	for i := range ones {
		ones[i] = 1
	}
	return run(t, newLibrary(t, Paths()[len(Paths())-1], 2), c, data{opX: ones, operand(kernels.ScalarsRole, 0): scalars(s)})[opY]
}

func share(v []float32, of func(i int) bool) float64 {
	n := 0
	for i := range v {
		if of(i) {
			n++
		}
	}
	return float64(n) / float64(len(v))
}

// TestDropoutStatistics: the share that is kept, and of equal neighbours, is what independent draws give, within
// five standard deviations; kept elements are scaled so that the mean stays.
func TestDropoutStatistics(t *testing.T) {
	t.Parallel()
	for _, p := range []float32{0, 0.1, 0.5, 0.9} {
		y := dropped(t, kernels.Scalars{Seed: 5}, 1, p)
		keep := 1 - float64(p)
		near := func(what string, got, want float64) {
			if sd := math.Sqrt(want * (1 - want) / float64(len(y))); math.Abs(got-want) > 5*sd {
				t.Errorf("p=%v: %s: %v, want %v within %v", p, what, got, want, 5*sd)
			}
		}
		near("kept", share(y, func(i int) bool { return y[i] != 0 }), keep)
		for _, distance := range []int{1, 2, 3, 4, 8, 64} {
			near("kept together", share(y[distance:], func(i int) bool { return y[i] != 0 && y[i+distance] != 0 }), keep*keep)
		}
		for _, v := range y {
			if v != 0 && math.Abs(float64(v)*keep-1) > 1e-6 {
				t.Fatalf("p=%v: a kept 1 becomes %v, want %v", p, v, 1/keep)
			}
		}
	}
}

// TestDropoutKeys: seed, step, microbatch and salt each change the mask; the same four repeat it.
func TestDropoutKeys(t *testing.T) {
	t.Parallel()
	base := kernels.Scalars{Seed: 7, Step: 3, Microbatch: 2}
	first := dropped(t, base, 9, 0.5)
	same := func(v []float32) float64 { return share(first, func(i int) bool { return v[i] == first[i] }) }
	if s := same(dropped(t, base, 9, 0.5)); s != 1 {
		t.Errorf("a repetition agrees in %v of the elements, want all", s)
	}
	others := map[string][]float32{
		"seed":       dropped(t, kernels.Scalars{Seed: 8, Step: 3, Microbatch: 2}, 9, 0.5),
		"seed high":  dropped(t, kernels.Scalars{Seed: 7 + 1<<32, Step: 3, Microbatch: 2}, 9, 0.5),
		"step":       dropped(t, kernels.Scalars{Seed: 7, Step: 4, Microbatch: 2}, 9, 0.5),
		"microbatch": dropped(t, kernels.Scalars{Seed: 7, Step: 3, Microbatch: 1}, 9, 0.5),
		"swapped":    dropped(t, kernels.Scalars{Seed: 7, Step: 2, Microbatch: 3}, 9, 0.5),
		"salt":       dropped(t, base, 10, 0.5),
		"salt high":  dropped(t, base, 9+1<<32, 0.5),
	}
	for name, v := range others {
		if s := same(v); math.Abs(s-0.5) > 0.01 {
			t.Errorf("another %s agrees in %v of the elements, want a half", name, s)
		}
	}
}

// TestDropoutBackward: backward drops exactly what forward dropped, for sizes around the generator's four words.
func TestDropoutBackward(t *testing.T) {
	t.Parallel()
	for n := 1; n < 70; n++ {
		c := kernels.Call{Op: kernels.Dropout{P: 0.5}, In: []kernels.Desc{kernels.F32(n)}, Train: true}
		in := randomInputs(rand.New(rand.NewPCG(4, uint64(n))), c)
		in[opDY] = in[opX]
		l := newLibrary(t, Plain, 1)
		y := run(t, l, c, in)[opY]
		c.Pass = kernels.Backward
		sameBits(t, "backward", data{opY: run(t, l, c, in)[opDX]}, data{opY: y})
	}
}

// TestDropoutThreshold: a word that is exactly P*2^32 keeps its element, one below it does not.
func TestDropoutThreshold(t *testing.T) {
	t.Parallel()
	s := kernels.Scalars{Seed: 11}
	stream := kernels.NewDropoutStream(s, 1)
	tried := 0
	for e := range uint64(20_000) {
		word := stream.Word(e)
		if word&0xFF != 0 { // not a float32 times 2^32
			continue
		}
		p := float32(word) / (1 << 32)
		if dropped(t, s, 1, p)[e] == 0 || dropped(t, s, 1, math.Nextafter32(p, 1))[e] != 0 {
			t.Errorf("element %d with word %#x is not kept up to p=%v", e, word, p)
		}
		if tried++; tried == 3 {
			return
		}
	}
	t.Errorf("found %d words, want 3", tried)
}
