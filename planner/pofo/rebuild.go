package pofo

import (
	"plimsoll/planner/improve"
	"plimsoll/planner/schedule"
)

// draft is a solution of the dynamic program: its compute ops, and which inputs are away between which of them.
type draft struct {
	compute schedule.Sequence
	gaps    []improve.Gap
	loss    int // position of F^all_n
}

// rebuild follows an ending back to the first layer.
func (g *forward) rebuild(e ending) draft {
	var choices []origin
	for s, x, i := g.n, bit(e.saved), e.index; s > 1; {
		from := g.states[x][s][i].from
		choices = append(choices, from)
		s, x, i = int(from.s), bit(from.saved), int(from.index)
	}
	d := draft{}
	leaves := make([]int, g.n+1) // position of the op before which the input of a layer leaves
	for k := len(choices) - 1; k >= 0; k-- {
		leaves[choices[k].s] = len(d.compute)
		d.begin(choices[k])
	}
	d.loss = len(d.compute)
	d.compute = append(d.compute, all(g.n), backward(g.n))
	for _, c := range choices {
		if c.offload {
			d.gaps = append(d.gaps, improve.Gap{Layer: int(c.s), From: leaves[c.s], To: len(d.compute)})
		}
		if c.t == 0 {
			d.compute = append(d.compute, backward(int(c.s)))
		} else {
			d.compute = g.segments.build(d.compute, int(c.s), int(c.t), int(c.part))
		}
	}
	return d
}

// begin appends the forwards of a choice.
func (d *draft) begin(c origin) {
	if c.t == 0 {
		d.compute = append(d.compute, all(int(c.s)))
	} else {
		d.compute = run(d.compute, int(c.s), int(c.t))
	}
}

// build appends a part of the segment (s, t).
func (g *segments) build(seq schedule.Sequence, s, t, index int) schedule.Sequence {
	p := g.at(s, t)[index]
	switch {
	case s == t:
		return append(seq, all(s), backward(s))
	case p.x == 0:
		return append(g.build(append(seq, all(s)), s+1, t, int(p.right)), backward(s))
	}
	seq = g.build(run(seq, s, int(p.x)), int(p.x)+1, t, int(p.right))
	return g.build(seq, s, int(p.x), int(p.left))
}

func all(l int) schedule.Op      { return schedule.Op{Kind: schedule.ForwardAll, Layer: l} }
func backward(l int) schedule.Op { return schedule.Op{Kind: schedule.Backward, Layer: l} }

// run appends F^ck_s, F^∅_{s+1}, ..., F^∅_x: a_{s-1} stays, a_x is new.
func run(seq schedule.Sequence, s, x int) schedule.Sequence {
	seq = append(seq, schedule.Op{Kind: schedule.ForwardCheckpoint, Layer: s})
	for l := s + 1; l <= x; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardDiscard, Layer: l})
	}
	return seq
}
