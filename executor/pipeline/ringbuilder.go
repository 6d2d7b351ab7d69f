package pipeline

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// ringBuilder lays out a ring.
type ringBuilder struct {
	*ring
	t         *localStage
	ops       *stageops.StageOps
	order     *order.Order
	moments   *pipeline.OpMoments
	period    int        // moments
	comp      []step     // of compute, in order; those of the ring in the making
	started   []int      // by step: the latest moment at which one up to it starts
	inFlight  lifetime   // of minibatch 0
	lives     []lifetime // of its items
	hostLives []lifetime // of what it has with the host
}

// lifetime is the positions at which something lives: from the first up to the one behind the last.
type lifetime struct{ from, to int }

// list lists the items: those of its ops, and what a minibatch has beside them.
func (r *ringBuilder) list(lay *layout) {
	for _, it := range r.ops.Items {
		r.items = append(r.items, it.Bytes)
	}
	add := func(bytes int64) int {
		r.items = append(r.items, bytes)
		return len(r.items) - 1
	}
	if r.t.stage == len(lay.order.On)-1 {
		r.labels = add(lay.Model.Labels.Bytes())
	}
	if r.t.stage == 0 {
		r.images = add(lay.Model.Input.Storage())
	}
}

// lastReader returns the last op of the forward that reads the input of the stage, if that goes to the host; else none.
func (r *ringBuilder) lastReader() int {
	last := none
	if slices.ContainsFunc(r.ops.Swaps, func(m stageops.Swap) bool { return m.Layer == r.t.spec.First }) {
		for i, o := range r.ops.Tasks[pipeline.F] {
			if o.Input.In == stageops.InStageInput {
				last = i
			}
		}
	}
	return last
}

// compute lists the steps of compute in a period, in the order of the device's tasks.
func (r *ringBuilder) compute(c *chain.Chain) {
	for _, t := range r.order.Instructions[r.t.device] {
		if t.Kind.Communication() {
			continue
		}
		at := t.Place.Moment()
		r.comp = append(r.comp, step{Instruction: t, begin: t.Kind != pipeline.Update, op: none, swap: none, from: at, until: at})
		ops := r.ops.Tasks[t.Kind]
		for i := range ops {
			s := step{Instruction: t, op: i, last: i == len(ops)-1, swap: none, length: r.t.spec.Ops[ops[i].At].Seconds(c)}
			r.comp = append(r.comp, r.during(s, r.moments.Ops[ops[i].At]))
		}
	}
}

// during returns a step that runs when minibatch 0 has it in an interval.
func (r *ringBuilder) during(s step, of pipeline.Interval) step {
	s.from, s.until = of.From+s.Shift*r.period, of.To+s.Shift*r.period
	return s
}

// Ordinals number the steps of compute of all minibatches: those of minibatch 0's period come from 0 on.

// startOf returns the moment at which the step of an ordinal starts.
func (r *ringBuilder) startOf(ordinal int) int {
	n := len(r.comp)
	j := order.FloorDiv(ordinal, n)
	return j*r.period + r.comp[ordinal-j*n].from
}

// behind returns the first ordinal whose step starts at a moment, or later.
func (r *ringBuilder) behind(at int) int {
	ordinal := (order.FloorDiv(at, r.period) - 2) * len(r.comp)
	for r.startOf(ordinal) < at {
		ordinal++
	}
	return ordinal
}

// ordinal returns the ordinal of the first step of minibatch 0 for which is holds.
func (r *ringBuilder) ordinal(is func(*step) bool) int {
	i := slices.IndexFunc(r.comp, func(s step) bool { return is(&s) })
	return i - r.comp[i].Shift*len(r.comp)
}

// entered returns the moment at which minibatch 0 begins its forward.
func (r *ringBuilder) entered() int {
	return r.startOf(r.ordinal(func(s *step) bool { return s.begin && s.Kind == pipeline.F }))
}

// transfers returns the transfers that are issued before each step of compute, and after the last of the period. A transfer comes
// before the first step that the plan has after its start, but after the op that it follows, and before the op that needs it.
func (r *ringBuilder) transfers() (before [][]step, err error) {
	before = make([][]step, len(r.comp)+1)
	back := fromHost
	if !r.duplex {
		back = toHost
	}
	for k := range r.ops.Swaps {
		m := &r.ops.Swaps[k]
		ready, due := r.bounds(m)
		offload, prefetch := r.moments.Ops[m.Out], r.moments.Ops[m.Back]
		out, home := max(r.behind(offload.From), ready+1), min(r.behind(prefetch.From), due)
		if home < out {
			return nil, fmt.Errorf("%w: stage %d: activation %d is prefetched before it is offloaded", order.ErrPlan, r.t.stage, m.Layer-1)
		}
		r.insert(before, out, step{Instruction: order.Instruction{Kind: pipeline.F, Layer: m.Layer}, on: toHost, swap: k}, offload)
		r.insert(before, home, step{Instruction: order.Instruction{Kind: pipeline.B, Layer: m.Layer}, on: back, swap: k}, prefetch)
	}
	if r.ahead {
		at := pipeline.Interval{From: r.moments.Ahead, To: r.entered()}
		r.insert(before, r.behind(at.From), step{Instruction: order.Instruction{Kind: pipeline.F}, on: ofBatches, swap: none, batch: true}, at)
	}
	for _, list := range before {
		slices.SortStableFunc(list, func(a, b step) int { return a.from - b.from })
	}
	return before, nil
}

// insert puts a step of minibatch 0, which runs in an interval, before the step of compute of an ordinal.
func (r *ringBuilder) insert(before [][]step, ordinal int, s step, at pipeline.Interval) {
	j := order.FloorDiv(ordinal, len(r.comp))
	i := ordinal - j*len(r.comp)
	if at.From < j*r.period { // behind what comes last in the period before
		i, j = len(r.comp), j-1
	}
	s.Stage, s.To, s.op, s.Shift = r.t.stage, none, none, -j
	before[i] = append(before[i], r.during(s, at))
}

// bounds returns the ordinals of the step that a swap of minibatch 0 follows, and of the one that it is for.
func (r *ringBuilder) bounds(m *stageops.Swap) (ready, due int) {
	ready = r.ordinal(func(s *step) bool { return s.begin && s.Kind == pipeline.F })
	for _, o := range r.ops.Tasks[pipeline.F] {
		if o.At < m.Out {
			ready++
		}
	}
	return ready, r.ordinal(func(s *step) bool {
		return s.Kind == pipeline.B && slices.ContainsFunc(r.uses(s), func(u usage) bool { return u.item == m.To })
	})
}

// assemble puts transfers and messages between the steps of compute.
func (r *ringBuilder) assemble() error {
	before, err := r.transfers()
	if err != nil {
		return err
	}
	i := 0
	// until appends the transfers before the next step of compute that start before a moment.
	until := func(at int) {
		for len(before[i]) > 0 && before[i][0].from < at {
			r.steps, before[i] = append(r.steps, before[i][0]), before[i][1:]
		}
	}
	for _, t := range r.order.Instructions[r.t.device] {
		if t.Kind.Communication() {
			until(t.Place.Moment())
			s := step{Instruction: t, on: onLink(t.To), op: none, swap: none}
			r.steps = append(r.steps, r.during(s, r.order.Work.During(t.Kind, t.Stage, t.Far, 0)))
			continue
		}
		for ; i < len(r.comp) && r.comp[i].Instruction == t; i++ {
			until(math.MaxInt)
			r.steps = append(r.steps, r.comp[i])
		}
	}
	until(math.MaxInt)
	last := math.MinInt
	for i := range r.steps {
		last = max(last, r.steps[i].from)
		r.started = append(r.started, last)
	}
	return nil
}

// usage is the usage of an item, or of the host's copy of a swap.
type usage struct {
	item, hostCopy int
	write          bool
}

// uses returns the items of its minibatch that a step uses. The labels of the last stage come with the beginning of the forward, and
// so do the images of the first one, unless they come ahead of it.
func (r *ringBuilder) uses(s *step) (all []usage) {
	item := func(i int, write bool) {
		if i != none {
			all = append(all, usage{i, none, write})
		}
	}
	switch {
	case s.swap != none:
		m := &r.ops.Swaps[s.swap]
		from, out := m.From, s.Kind == pipeline.F
		if from == none {
			from = r.images
		}
		if !out {
			from = m.To
		}
		item(from, !out)
		return append(all, usage{none, s.swap, out})
	case s.batch:
		item(r.images, true)
	case s.Kind == pipeline.CF:
		item(r.ops.Result, false)
	case s.Kind.Communication():
	case s.begin && s.Kind == pipeline.F:
		item(r.labels, true)
		item(r.images, !r.ahead)
	case s.op != none:
		item(r.labels, false)
		o := &r.ops.Tasks[s.Kind][s.op]
		if o.Input.In == stageops.InStageInput {
			item(r.images, false)
		}
		for _, b := range []*stageops.Block{&o.Input, &o.Output, &o.GradOutput, &o.GradInput, &o.Scratch, &o.Kept} {
			if b.In == stageops.InItem {
				item(b.Item, b != &o.Input)
			}
		}
	}
	return all
}
