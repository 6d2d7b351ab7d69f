package chain

import (
	"fmt"
	"slices"
)

// Group linearizes: it merges consecutive layers into one. lasts holds the last layer of every group, in
// increasing order and ending with n.
//
// An op of a merged layer stands for the ops of its members, run one after the other. A forward_checkpoint stands
// for the first member's forward_checkpoint and forward_discards of the others. A sequence of compute ops for the
// grouped chain that writes nothing twice can be carried out in this way. Its makespan and its peak are then at
// most those on the grouped chain. Times, weights and saved sets add up, output and gradient are those of the last
// member, and the overheads make the merged op's peak that of its members' ops:
//
//	forward_all ℓ       o_F = max over k of o_F(k) - Σ_{m>k} ā_m
//	forward_checkpoint  o   = max over k of o(k) + a_k - a_last, plus a_{k-1} for all but the first
//	backward            o_B = max over k of o_B(k) + δ_{k-1} - δ_{first-1} + δ_k - δ_last - Σ_{m>k} ā_m
//
// Gradients of weights, optimizer state and updates add up. Layers with tied weights stay groups of their own.
//
// (o(k): overhead of a forward that saves nothing.) An overhead cannot be negative, and a forward_discard costs
// what a forward_checkpoint does: there the peak of the grouped chain is an upper bound.
//
// Unknown fields of merged layers and other batch sizes are dropped, unknown fields of the chain and of groups of one layer are kept. Errors:
// ErrGroups, and those of Validate.
func Group(c *Chain, lasts []int) (*Chain, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if len(c.Branches) > 0 {
		return nil, fmt.Errorf("%w %v: layers of a model with branches", ErrGroups, lasts)
	}
	if n := c.Len(); len(lasts) == 0 || lasts[len(lasts)-1] != n {
		return nil, fmt.Errorf("%w %v: the last one must end with layer %d, the loss", ErrGroups, lasts, n)
	}
	out := *c
	out.Others = nil
	out.Layers = make([]Layer, len(lasts))
	first := 1
	for g, last := range lasts {
		if last < first {
			return nil, fmt.Errorf("%w %v: group %d ends before its first layer, %d", ErrGroups, lasts, g+1, first)
		}
		out.Layers[g] = group{c, first, last}.merge()
		first = last + 1
	}
	ties, err := c.groupTies(lasts)
	if err != nil {
		return nil, err
	}
	for _, t := range ties {
		out.Layers[t.layer-1].Update.WeightsOf = t.owner
	}
	return &out, out.Validate()
}

// GroupEvery merges every k consecutive layers (the last group may be smaller) and leaves the loss alone.
func GroupEvery(c *Chain, k int) (*Chain, error) {
	if k < 1 {
		return nil, fmt.Errorf("%w: %d layers in each", ErrGroups, k)
	}
	return Group(c, c.LastsOfEvery(k))
}

// LastsOfEvery returns the last layers of the groups of GroupEvery; k is at least 1.
func (c *Chain) LastsOfEvery(k int) (lasts []int) {
	for first := 1; first < c.Len(); first += min(k, c.Len()-first) {
		lasts = append(lasts, min(first+k-1, c.Len()-1))
	}
	return append(lasts, c.Len())
}

// group is some consecutive layers of a chain.
type group struct {
	*Chain
	first, last int
}

// merge returns the layer that stands for the group.
func (g group) merge() Layer {
	if g.first == g.last {
		return *g.Layer(g.first)
	}
	m := Layer{
		Name:                  g.Layer(g.first).Name + ".." + g.Layer(g.last).Name,
		OutputBytes:           g.Layer(g.last).OutputBytes,
		GradientBytes:         g.Layer(g.last).GradientBytes,
		ForwardOverheadBytes:  g.forwardOverhead(),
		BackwardOverheadBytes: g.backwardOverhead(),
	}
	var discard float64
	for l := g.first; l <= g.last; l++ {
		layer := g.Layer(l)
		m.ForwardS += layer.ForwardS
		m.BackwardS += layer.BackwardS
		m.SavedBytes += layer.SavedBytes
		m.WeightBytes += layer.WeightBytes
		m.UnroundedWeightBytes += layer.WideWeights()
		discard += layer.DiscardSeconds()
		if m.inner += layer.inner; l > g.first {
			m.inner += g.Activation(l - 1)
		}
	}
	if m.UnroundedWeightBytes == m.WeightBytes {
		m.UnroundedWeightBytes = 0
	}
	overhead := g.discardOverhead()
	m.DiscardForwardS, m.DiscardOverheadBytes = &discard, &overhead
	m.BackwardInputS = g.sum(func(l *Layer) *float64 { return l.BackwardInputS })
	m.BackwardWeightS = g.sum(func(l *Layer) *float64 { return l.BackwardWeightS })
	m.Update = g.mergeUpdate()
	m.ForwardBeside = g.beside(g.first, g.last, (*Layer).forwardBeside)
	m.BackwardBeside = g.beside(g.first, g.last, (*Layer).backwardBeside)
	return m
}

// sum adds up a time of the layers; nil when one of them does not know it.
func (g group) sum(time func(*Layer) *float64) *float64 {
	var sum float64
	for l := g.first; l <= g.last; l++ {
		t := time(g.Layer(l))
		if t == nil {
			return nil
		}
		sum += *t
	}
	return &sum
}

// forwardOverhead: while member k runs, the saved sets of the later ones are not yet there.
func (g group) forwardOverhead() (overhead int64) {
	var later int64 // Σ_{m>k} ā_m
	for k := g.last; k >= g.first; k-- {
		overhead = max(overhead, g.Layer(k).ForwardOverheadBytes-later)
		later += g.Saved(k)
	}
	return overhead
}

// discardOverhead: while member k runs, its input is there, but for the first member, whose input is the group's.
func (g group) discardOverhead() (overhead int64) {
	var input int64
	for k := g.first; k <= g.last; k++ {
		overhead = max(overhead, input+g.Activation(k)+g.Layer(k).DiscardOverhead()-g.Activation(g.last))
		input = g.Activation(k)
	}
	return overhead
}

// backwardOverhead: when member k runs, the saved sets of the later ones are gone and δ_last has become δ_k.
func (g group) backwardOverhead() (overhead int64) {
	var later int64 // Σ_{m>k} ā_m
	for k := g.last; k >= g.first; k-- {
		own := g.Layer(k).BackwardOverheadBytes + g.Gradient(k-1) - g.Gradient(g.first-1)
		overhead = max(overhead, own+g.Gradient(k)-g.Gradient(g.last)-later)
		later += g.Saved(k)
	}
	return overhead
}

// mergeUpdate returns the update of the layer that stands for the group, in which no layer is tied.
func (g group) mergeUpdate() (m Update) {
	var gradient int64
	var host float64
	hosted, said := true, false
	for l := g.first; l <= g.last; l++ {
		layer := g.Layer(l)
		u := &layer.Update
		gradient += layer.WeightGradient()
		said = said || u.GradientBytes != nil
		m.StateBytes += u.StateBytes
		m.DeviceS += u.DeviceS
		m.NormS += u.NormS
		switch {
		case u.HostS != nil:
			host += *u.HostS
		case layer.WeightGradient() > 0:
			hosted = false
		}
	}
	if said {
		m.GradientBytes = &gradient
	}
	if hosted && gradient > 0 {
		m.HostS = &host
	}
	return m
}

// tie is a layer and the layer whose weights it reads.
type tie struct{ layer, owner int }

// groupTies returns the ties of the layers as ties of groups, whose last layers are given. A tied layer and the layer whose weights it reads
// must each be a group of their own. Errors: ErrGroups.
func (c *Chain) groupTies(lasts []int) (ties []tie, err error) {
	alone := func(l int) (group int, ok bool) {
		group, ok = slices.BinarySearch(lasts, l)
		return group + 1, ok && (group == 0 && l == 1 || group > 0 && lasts[group-1] == l-1)
	}
	for i := range c.Layers {
		o := c.Layers[i].Update.WeightsOf
		if o == 0 {
			continue
		}
		layer, first := alone(i + 1)
		owner, second := alone(o)
		if !first || !second {
			return nil, fmt.Errorf("%w %v: layers %d and %d have the same weights, and each must be a group of its own", ErrGroups, lasts, o, i+1)
		}
		ties = append(ties, tie{layer, owner})
	}
	return ties, nil
}
