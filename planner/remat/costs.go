package remat

import (
	"fmt"
	"math"
	"math/bits"

	"plimsoll/planner/chain"
)

// costs is a chain in the numbers that the dynamic programs add: integers, indexed as in the thesis. Sums of
// integers do not depend on the order of the terms. So equal makespans are equal, ties are seen as ties, and
// every program and every number of goroutines finds the same plan.
//
// A makespan is counted as the excess over the sum of all forwards and backwards, which no sequence avoids.
// Store-all's makespan is 0, and the excess of a split is at least the forwards that it repeats.
type costs struct {
	n           int
	nanoseconds bool // a tick is a nanosecond; else 2^exponent seconds
	exponent    int
	must        int64 // the forwards and backwards of all layers, ticks

	again []int64 // again[l]: forwards 1..l, saving nothing; ticks

	a, saved, grad []int64 // a_i, ā_i, δ_i, 0..n
	forwardOver    []int64 // o_F of forward_all, 1..n
	discardOver    []int64 // o_F of a forward that saves nothing, 1..n
	backwardOver   []int64 // o_B, 1..n
}

// MaxLayers bounds the tables of all programs, which have an entry for every two layers.
const MaxLayers = 4096

// newCosts validates a chain and converts it. Errors: those of chain.Validate, ErrTooLarge.
func newCosts(c *chain.Chain) (*costs, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	n := c.Len()
	if n > MaxLayers {
		return nil, fmt.Errorf("%w: %d layers with the loss, the limit is %d: group layers", ErrTooLarge, n, MaxLayers)
	}
	k := &costs{n: n, again: make([]int64, n+1)}
	ticks := k.clock(c)
	k.addSizes(0, c, nil)
	for l := 1; l <= n; l++ {
		layer := c.Layer(l)
		k.must += ticks(layer.ForwardS) + ticks(layer.BackwardS)
		k.again[l] = k.again[l-1] + ticks(layer.DiscardSeconds())
		k.addSizes(l, c, layer)
	}
	return k, nil
}

// addSizes appends the sizes of index i; layer is nil for i = 0.
func (k *costs) addSizes(i int, c *chain.Chain, layer *chain.Layer) {
	if layer == nil {
		layer = &chain.Layer{}
	}
	k.a = append(k.a, c.Activation(i))
	k.saved = append(k.saved, c.Saved(i))
	k.grad = append(k.grad, c.Gradient(i))
	k.forwardOver = append(k.forwardOver, layer.ForwardOverheadBytes)
	k.discardOver = append(k.discardOver, layer.DiscardOverhead())
	k.backwardOver = append(k.backwardOver, layer.BackwardOverheadBytes)
}

// largest bounds every excess in ticks, so that sums of three stay inside int64.
const largest = 1 << 58

// clock sets the unit and returns the conversion to it. The unit is a nanosecond when all times are whole ones
// (clocks count in them, and profiles are written in them). Else it is a power of two of a second, so small that
// rounding changes no makespan by more than a part in 2^40.
func (k *costs) clock(c *chain.Chain) func(seconds float64) int64 {
	longest, whole := 0.0, true
	for i := range c.Layers {
		layer := &c.Layers[i]
		for _, s := range []float64{layer.ForwardS, layer.BackwardS, layer.DiscardSeconds()} {
			longest = max(longest, s)
			whole = whole && wholeNanoseconds(s)
		}
	}
	terms := 3 * k.n * (k.n + 1) // no plan runs a forward more than n times
	if k.nanoseconds = whole && longest*1e9*float64(terms) < largest; k.nanoseconds {
		return func(s float64) int64 { return int64(math.Round(s * 1e9)) }
	}
	_, k.exponent = math.Frexp(longest)
	k.exponent += bits.Len(uint(terms)) - bits.Len(largest) + 1
	return func(s float64) int64 { return int64(math.Round(math.Ldexp(s, -k.exponent))) }
}

// wholeNanoseconds reports whether a time is a whole number of nanoseconds, up to the rounding of float64.
func wholeNanoseconds(s float64) bool {
	x := s * 1e9
	return math.Abs(x-math.Round(x)) <= x*0x1p-50
}

// seconds converts an excess to a makespan.
func (k *costs) seconds(excess int64) float64 {
	total := float64(k.must + excess)
	if k.nanoseconds {
		return total / 1e9 // rounds once: the float64 nearest to the exact value
	}
	return math.Ldexp(total, k.exponent)
}

// repeat returns the time of forwards s..x that save nothing, ticks.
func (k *costs) repeat(s, x int) int64 { return k.again[x] - k.again[s-1] }

// needAll returns m_all of thesis 2.3.3: what F^all_s and B_s need beside a_{s-1} when δ_t is stored.
func (k *costs) needAll(s, t int) int64 {
	return k.saved[s] + max(k.grad[t]+k.forwardOver[s], k.grad[s]+k.grad[s-1]+k.backwardOver[s])
}

// needFirst returns the bytes that F_s, saving nothing, needs beside a_{s-1} and δ_t.
func (k *costs) needFirst(s int) int64 { return k.a[s] + k.discardOver[s] }

// needNext returns the bytes that F_h, saving nothing, needs beside a_{s-1} and δ_t when it follows F_s, s < h.
func (k *costs) needNext(h int) int64 { return k.a[h-1] + k.a[h] + k.discardOver[h] }

// needs returns, at place(s, x), what the forwards s..x need beside a_{s-1} and the gradient.
func (k *costs) needs() []int64 {
	needs := make([]int64, k.n*(k.n+1)/2)
	for s := 1; s <= k.n; s++ {
		need := k.needFirst(s)
		for x := s; x <= k.n; x++ {
			if x > s {
				need = max(need, k.needNext(x))
			}
			needs[k.place(s, x)] = need
		}
	}
	return needs
}

// beside returns the memory beside a_0 under a limit that includes it; -1 when a_0 alone is over the limit.
func (k *costs) beside(limit int64) int64 {
	if limit < k.a[0] {
		return -1
	}
	return min(limit, 1<<62) - k.a[0] // the cap is far above every sum of sizes and leaves room to add to it
}

// most returns an amount beside a_0 from which on more memory gains nothing.
func (k *costs) most() (bytes int64) {
	var saved, other int64
	for l := 1; l <= k.n; l++ {
		saved += k.saved[l]
		other = max(other, k.a[l]+k.grad[l]+k.grad[l-1]+k.forwardOver[l]+k.discardOver[l]+k.backwardOver[l])
	}
	return saved + other
}

// besideInput returns the part of limit, the memory beside a_0, that is left beside a_{s-1}: the input of the chain
// stays to the end.
func (k *costs) besideInput(s int, limit int64) int64 {
	if s == 1 {
		return limit
	}
	return limit - k.a[s-1]
}

// timeless returns the same chain with all times 0: its plans answer what fits, whatever it takes.
func (k *costs) timeless() *costs {
	z := *k
	z.must, z.again = 0, make([]int64, k.n+1)
	return &z
}

// longRefusal is the longest chain whose refusals name the op that binds in the fastest sequence of the smallest limit. To find that
// takes longest of all limits; in longer chains it is the op that binds in any sequence that fits there.
const longRefusal = 256

// refused returns the costs with which the sequence of a refusal is made.
func (k *costs) refused() *costs {
	if k.n > longRefusal {
		return k.timeless()
	}
	return k
}
