package multichain

import (
	"context"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Strategies returns Multi-δ and Multi-∅ for joins of measured layers.
func Strategies() []strategy.Sequencer {
	entry := func(name, summary, section string, keep bool) strategy.Sequencer {
		return strategy.Sequencer{
			Name: name, Summary: summary, Paper: "Shilova's thesis", Section: section, Joins: true,
			Solve: func(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
				if err := p.Chain.Validate(); err != nil {
					return nil, err
				}
				return newMeasured(p.Chain).solve(ctx, name, p.Memory, keep)
			},
		}
	}
	return []strategy.Sequencer{
		entry("multi-delta", "branches that meet in a loss: checkpoints in equal slots, as if every input's gradient were kept", "1.3, problem 2 and Theorem 3", true),
		entry("multi-empty", "branches that meet in a loss: checkpoints in equal slots, no input's gradient is kept", "1.3, problem 3 and Theorem 3", false),
	}
}

// measured is a join of layers with costs of their own; a chain is one branch and its loss.
type measured struct {
	*chain.Chain
	chain.Wiring
	branches []int
}

func newMeasured(c *chain.Chain) measured {
	m := measured{c, c.Wiring(), c.Branches}
	if len(m.branches) == 0 {
		m.branches = []int{c.Len() - 1}
	}
	return m
}

// solve plans a join of unequal layers. The optimal schedule of equal layers for every number of slots becomes a
// sequence, to which forward_alls are added while they fit. The fastest within memory bytes is returned. All of it is
// judged by schedule.Simulate. Errors: *pipeline.InfeasibleError, ErrTooLarge, the context's.
func (m measured) solve(ctx context.Context, name string, memory int64, keep bool) (schedule.Sequence, error) {
	equal := m.equal(keep)
	var best, least candidate
	for slots := equal.Smallest(); slots <= m.Activations(); slots++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		steps, err := Solve(equal, slots)
		if err != nil {
			return nil, err
		}
		c := m.candidate(m.sequence(steps))
		if least.seq == nil || c.Peak < least.Peak {
			least = c
		}
		if c.Peak <= memory {
			c = m.save(c, memory)
			if best.seq == nil || c.Makespan < best.Makespan {
				best = c
			}
		}
	}
	if best.seq == nil {
		return nil, m.infeasible(name, memory, least)
	}
	return best.seq, nil
}

// candidate is a sequence with what it costs.
type candidate struct {
	seq schedule.Sequence
	*schedule.Result
}

// candidate simulates a sequence that keeps the rules.
func (m measured) candidate(seq schedule.Sequence) candidate {
	r, err := schedule.Simulate(m.Chain, seq, schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		panic("BUG: a schedule became a sequence that cannot run: " + err.Error())
	}
	return candidate{seq, r}
}

func (m measured) infeasible(name string, memory int64, least candidate) error {
	e := &pipeline.InfeasibleError{Strategy: name, Memory: memory, Smallest: least.Peak}
	if least.PeakOp >= 0 {
		e.Op = least.seq[least.PeakOp]
		e.LayerName = m.Layer(e.Op.Layer).Name
	}
	return e
}

// equal returns the join of equal layers that stands for this one: means of its branches' layers. A backward has its
// forward_all directly before it; the trunk is the loss.
func (m measured) equal(keep bool) Join {
	j := Join{Lengths: m.branches, Keep: slices.Repeat([]bool{keep}, len(m.branches))}
	n := 0
	for _, length := range m.branches {
		n += length
	}
	for l := 1; l <= m.Len(); l++ {
		cost := m.Layer(l)
		if l > n {
			j.Loss += cost.ForwardS + cost.BackwardS
			continue
		}
		j.Forward += cost.DiscardSeconds() / float64(n)
		j.Backward += (cost.ForwardS + cost.BackwardS) / float64(n)
	}
	return j
}

// sequence writes a schedule of the branches as ops. A forward is a forward_checkpoint if its input stays, else a
// forward_discard. Before each backward its forward_all makes the saved set. The loss is the whole trunk, there and back.
func (m measured) sequence(steps Schedule) schedule.Sequence {
	copies := map[int]int{}
	for k := range len(m.branches) {
		copies[m.Input(k)] = 1
	}
	before := m.before()
	var seq schedule.Sequence
	for _, s := range steps {
		l := before[s.Branch] + s.Layer
		switch s.Kind {
		case Store:
			copies[m.stored(s, l)]++
		case Forward:
			in := m.Reads(l)[0]
			kind := schedule.ForwardDiscard
			if copies[in]--; copies[in] > 0 {
				kind = schedule.ForwardCheckpoint
			}
			copies[l]++
			seq = append(seq, schedule.Op{Kind: kind, Layer: l})
		case Backward:
			copies[m.Reads(l)[0]]--
			seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l}, schedule.Op{Kind: schedule.Backward, Layer: l})
		case Loss:
			seq = m.trunk(seq)
		}
	}
	return seq
}

// before returns the layers before each branch.
func (m measured) before() []int {
	before := make([]int, len(m.branches))
	for k := 1; k < len(before); k++ {
		before[k] = before[k-1] + m.branches[k-1]
	}
	return before
}

// stored returns the activation that a Store duplicates; l is the layer that made it.
func (m measured) stored(s Op, l int) int {
	if s.Layer == 0 {
		return m.Input(s.Branch)
	}
	return l
}

// trunk appends the layers behind the branches, there and back.
func (m measured) trunk(seq schedule.Sequence) schedule.Sequence {
	first := 1
	for _, n := range m.branches {
		first += n
	}
	for l := first; l <= m.Len(); l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
	}
	for l := m.Len(); l >= first; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

// save lets earlier forwards save what a backward needs, where that fits, in the order of the backwards, and leaves out
// what need not be computed again then.
func (m measured) save(c candidate, memory int64) candidate {
	for _, op := range c.seq {
		if op.Kind != schedule.Backward {
			continue
		}
		if better, ok := m.saveLayer(c, op.Layer, memory); ok {
			c = better
		}
	}
	return c
}

// saveLayer lets the last forward of layer l that saves nothing be its forward_all.
func (m measured) saveLayer(c candidate, l int, memory int64) (candidate, bool) {
	again := slices.Index(c.seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
	q := again - 1
	for q >= 0 && c.seq[q].Layer != l {
		q--
	}
	if q < 0 {
		return c, false
	}
	seq := slices.Clone(c.seq)
	seq[q].Kind = schedule.ForwardAll
	for p := q + 1; p < again; p++ { // a saved set cannot be discarded
		if seq[p].Kind == schedule.ForwardDiscard && m.Reads(seq[p].Layer)[0] == l {
			seq[p].Kind = schedule.ForwardCheckpoint
		}
	}
	for p := again; p > q; p-- {
		if seq[p].Kind == schedule.Backward {
			continue
		}
		shorter := slices.Delete(slices.Clone(seq), p, p+1)
		if schedule.Verify(m.Chain, shorter) == nil {
			seq = shorter
		}
	}
	r, err := schedule.Simulate(m.Chain, seq, schedule.Limits{Memory: schedule.NoLimit})
	return candidate{seq, r}, err == nil && r.Peak <= memory && r.Makespan < c.Makespan
}
