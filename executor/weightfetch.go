package executor

import (
	"plimsoll/kernels"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// weightFetches says when the offloaded weights are in the arena while a sequence runs. Ops of one layer that follow each other
// share a fetch; the weights of the next one arrive in another slot meanwhile.
type weightFetches struct {
	slot  []int         // per op, the slot with its layer's weights; none for ops that need none
	wait  []bool        // per op, whether it is the first after an arrival in its slot
	first []weightFetch // before the first op
	then  [][]weightFetch
}

// weightFetch brings the weights of a layer, from 1, into a slot, which nothing else needs then.
type weightFetch struct{ layer, slot int }

// newWeightFetches plans the arrivals of a sequence: each as early as a slot is free. Beside the slot of the fetch before, which
// still computes, the slot is taken whose layer is needed last.
func newWeightFetches(need []int) *weightFetches {
	v := &weightFetches{slot: make([]int, len(need)), wait: make([]bool, len(need)), then: make([][]weightFetch, len(need))}
	var holds [weightSlots]int // the layer in each slot, 0 for none
	last := [weightSlots]int{} // the op that used each slot last
	for s := range last {
		last[s] = none
	}
	current := none
	for p, layer := range need {
		v.slot[p] = none
		if layer == 0 {
			continue
		}
		if current == none || holds[current] != layer {
			current = v.enter(p, need, &holds, current)
			if v.wait[p] {
				v.arrive(last[current], weightFetch{layer, current})
			}
		}
		v.slot[p], last[current] = current, p
	}
	return v
}

// enter returns the slot of the fetch that begins with op p.
func (v *weightFetches) enter(p int, need []int, holds *[weightSlots]int, current int) int {
	best, latest := none, -1
	for s, layer := range holds {
		if layer == need[p] {
			return s
		}
		if next := nextUse(need, p, layer); s != current && next > latest {
			best, latest = s, next
		}
	}
	holds[best], v.wait[p] = need[p], true
	return best
}

// nextUse returns the first op from p on that needs a layer's weights, the number of ops if none does.
func nextUse(need []int, p, layer int) int {
	for q := p; q < len(need); q++ {
		if layer != 0 && need[q] == layer {
			return q
		}
	}
	return len(need)
}

func (v *weightFetches) arrive(after int, a weightFetch) {
	if after == none {
		v.first = append(v.first, a)
		return
	}
	v.then[after] = append(v.then[after], a)
}

// each calls do for every arrival.
func (v *weightFetches) each(do func(weightFetch)) {
	for _, list := range append([][]weightFetch{v.first}, v.then...) {
		for _, a := range list {
			do(a)
		}
	}
}

// weightFetches plans the fetches of a sequence's ops; there are none unless weights are offloaded.
func (w *Workload) weightFetches(seq schedule.Sequence) *weightFetches {
	need := make([]int, len(seq))
	for p, op := range seq {
		if !op.Kind.Transfer() && w.Offloading() == OffloadWeights && w.Layers[op.Layer-1].GradBytes > 0 {
			need[p] = op.Layer
		}
	}
	return newWeightFetches(need)
}

// copyOf returns an arrival's copy.
func (h *hostState) copyOf(a weightFetch, bytes int64) (dst, src runtime.Span) {
	bytes = kernels.Align(bytes)
	return h.loaded[a.slot].Part(0, bytes), h.weights.Part(h.at[a.layer-1], bytes)
}
