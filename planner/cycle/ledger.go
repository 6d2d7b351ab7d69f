package cycle

import "plimsoll/planner/chain"

// ledger replays a sequence in its order, twice: the second step is the pattern of all, because it looks back at a real one. It knows no
// time. For each op it writes down the ops that must have ended before, and the bytes.
type ledger struct {
	costs *costs
	c     *chain.Chain

	seq          Sequence
	updatesLast  bool
	lastBackward int // position
	step         int // that is replayed: 0, 1
	lastCompute  ref

	weights, states []resident // by owner; those of 0, the owner where there is none, stay absent
	gradients       []gradient // by layer
	users           [][]int    // by owner: the layers that add to gradients of its weights, its own first
	updates         []int      // by owner: in the sequence
	updated         []int      // by owner: the step whose gradient updated it last
	microbatches    []microbatch
	leaving         []int // microbatches with activations that the next compute op may still read

	tasks []task
	waits []ref // of all tasks
	frees []free
	homes int64 // bytes of the host for what moves or is updated there
}

func newLedger(c *chain.Chain, k *costs) ledger {
	n := c.Len() + 1
	l := ledger{costs: k, c: c, weights: make([]resident, n), states: make([]resident, n), gradients: make([]gradient, n),
		users: make([][]int, n), updates: make([]int, n), updated: make([]int, n)}
	for i := 1; i < n; i++ {
		layer, o := c.Layer(i), c.Owner(i)
		l.weights[i], l.states[i] = resident{word: "weights", layer: i}, resident{word: "state", layer: i}
		l.gradients[i] = gradient{layer: i, owner: o}
		if o == 0 {
			continue
		}
		if o == i {
			l.weights[i].bytes, l.states[i].bytes = layer.WeightBytes, layer.Update.StateBytes
		}
		if l.gradients[i].bytes = c.Layer(o).WeightGradient(); l.gradients[i].bytes > 0 {
			l.users[o] = append(l.users[o], i)
		}
	}
	return l
}

func (l *ledger) atEnd(reason string) error { return &RuleError{Index: len(l.seq), Reason: reason} }

// here names the op that is replayed.
func (l *ledger) here() ref { return ref(l.step*len(l.seq) + len(l.tasks) - 1) }

// wait lets the op that is replayed wait for others.
func (l *ledger) wait(refs ...ref) {
	for _, r := range refs {
		if r != none {
			l.waits = append(l.waits, r)
		}
	}
}

// addWaits lets ops wait for more than the rules say: see Limits.Waits. Drops take no time: nothing waits for one.
func (l *ledger) addWaits(all [][]int) {
	if all == nil {
		return
	}
	joined := make([]ref, 0, 2*len(l.waits))
	for p := range l.tasks {
		t := &l.tasks[p]
		begin := len(joined)
		joined = append(joined, l.waits[t.waits:t.waitsEnd]...)
		for _, at := range all[p] {
			if _, runs := StreamOf(l.seq[at].Kind); !runs {
				continue
			}
			if at < p {
				at += len(l.seq) // of this step
			}
			joined = append(joined, ref(at))
		}
		t.waits, t.waitsEnd = int32(begin), int32(len(joined))
	}
	l.waits = joined
}

// computed notes that the op that is replayed is a compute op.
func (l *ledger) computed() {
	l.lastCompute = l.here()
	for _, m := range l.leaving {
		l.microbatches[m].rules.Leave()
	}
	l.leaving = l.leaving[:0]
}

// residentBytes returns the bytes of the device, and those of gradients on the host, when a step begins and nothing runs.
func (l *ledger) residentBytes() (device, host int64) {
	device = l.c.InputBytes * int64(len(l.microbatches))
	for _, all := range [...][]resident{l.weights, l.states} {
		for i := range all {
			if all[i].initial != absent {
				device += all[i].bytes
			}
		}
	}
	for i := range l.gradients {
		switch g := &l.gradients[i]; g.initial {
		case onDevice:
			device += g.bytes
		case onHost:
			host += g.bytes
		}
	}
	return device, host
}

// inOrderPeak returns the peak when every op runs alone, in the order of the sequence, in two steps.
func (l *ledger) inOrderPeak() int64 {
	used, _ := l.residentBytes()
	top := used
	freed := make([]int64, len(l.seq)) // by position of the last op that holds the bytes
	for _, f := range l.frees {
		last := int(max(f.holds[0], f.holds[1], f.holds[2]))
		if last < len(l.seq) { // of the step before, and before the first step all have ended
			used -= f.bytes
		}
		freed[last%len(l.seq)] += f.bytes
	}
	for range 2 {
		for p := range l.tasks {
			used += l.tasks[p].takes
			top = max(top, used)
			used += l.tasks[p].leaves - freed[p]
		}
	}
	return top
}
