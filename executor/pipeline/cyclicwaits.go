package pipeline

import (
	"slices"

	"plimsoll/executor/internal/stageops"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// accesses returns the bytes that the op at a position reads and writes.
func (c *cyclicStage) accesses(t *localStage, position int) (all []memoryAccess) {
	o := &c.ops[position]
	s := &c.layers[o.Layer-1]
	add := func(write bool, spans ...runtime.Span) {
		for _, x := range spans {
			if x.Bytes > 0 {
				all = append(all, memoryAccess{x, write})
			}
		}
	}
	switch o.Kind {
	case schedule.Update:
		add(true, s.weights.at(position), s.state.at(position), s.scalars)
		add(true, c.gradientsAt(t, position)...)
	case schedule.HostUpdate:
		add(true, s.weightHome, s.stateHome, c.workspace)
		if c.guard != nil {
			add(false, c.guard.verdict)
		}
		add(true, c.gradientsAt(t, position)...)
	default:
		if o.op != nil {
			c.activations(t, position, add)
			break
		}
		dst, src := c.copied(o, position)
		add(true, dst)
		add(false, src)
	}
	return all
}

// activations adds what an op of activations reads and writes.
func (c *cyclicStage) activations(t *localStage, position int, add func(write bool, spans ...runtime.Span)) {
	o, x := &c.ops[position], c.ops[position].op
	s, sb := &c.layers[o.Layer-1], &t.slabs[o.microbatch]
	at := &frame{}
	if x.Program == nil {
		add(o.Kind == schedule.Offload, sb.hostCopies[x.Host])
		if o.begins { // compute brings the batch, and is behind this op's stream then
			add(false, append(slices.Clone(sb.images), sb.scalars, sb.labels)...)
		}
	} else {
		add(o.begins, append(slices.Clone(sb.images), sb.scalars, sb.labels)...)
		if s.weightBytes > 0 {
			add(o.updatesOwn && s.ties, s.weights.at(position))
		}
		for _, q := range t.layers[o.Layer-1].ties {
			add(false, c.layers[q.Of.Layer-1].weights.at(position))
		}
		if x.Gradients {
			add(true, s.gradient.at(position), o.wide)
		}
		if o.Kind == schedule.Backward {
			c.guardAccesses(t, position, add)
		}
	}
	add(false, span(&x.Input, sb, at))
	for _, b := range []*stageops.Block{&x.Output, &x.GradOutput, &x.GradInput, &x.Scratch, &x.Kept} {
		add(true, span(b, sb, at))
	}
}

// depend finds what each op waits for.
func (c *cyclicStage) depend(t *localStage) {
	accessed := make([][][]memoryAccess, len(c.ops))
	for p := range c.ops {
		if c.ops[p].works() {
			accessed[p] = [][]memoryAccess{c.accesses(t, p)}
		}
	}
	const rounds = 3 // when the first has passed, every step is like the one before
	h := newDependencies(int(links))
	for range rounds {
		for p := range c.ops {
			o := &c.ops[p]
			if !o.works() {
				continue
			}
			o.waits = o.waits[:0]
			for _, w := range h.add(stepRef{p, 0}, o.on, accessed, o.on != onCompute) {
				o.waits = append(o.waits, w.step)
			}
		}
	}
}
