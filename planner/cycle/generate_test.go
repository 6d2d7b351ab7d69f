package cycle

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// randomChain makes a chain of 1 to 5 layers with small whole sizes and small times, whole or in tenths. Zeros are frequent, because ops of
// length 0 and empty items are where simulators differ. No layer is frozen or tied, which the oracle judges by other rules.
func randomChain(rng *rand.Rand) *chain.Chain {
	size := func(n int) int64 { return int64(max(0, rng.IntN(n+2)-2)) }
	unit := []float64{1, 1, 10}[rng.IntN(3)]
	seconds := func() float64 { return float64(max(0, rng.IntN(8)-2)) / unit }
	overheads := rng.IntN(2) * 4
	c := &chain.Chain{Name: "random", InputBytes: size(5)}
	for i := range 1 + rng.IntN(5) {
		l := chain.Layer{Name: fmt.Sprint("l", i+1), ForwardS: seconds(), BackwardS: seconds(), OutputBytes: size(6), GradientBytes: size(6),
			ForwardOverheadBytes: size(overheads), BackwardOverheadBytes: size(overheads)}
		l.SavedBytes = l.OutputBytes + size(4)
		if rng.IntN(3) > 0 {
			l.WeightBytes = 1 + size(8)
			l.Update = chain.Update{StateBytes: size(12), DeviceS: seconds()}
			if rng.IntN(3) == 0 {
				gradient := 1 + size(6)
				l.Update.GradientBytes = &gradient
			}
			if host := seconds(); rng.IntN(5) > 0 {
				l.Update.HostS = &host
			}
		}
		c.Layers = append(c.Layers, l)
	}
	return c
}

// writer writes random plans that mostly keep the rules: first the ops of activations, then those of state into the gaps between them.
type writer struct {
	rng    *rand.Rand
	c      *chain.Chain
	base   Sequence
	placed []placed
}

// placed is an op in a gap: gap g is before op g of the base, and the gaps of the next step go on behind the last.
type placed struct {
	op    Op
	gap   int
	after float64 // among those of one gap
}

// activations writes the ops of one microbatch: segments that are kept, or recomputed from their input, which may go to the host.
func (w *writer) activations() (seq Sequence) {
	var backward Sequence
	add := func(to *Sequence, kind schedule.Kind, layer int) { *to = append(*to, Op{Kind: kind, Layer: layer}) }
	n := w.c.Len()
	for first := 1; first <= n; {
		last := min(n, first+w.rng.IntN(3))
		var back Sequence
		away := w.rng.IntN(5) == 0
		if away {
			add(&seq, schedule.Offload, first)
			add(&back, schedule.Prefetch, first)
		}
		recomputed := last < n && w.rng.IntN(3) == 0
		for l := first; l <= last; l++ {
			kind := schedule.ForwardAll
			if recomputed {
				add(&back, kind, l)
				kind = schedule.ForwardDiscard
				if l == first {
					kind = schedule.ForwardCheckpoint
				}
			}
			add(&seq, kind, l)
		}
		if away && !recomputed && first < last { // the input comes back as late as it may
			back = nil
		}
		for l := last; l >= first; l-- {
			if away && !recomputed && l == first && back == nil {
				add(&back, schedule.Prefetch, first)
			}
			add(&back, schedule.Backward, l)
		}
		backward = append(back, backward...)
		first = last + 1
	}
	return append(seq, backward...)
}

// interleave merges microbatches such that none overtakes the one before.
func (w *writer) interleave(count int) {
	one := w.activations()
	if count == 1 {
		w.base = one
		return
	}
	done := make([]int, count)
	serial := w.rng.IntN(2) == 0
	for len(w.base) < count*len(one) {
		m := w.rng.IntN(count)
		if serial {
			m = slices.IndexFunc(done, func(d int) bool { return d < len(one) })
		}
		for run := 1 + w.rng.IntN(3); run > 0 && done[m] < len(one) && (m == 0 || done[m-1] > done[m]); run-- {
			op := one[done[m]]
			op.Microbatch = m + 1
			w.base = append(w.base, op)
			done[m]++
		}
	}
}

// put places ops in gaps from first to last, in their order.
func (w *writer) put(layer, first, last int, kinds ...schedule.Kind) (gaps []int) {
	for range kinds {
		gap := first
		if last > first {
			gap += w.rng.IntN(last - first + 1)
		}
		gaps = append(gaps, gap)
	}
	if slices.Sort(gaps); w.rng.IntN(3) == 0 { // all at once
		for i := range gaps {
			gaps[i] = gaps[0]
		}
	}
	at := w.rng.Float64()
	for i, kind := range kinds {
		w.placed = append(w.placed, placed{Op{Kind: kind, Layer: layer}, gaps[i], at + float64(i)/100})
	}
	return gaps
}

// state writes the ops of the weights, gradient and state of a layer.
func (w *writer) state(layer int) {
	var uses []int
	last := 0
	for p, op := range w.base {
		if w.c.Owner(op.Layer) == layer && !op.Kind.Transfer() {
			uses = append(uses, p)
			if op.Kind == schedule.Backward {
				last = p
			}
		}
	}
	next := len(w.base) + uses[0]
	for i := 1; i < len(uses); i++ {
		if w.rng.IntN(6) == 0 {
			w.put(layer, uses[i-1]+1, uses[i], schedule.DropWeights, schedule.FetchWeights)
		}
	}
	if w.c.Layer(layer).Update.HostS != nil && w.rng.IntN(2) == 0 {
		w.put(layer, last+1, next, schedule.DropWeights, schedule.OffloadGradient, schedule.HostUpdate, schedule.FetchWeights)
		return
	}
	w.deviceUpdate(layer, last+1, next)
}

// deviceUpdate updates a layer on the device, in a gap from first to last.
func (w *writer) deviceUpdate(layer, first, last int) {
	end := last
	if w.rng.IntN(2) == 0 {
		end = min(last, first+2)
	}
	kinds := []schedule.Kind{schedule.Update}
	if w.rng.IntN(6) == 0 {
		kinds = []schedule.Kind{schedule.OffloadGradient, schedule.FetchGradient, schedule.Update}
	}
	if w.rng.IntN(6) == 0 {
		kinds = append([]schedule.Kind{schedule.DropWeights, schedule.FetchWeights}, kinds...)
	}
	moved := w.c.Layer(layer).Update.StateBytes > 0 && w.rng.IntN(2) == 0
	if moved {
		kinds = append([]schedule.Kind{schedule.FetchState}, kinds...)
	}
	gaps := w.put(layer, first, end, kinds...)
	updated := gaps[len(gaps)-1] + 1
	if updated > last {
		updated = last
	}
	if moved {
		w.put(layer, min(updated, gaps[0]+len(w.base)), min(gaps[0]+len(w.base), last), schedule.WriteState, schedule.DropState)
	}
	switch w.rng.IntN(4) {
	case 0:
		w.put(layer, updated, last, schedule.WriteWeights)
	case 1:
		w.put(layer, updated, last, schedule.WriteWeights, schedule.DropWeights, schedule.FetchWeights)
	}
}

// plan merges what was placed into the base.
func (w *writer) plan() (seq Sequence) {
	n := len(w.base)
	for i := range w.placed {
		p := &w.placed[i]
		if p.gap >= n {
			switch p.op.Kind {
			case schedule.Update, schedule.HostUpdate, schedule.OffloadGradient, schedule.FetchGradient:
				p.op.Prime = true
			}
			p.gap -= n
		} else if p.gap == n {
			p.gap = n
		}
	}
	slices.SortStableFunc(w.placed, func(a, b placed) int {
		switch {
		case a.gap != b.gap:
			return a.gap - b.gap
		case a.after < b.after:
			return -1
		}
		return 1
	})
	next := 0
	for gap := 0; gap <= n; gap++ {
		for ; next < len(w.placed) && w.placed[next].gap == gap; next++ {
			seq = append(seq, w.placed[next].op)
		}
		if gap < n {
			seq = append(seq, w.base[gap])
		}
	}
	return seq
}

// randomPlan writes a plan that mostly keeps the rules; every third is then changed at random places.
func randomPlan(rng *rand.Rand, s *Simulator, limits Limits) (seq Sequence) {
	c := s.ledger.c
	for range 8 {
		w := writer{rng: rng, c: c}
		w.interleave([]int{1, 1, 2, 3}[rng.IntN(4)])
		for l := 1; l <= c.Len(); l++ {
			if c.Layer(l).WeightBytes > 0 {
				w.state(l)
			}
		}
		if seq = w.plan(); s.Verify(seq, limits) == nil {
			break
		}
	}
	if rng.IntN(3) == 0 {
		for range 1 + rng.IntN(2) {
			seq = mutate(rng, seq, c.Len())
		}
	}
	return seq
}

// mutate removes, changes, doubles or swaps an op.
func mutate(rng *rand.Rand, seq Sequence, n int) Sequence {
	out := slices.Clone(seq)
	i, j := rng.IntN(len(seq)), rng.IntN(len(seq))
	op := &out[i]
	switch rng.IntN(7) {
	case 0:
		return slices.Delete(out, i, min(i+1, len(out)-1))
	case 1:
		op.Kind = schedule.Kind(rng.IntN(16))
		if op.Kind.OfState() {
			op.Microbatch = 0
		} else {
			op.Prime = false
		}
	case 2:
		op.Layer = 1 + rng.IntN(n)
	case 3:
		return slices.Insert(out, j, *op)
	case 4:
		out[i], out[j] = out[j], out[i]
	case 5:
		op.Prime = op.Kind.OfState() && !op.Prime
	case 6:
		if op.Microbatch > 0 {
			op.Microbatch = 1 + rng.IntN(3)
		}
	}
	return out
}

// randomTrial makes a plan and limits between too little and enough.
func randomTrial(rng *rand.Rand) trial {
	speed := func() float64 { return []float64{0.25, 0.4, 1, 1, 2, 3, 7, 1e9}[rng.IntN(8)] }
	k := trial{Chain: randomChain(rng), Up: speed(), Duplex: rng.IntN(2) == 0, Clip: rng.IntN(6) == 0}
	if k.Down = k.Up; rng.IntN(2) == 0 {
		k.Down = speed()
	}
	if rng.IntN(30) == 0 {
		k.Up, k.Down = 0, 0
	}
	s, err := NewSimulator(k.Chain, k.link())
	if err != nil {
		panic(err)
	}
	free := k.limits()
	seq := randomPlan(rng, s, free)
	k.Seq = seq.String()
	r, err := s.Run(seq, free)
	if err != nil {
		return k
	}
	if rng.IntN(4) > 0 {
		k.Memory = randomMemory(rng, s, seq, free, *r)
	}
	if rng.IntN(10) == 0 {
		host := max(0, r.HostPeak-int64(rng.IntN(2)))
		k.Host = &host
	}
	return k
}

// randomMemory returns a limit at which ops wait, mostly one that the plan keeps.
func randomMemory(rng *rand.Rand, s *Simulator, seq Sequence, limits Limits, free Result) *int64 {
	memory := free.Peak
	if rng.IntN(20) == 0 {
		memory = max(0, free.Resident-1)
		return &memory
	}
	for memory > free.Resident && rng.IntN(12) > 0 {
		limits.Memory = memory - 1
		if _, err := s.Run(seq, limits); err != nil && rng.IntN(4) > 0 {
			break
		}
		memory--
	}
	return &memory
}

// leastShares has, for each kind of trial, the number of trials of which at least one must be of that kind.
var leastShares = map[string]int{
	"valid": 4, "rule": 4, "deadlock": 30, "resident": 200, "host memory": 100, "no link": 100, "valid with microbatches": 12, "valid with host updates": 12,
	"valid with primes": 12, "valid with transfers": 30, "valid with recomputation": 12, "valid within a limit": 12, "valid with clipping": 60,
	"valid after a first step": 30, "waited for memory": 60,
}

// count adds a trial to the kinds that it belongs to.
func (k trial) count(count map[string]int, class string, v verdict) {
	count[trimOp(class)]++
	if class != "valid" {
		return
	}
	seq, _ := Parse(k.Seq)
	has := func(kind string, is func(Op) bool) {
		if slices.ContainsFunc(seq, is) {
			count["valid with "+kind]++
		}
	}
	has("microbatches", func(o Op) bool { return o.Microbatch > 1 })
	has("host updates", func(o Op) bool { return o.Kind == schedule.HostUpdate })
	has("primes", func(o Op) bool { return o.Prime })
	has("transfers", func(o Op) bool { return o.Kind.Transfer() })
	has("recomputation", func(o Op) bool { return o.Kind == schedule.ForwardCheckpoint })
	if v.WarmUp > 0 {
		count["valid after a first step"]++
	}
	if k.Clip {
		count["valid with clipping"]++
	}
	if k.Memory == nil {
		return
	}
	count["valid within a limit"]++
	free, err := Simulate(k.Chain, seq, k.link(), Limits{Memory: NoLimit, Host: NoLimit})
	if err == nil && (free.Peak > v.Peak) {
		count["waited for memory"]++
	}
}

// trimOp removes the position from a class.
func trimOp(class string) string {
	for _, kind := range []string{"rule", "no link"} {
		if len(class) > len(kind) && class[:len(kind)] == kind {
			return kind
		}
	}
	return class
}
