package chain

import (
	"fmt"
	"slices"
)

// Group linearizes: it merges consecutive layers into one. lasts holds the last layer of every group, in
// increasing order and ending with n.
//
// An op of a merged layer stands for the same op of its members, run one after the other (a forward_checkpoint
// for a forward_checkpoint of the first member and a forward_discard of the others). A sequence of compute ops for
// the grouped chain that writes nothing twice can be carried out that way, in the makespan and within the peak that
// it has on the grouped chain. Times, weights and saved sets add up, output and gradient are those of the last
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
		out.Layers[g] = c.merged(first, last)
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

// merged returns the layer that stands for layers first..last.
func (c *Chain) merged(first, last int) Layer {
	if first == last {
		return *c.Layer(first)
	}
	m := Layer{
		Name:                  c.Layer(first).Name + ".." + c.Layer(last).Name,
		OutputBytes:           c.Layer(last).OutputBytes,
		GradientBytes:         c.Layer(last).GradientBytes,
		ForwardOverheadBytes:  c.forwardOverhead(first, last),
		BackwardOverheadBytes: c.backwardOverhead(first, last),
	}
	var discard float64
	for l := first; l <= last; l++ {
		layer := c.Layer(l)
		m.ForwardS += layer.ForwardS
		m.BackwardS += layer.BackwardS
		m.SavedBytes += layer.SavedBytes
		m.WeightBytes += layer.WeightBytes
		m.UnroundedWeightBytes += layer.WideWeights()
		discard += layer.DiscardSeconds()
	}
	if m.UnroundedWeightBytes == m.WeightBytes {
		m.UnroundedWeightBytes = 0
	}
	overhead := c.discardOverhead(first, last)
	m.DiscardForwardS, m.DiscardOverheadBytes = &discard, &overhead
	m.BackwardInputS = c.sum(first, last, func(l *Layer) *float64 { return l.BackwardInputS })
	m.BackwardWeightS = c.sum(first, last, func(l *Layer) *float64 { return l.BackwardWeightS })
	m.Update = c.mergeUpdate(first, last)
	m.ForwardBeside = c.beside(first, last, (*Layer).forwardBeside)
	m.BackwardBeside = c.beside(first, last, (*Layer).backwardBeside)
	return m
}

// sum adds up a time of layers first..last; nil when one of them does not know it.
func (c *Chain) sum(first, last int, time func(*Layer) *float64) *float64 {
	var sum float64
	for l := first; l <= last; l++ {
		t := time(c.Layer(l))
		if t == nil {
			return nil
		}
		sum += *t
	}
	return &sum
}

// forwardOverhead: while member k runs, the saved sets of the later ones are not yet there.
func (c *Chain) forwardOverhead(first, last int) (overhead int64) {
	var later int64 // Σ_{m>k} ā_m
	for k := last; k >= first; k-- {
		overhead = max(overhead, c.Layer(k).ForwardOverheadBytes-later)
		later += c.Saved(k)
	}
	return overhead
}

// discardOverhead: while member k runs, its input is there, but for the first member, whose input is the group's.
func (c *Chain) discardOverhead(first, last int) (overhead int64) {
	var input int64
	for k := first; k <= last; k++ {
		overhead = max(overhead, input+c.Activation(k)+c.Layer(k).DiscardOverhead()-c.Activation(last))
		input = c.Activation(k)
	}
	return overhead
}

// backwardOverhead: when member k runs, the saved sets of the later ones are gone and δ_last has become δ_k.
func (c *Chain) backwardOverhead(first, last int) (overhead int64) {
	var later int64 // Σ_{m>k} ā_m
	for k := last; k >= first; k-- {
		own := c.Layer(k).BackwardOverheadBytes + c.Gradient(k-1) - c.Gradient(first-1)
		overhead = max(overhead, own+c.Gradient(k)-c.Gradient(last)-later)
		later += c.Saved(k)
	}
	return overhead
}

// mergeUpdate returns the update of the layer that stands for layers first..last, none of which is tied.
func (c *Chain) mergeUpdate(first, last int) (m Update) {
	var gradient int64
	var host float64
	hosted, said := true, false
	for l := first; l <= last; l++ {
		layer := c.Layer(l)
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
