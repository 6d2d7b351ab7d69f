package pipeline

import (
	"slices"

	"plimsoll/planner/chain"
)

// portals checks the portals: each passes a stage, there is one for two stages, and what passes a boundary is part of its activation.
func (a *arranger) portals() {
	n := len(a.plan.Stages)
	for i, p := range a.plan.Portals {
		switch {
		case p.From < 0 || p.To >= n || p.To < p.From+2:
			a.broken.stage("portal %d goes from stage %d to stage %d of %d: it must pass a stage", i, p.From, p.To, n)
			return
		case p.Bytes < 1:
			a.broken.stage("portal %d carries %d bytes", i, p.Bytes)
		case slices.ContainsFunc(a.plan.Portals[:i], func(q Portal) bool { return q.From == p.From && q.To == p.To }):
			a.broken.stage("portal %d: a second one from stage %d to stage %d", i, p.From, p.To)
		}
	}
	for s := range n - 1 {
		last := a.plan.Stages[s].Last
		for _, bytes := range []int64{a.chain.Activation(last), a.chain.Gradient(last)} {
			if passing := a.passing(s); passing > bytes {
				a.broken.stage("portals let %d bytes pass the boundary behind stage %d, whose message has %d", passing, s, bytes)
				return
			}
		}
	}
}

// held returns the bytes that a live minibatch holds in a stage, without skips that pass it by a portal. Each of its
// activations would have these.
func (l *layout) held(costs *Costs, s int) int64 {
	st := l.plan.Stages[s]
	bytes, activations := costs.Held(st.First, st.Last, l.plan.Accounting), int64(st.Len())
	if l.plan.Accounting == Saved {
		activations++
	}
	for _, p := range l.plan.Portals {
		if p.From < s && s < p.To {
			bytes -= activations * p.Bytes
		}
	}
	return bytes
}

// inside returns the chain as the ops of a stage have it, and the bytes of a minibatch's skips that lie beside them from its forward to
// its backward. Activations of a stage that a portal passes lack its skips. The input of a stage at which a portal ends comes without
// the skips, so that they do not go to the host with the input.
func (a *arranger) inside(s int) (own *chain.Chain, beside int64) {
	passed, brought := int64(0), int64(0)
	for _, p := range a.plan.Portals {
		switch {
		case p.From < s && s < p.To:
			passed += p.Bytes
		case p.To == s:
			brought += p.Bytes
		}
	}
	if passed+brought == 0 {
		return a.chain, 0
	}
	own, st := new(*a.chain), a.plan.Stages[s]
	own.Layers = slices.Clone(own.Layers)
	without(own, st.First-1, passed+brought)
	for i := st.First; i <= st.Last; i++ {
		without(own, i, passed)
	}
	return own, brought
}

// without takes bytes off an activation.
func without(c *chain.Chain, i int, bytes int64) {
	layer := c.Layer(i)
	for _, x := range []*int64{&layer.OutputBytes, &layer.GradientBytes, &layer.SavedBytes} {
		*x = max(0, *x-bytes)
	}
}

// Straight returns the chain as a strategy sees it that plans for stages with portals: messages between the stages without
// what passes by portals. It is good for these stages alone.
func Straight(c *chain.Chain, stages []Stage, portals []Portal) *chain.Chain {
	out := *c
	out.Layers = slices.Clone(c.Layers)
	for s := range len(stages) - 1 {
		l := out.Layer(stages[s].Last)
		l.OutputBytes -= passing(portals, s)
		l.GradientBytes -= passing(portals, s)
	}
	return &out
}
