package auto

import (
	"math/rand/v2"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

const (
	tries  = 2000 // random changes until one runs
	edits  = 4    // at most, in one random change
	slower = 1.25 // what a change may cost at first
)

// kicker changes a sequence at random, so that local moves can leave a place where none of them helps. Its seed makes it
// repeatable.
type kicker struct {
	rnd    *rand.Rand
	sim    *schedule.Simulator
	limits schedule.Limits
	layers int
	buffer schedule.Sequence
}

func newKicker(c *chain.Chain, limits schedule.Limits, seed uint64) (*kicker, error) {
	sim, err := schedule.NewSimulator(c)
	if err != nil {
		return nil, err
	}
	return &kicker{rnd: rand.New(rand.NewPCG(seed, 0)), sim: sim, limits: limits, layers: c.Len()}, nil
}

// kick returns a changed sequence that runs and is not much slower than so many seconds; nil when it finds none. It
// is valid until the next call. used is the number of simulations.
func (k *kicker) kick(seq schedule.Sequence, makespan float64) (changed schedule.Sequence, used int) {
	for used < tries {
		k.buffer = append(k.buffer[:0], seq...)
		for range 1 + k.rnd.IntN(edits) {
			k.buffer = k.edit(k.buffer)
		}
		k.buffer = trimmed(k.buffer)
		used++
		if r, err := k.sim.Run(k.buffer, k.limits); err == nil && r.Makespan <= makespan*slower && !slices.Equal(k.buffer, seq) {
			return k.buffer, used
		}
	}
	return nil, used
}

// trimmed leaves out what stands behind the last backward.
func trimmed(seq schedule.Sequence) schedule.Sequence {
	for len(seq) > 0 && seq[len(seq)-1].Kind != schedule.Backward {
		seq = seq[:len(seq)-1]
	}
	return seq
}

// edit makes one change; many break a rule.
func (k *kicker) edit(seq schedule.Sequence) schedule.Sequence {
	p := k.rnd.IntN(len(seq))
	op := seq[p]
	switch choice := k.rnd.IntN(4); {
	case choice == 0 && k.limits.Link.Bandwidth > 0:
		return k.insertPair(seq)
	case choice == 1:
		return slices.Insert(seq, p, schedule.Op{Kind: k.forward(), Layer: 1 + k.rnd.IntN(k.layers)})
	case op.Kind == schedule.Backward:
		return seq
	case op.Kind == schedule.Offload && choice == 2:
		return dropPair(seq, p)
	case op.Kind.Transfer():
		return slices.Insert(slices.Delete(seq, p, p+1), k.rnd.IntN(len(seq)), op)
	case choice == 2:
		return slices.Delete(seq, p, p+1)
	}
	seq[p].Kind = k.forward()
	return seq
}

func (k *kicker) forward() schedule.Kind {
	return [...]schedule.Kind{schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.ForwardDiscard}[k.rnd.IntN(3)]
}

// insertPair offloads some activation and brings it back later.
func (k *kicker) insertPair(seq schedule.Sequence) schedule.Sequence {
	from, to, layer := k.rnd.IntN(len(seq)), k.rnd.IntN(len(seq)), 1+k.rnd.IntN(k.layers)
	seq = slices.Insert(seq, max(from, to), schedule.Op{Kind: schedule.Prefetch, Layer: layer})
	return slices.Insert(seq, min(from, to), schedule.Op{Kind: schedule.Offload, Layer: layer})
}

// dropPair leaves out an offload and the next prefetch of its activation.
func dropPair(seq schedule.Sequence, p int) schedule.Sequence {
	back := schedule.Op{Kind: schedule.Prefetch, Layer: seq[p].Layer}
	if q := slices.Index(seq[p:], back); q > 0 {
		seq = slices.Delete(seq, p+q, p+q+1)
	}
	return slices.Delete(seq, p, p+1)
}
