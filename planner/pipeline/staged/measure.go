package staged

import (
	"fmt"
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/schedule"
)

// part is one of the two parts that a microbatch runs in a stage.
type part struct {
	seconds float64
	peak    int64 // the most bytes that the microbatch holds while the part runs
}

// sequence is what the ops of a stage cost one microbatch.
type sequence struct {
	forward, backward part
	kept              int64   // bytes between the parts
	early             float64 // seconds of backward before its first op that needs the gradient
}

// timing returns what a task takes; nil for a communication.
func (q *sequence) timing(kind pipeline.Kind) *pipeline.Timing {
	switch kind {
	case pipeline.F:
		return &pipeline.Timing{Length: q.forward.seconds}
	case pipeline.B:
		return &pipeline.Timing{Length: q.backward.seconds, Early: q.early}
	}
	return nil
}

// costs are those of a stage with ops: of its microbatches, and of the last one.
type costs struct{ each, last *sequence }

// run returns what a microbatch of the stage runs.
func (k *costs) run(plan *pipeline.Plan, micro int) *sequence {
	if micro == plan.Microbatches-1 {
		return k.last
	}
	return k.each
}

// measure returns the costs of the stages with ops; nil for the others. The stages cover the chain.
func measure(c *chain.Chain, plan *pipeline.Plan) ([]*costs, error) {
	if !plan.IsFlush() {
		return nil, fmt.Errorf("%w: field \"last_ops\" is for plans with a flush, \"weight_versions\" is %q", loadline.ErrOps, plan.Versions)
	}
	all, split, next := make([]*costs, len(plan.Stages)), plan.Split(), 1
	for s, st := range plan.Stages {
		if st.First != next || st.Last < st.First || st.Last > c.Len() {
			return nil, fmt.Errorf("%w: stage %d has layers %d to %d of %d, it must begin with layer %d", pipeline.ErrPlan, s, st.First, st.Last, c.Len(), next)
		}
		next = st.Last + 1
		if len(st.Ops) == 0 && len(st.LastOps) == 0 {
			continue
		}
		var err error
		if all[s], err = stage(c, st); err != nil {
			return nil, fmt.Errorf("stage %d: %w", s, err)
		}
		switch {
		case split[s]:
			return nil, fmt.Errorf("%w: stage %d has ops and W tasks: its backward cannot be split", loadline.ErrOps, s)
		case len(st.Devices) != 1 || shared(plan, s):
			return nil, fmt.Errorf("%w: stage %d has ops, so it must have one device for itself", loadline.ErrOps, s)
		}
	}
	if next != c.Len()+1 {
		return nil, fmt.Errorf("%w: the stages end with layer %d, the chain has %d", pipeline.ErrPlan, next-1, c.Len())
	}
	return all, nil
}

// stage returns the costs of a stage with ops.
func stage(c *chain.Chain, st pipeline.Stage) (*costs, error) {
	if len(st.Ops) == 0 {
		return nil, fmt.Errorf("%w: it has \"last_ops\" without \"ops\" for the other microbatches", loadline.ErrOps)
	}
	each, err := replay(c, st, st.Ops)
	if err != nil {
		return nil, err
	}
	if len(st.LastOps) == 0 {
		return &costs{each, each}, nil
	}
	last, err := replay(c, st, st.LastOps)
	if err != nil {
		return nil, fmt.Errorf("last_ops: %w", err)
	}
	return &costs{each, last}, nil
}

// shared reports whether a device of a stage has another stage.
func shared(plan *pipeline.Plan, stage int) bool {
	for s, st := range plan.Stages {
		if s != stage && slices.ContainsFunc(st.Devices, func(d int) bool { return slices.Contains(plan.Stages[stage].Devices, d) }) {
			return true
		}
	}
	return false
}

// transfer returns the position of the first op that copies to the host or back; -1: none does.
func transfer(ops schedule.Sequence) int {
	return slices.IndexFunc(ops, func(o schedule.Op) bool { return o.Kind.Transfer() })
}

// replay verifies the ops of a stage and returns what they cost.
func replay(c *chain.Chain, st pipeline.Stage, ops schedule.Sequence) (*sequence, error) {
	turn, err := legal(c, st, ops)
	if err != nil {
		return nil, err
	}
	m := &meter{c: c, holds: map[int]activation{}}
	m.begin()
	m.take(c.Activation(st.First - 1))
	m.holds[st.First-1] = activation{bytes: c.Activation(st.First - 1)}
	for _, op := range ops[:turn] {
		m.run(op)
	}
	q := &sequence{forward: m.part}
	if !m.holds[st.Last].saved {
		m.drop(st.Last) // it has been sent
	}
	q.kept = m.used
	m.begin()
	m.take(c.Gradient(st.Last))
	needed := false
	for _, op := range ops[turn:] {
		if needed = needed || op.Kind == schedule.Backward; !needed {
			q.early += op.Seconds(c)
		}
		m.run(op)
	}
	q.backward = m.part
	return q, nil
}

// legal verifies ops as a sequence of the stage's layers and one layer more, which stands for the rest of the pipeline: it runs
// when F has ended. It returns the position of the first op of B.
func legal(c *chain.Chain, st pipeline.Stage, ops schedule.Sequence) (turn int, err error) {
	if at := transfer(ops); at >= 0 {
		return 0, fmt.Errorf("%w: op %d (%v): a stage of a plan with a flush has no transfers of its own", loadline.ErrOps, at, ops[at])
	}
	turn = 1 + slices.IndexFunc(ops, func(o schedule.Op) bool { return o.Layer == st.Last })
	rest := st.Len() + 1
	seq := make(schedule.Sequence, 0, len(ops)+2)
	for p, op := range ops {
		if op.Layer < st.First || op.Layer > st.Last {
			return 0, fmt.Errorf("%w: op %d (%v): the stage has layers %d to %d", loadline.ErrOps, p, op, st.First, st.Last)
		}
		if seq = append(seq, schedule.Op{Kind: op.Kind, Layer: op.Layer - st.First + 1}); p+1 == turn {
			seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: rest}, schedule.Op{Kind: schedule.Backward, Layer: rest})
		}
	}
	within := &chain.Chain{Layers: append(slices.Clone(c.Layers[st.First-1:st.Last]), chain.Layer{})}
	if err := schedule.Verify(within, seq); err != nil {
		return 0, fmt.Errorf("%w: layers %d to %d, counted from 1, the last one the rest of the pipeline: %w", loadline.ErrOps, st.First, st.Last, err)
	}
	return turn, nil
}

// meter is the memory of one microbatch in a stage while its ops run. The ops are legal.
type meter struct {
	c     *chain.Chain
	holds map[int]activation // by activation
	used  int64
	part  part
}

// activation is a_i, or ā_i.
type activation struct {
	bytes int64
	saved bool
}

// begin begins a part.
func (m *meter) begin() { m.part = part{peak: m.used} }

// take adds bytes to what is used.
func (m *meter) take(bytes int64) {
	m.used += bytes
	m.part.peak = max(m.part.peak, m.used)
}

// drop frees an activation.
func (m *meter) drop(i int) {
	m.used -= m.holds[i].bytes
	delete(m.holds, i)
}

func (m *meter) run(op schedule.Op) {
	m.part.seconds += op.Seconds(m.c)
	if op.Kind == schedule.Backward {
		m.backward(op.Layer)
		return
	}
	layer := m.c.Layer(op.Layer)
	made, overhead := activation{bytes: layer.OutputBytes}, layer.DiscardOverhead()
	if op.Kind == schedule.ForwardAll {
		made, overhead = activation{layer.SavedBytes, true}, layer.ForwardOverheadBytes
	}
	m.take(made.bytes + overhead)
	m.used -= overhead
	if op.Kind == schedule.ForwardDiscard {
		m.drop(op.Layer - 1)
	}
	if m.holds[op.Layer].saved && !made.saved {
		m.used -= made.bytes // it is there already
		return
	}
	m.drop(op.Layer)
	m.holds[op.Layer] = made
}

// backward turns δ_l into δ_{l-1}. A saved input stays for the next one; a plain one goes.
func (m *meter) backward(l int) {
	layer := m.c.Layer(l)
	m.take(m.c.Gradient(l-1) + layer.BackwardOverheadBytes)
	m.used -= layer.BackwardOverheadBytes + m.c.Gradient(l)
	m.drop(l)
	if !m.holds[l-1].saved {
		m.drop(l - 1)
	}
}
