package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"plimsoll/planner/chain"
)

// randomChain makes a chain of 1 to 6 layers. Times are small whole numbers or thirds, sizes small whole numbers;
// zeros are frequent, because ops of length 0 and empty tensors are where simulators differ. The bandwidth of the
// chain is the unit of its sizes, bytes or TiB.
func randomChain(rng *rand.Rand) *chain.Chain {
	scale := []int64{1, 1, 1, 1 << 40}[rng.IntN(4)]
	size := func(n int) int64 { return scale * int64(max(0, rng.IntN(n+2)-2)) }
	unit := []float64{1, 1, 1.0 / 3}[rng.IntN(3)]
	seconds := func() float64 { return float64(max(0, rng.IntN(8)-2)) * unit }
	overheads := rng.IntN(2) * 6
	c := &chain.Chain{Name: "random", InputBytes: size(8), Bandwidth: float64(scale)}
	for i := range 1 + rng.IntN(6) {
		l := chain.Layer{
			Name:                  fmt.Sprint("l", i+1),
			ForwardS:              seconds(),
			BackwardS:             seconds(),
			OutputBytes:           size(10),
			GradientBytes:         size(10),
			ForwardOverheadBytes:  size(overheads),
			BackwardOverheadBytes: size(overheads),
		}
		l.SavedBytes = l.OutputBytes + size(6)
		c.Layers = append(c.Layers, l)
	}
	return c
}

// author writes random sequences that keep the rules.
type author struct {
	rng       *rand.Rand
	c         *chain.Chain
	transfers bool
	r         replay
	seq       Sequence
}

// allowed reports whether the sequence may go on with op.
func (a *author) allowed(op Op) bool {
	err := a.r.judge(a.c, append(a.seq, op))
	var rule *RuleError
	return err == nil || errors.As(err, &rule) && rule.Index > len(a.seq)
}

func (a *author) try(kind Kind, layer int) bool {
	op := Op{kind, layer}
	if layer < 1 || layer > a.c.Len() || !a.allowed(op) {
		return false
	}
	a.seq = append(a.seq, op)
	return true
}

// wander appends random ops that are allowed, forwards in order more often than others.
func (a *author) wander(tries int) {
	layer := 1
	for range tries {
		switch k := Kind(a.rng.IntN(8)); {
		case k.Transfer() && a.transfers:
			a.try(k, 1+a.rng.IntN(a.c.Len()))
		case k <= ForwardDiscard:
			if a.rng.IntN(4) == 0 {
				layer = 1 + a.rng.IntN(a.c.Len())
			}
			if a.try(k, layer) {
				layer++
			}
		default:
			a.allowed(Op{Offload, 1}) // sets a.r.gradient()
			a.try(Backward, a.r.gradient())
		}
	}
}

// finish appends what is missing up to backward 1; false when the input is lost.
func (a *author) finish() bool {
	for a.r.judge(a.c, a.seq) != nil {
		g := a.r.gradient()
		done := a.try(Backward, g)
		for l := g; l >= 1 && !done; l-- {
			if a.transfers && a.rng.IntN(2) == 0 {
				a.try(Offload, l)
			}
			done = a.try(Prefetch, l) || a.try([]Kind{ForwardAll, ForwardAll, ForwardCheckpoint}[a.rng.IntN(3)], l)
		}
		if !done || len(a.seq) > 200 {
			return false
		}
	}
	return true
}

// randomSequence makes a sequence that mostly keeps the rules; every third is then changed at random places.
func randomSequence(rng *rand.Rand, c *chain.Chain, transfers bool) Sequence {
	a := &author{rng: rng, c: c, transfers: transfers}
	for range 5 {
		a.seq = nil
		if a.wander(rng.IntN(10 * c.Len())); a.finish() {
			break
		}
	}
	if rng.IntN(3) == 0 {
		for range 1 + rng.IntN(2) {
			a.seq = mutate(rng, a.seq, c.Len())
		}
	}
	return a.seq
}

// mutate removes, changes, doubles or swaps an op.
func mutate(rng *rand.Rand, seq Sequence, n int) Sequence {
	if len(seq) == 0 {
		return seq
	}
	out := append(Sequence(nil), seq...)
	i, j := rng.IntN(len(seq)), rng.IntN(len(seq))
	switch rng.IntN(5) {
	case 0:
		return append(out[:i], out[i+1:]...)
	case 1:
		out[i].Kind = Kind(rng.IntN(6))
	case 2:
		out[i].Layer = rng.IntN(n + 2)
	case 3:
		return append(out[:i+1], seq[i:]...)
	case 4:
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// randomLimits picks a bandwidth and a memory limit between one byte too little and the unlimited peak.
func randomLimits(rng *rand.Rand, c *chain.Chain, seq Sequence) Limits {
	link := Link{Bandwidth: c.Bandwidth * []float64{0.25, 0.5, 1, 2, 3, 7, 1e9}[rng.IntN(7)]}
	if rng.IntN(15) == 0 {
		link.Bandwidth = 0
	}
	r, err := Simulate(c, seq, Limits{Memory: NoLimit, Link: link})
	if err != nil || rng.IntN(4) == 0 {
		return Limits{Memory: NoLimit, Link: link}
	}
	least := r.Peak
	for least >= 0 && err == nil {
		least -= max(1, r.Peak/100)
		_, err = Simulate(c, seq, Limits{Memory: least, Link: link})
	}
	memory := least + rng.Int64N(r.Peak-least+1)
	if rng.IntN(2) == 0 {
		memory = least + max(1, r.Peak/100) // the tightest limit that works makes ops wait most
	}
	return Limits{Memory: max(0, memory), Link: link}
}
