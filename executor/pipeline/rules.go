package pipeline

import (
	"fmt"

	"plimsoll/planner/pipeline"
)

// newRules says when the stages of a plan update which weights. Errors: ErrPlan.
func (e *Executor) newRules(plan *pipeline.Plan) error {
	e.group = 1
	most := e.order.depth()
	e.order.updates = make([]int, len(e.order.on))
	for s := range e.order.on {
		r, err := e.newRule(plan, s, most)
		if err != nil {
			return fmt.Errorf("%w: stage %d: %w", ErrPlan, s, err)
		}
		e.rules, e.order.updates[s] = append(e.rules, r), r.group
		e.group = e.group / gcd(e.group, r.group) * r.group
	}
	return nil
}

// round returns the least common multiple of the rounds of all stages: how many minibatches give every device some.
func (o *order) round() int {
	n := 1
	for s := range o.on {
		round := o.plan.Round(s)
		n = n / gcd(n, round) * round
	}
	return n
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// newRule returns the rule of a stage of a plan with so many minibatches in flight at most.
func (e *Executor) newRule(plan *pipeline.Plan, s, depth int) (rule, error) {
	r := rule{mode: plan.Versions, group: plan.Round(s), speaks: e.order.speaks[s]}
	if r.mode == "" {
		r.mode = pipeline.DoubleBuffered
	}
	switch r.mode {
	case pipeline.Flush:
		r.group = plan.Microbatches
	case pipeline.DoubleBuffered:
		r.group = max(e.opt.Group, plan.Microbatches)
		if round := e.order.round(); r.group < depth || r.group%round != 0 {
			if e.opt.Group > 0 || plan.Microbatches > 1 {
				return r, fmt.Errorf("double buffered weights with %d minibatches to an update: it must be a multiple of %d, so that all devices of a stage have some, and at least the %d minibatches that are in flight in a stage at one time",
					r.group, round, depth)
			}
			r.group = (depth + round - 1) / round * round
		}
	case pipeline.VerticalSync:
		if e.order.round() > 1 {
			return r, fmt.Errorf("vertical_sync counts the updates of the first stage, and with several devices for a stage the stages have different numbers of them")
		}
		r.entered = e.order.entered()
	}
	return r, nil
}

// here reports which minibatches, by residue, a stage has on a device.
func (o *order) here(s, device int) []bool {
	here := make([]bool, o.repeats)
	for r, d := range o.on[s] {
		here[r] = d == device
	}
	return here
}

// depth returns how far, at most, a minibatch that enters a stage is ahead of the oldest one that has not ended there, on all its
// devices, both counted: as many as are in flight where none overtakes another.
func (o *order) depth() (most int) {
	for s := range o.on {
		oldest, early := 0, map[int]bool{}
		_ = o.within(o.ofStage(s), newBound(o.long()), func(v instance) error {
			switch v.kind {
			case pipeline.F:
				most = max(most, v.minibatch-oldest+1)
			case minibatchEnd:
				for i := range o.speaks[s] {
					early[v.minibatch-i] = true
				}
				for ; early[oldest]; oldest++ {
					delete(early, oldest)
				}
			}
			return nil
		})
	}
	return most
}

// entered returns how many updates the first stage has done when a minibatch enters. In a run it is at first 0 and then a
// fixed number of minibatches behind.
func (o *order) entered() func(m int) int {
	at := o.made(rule{group: 1, speaks: 1}, 0, o.long())
	// The pattern repeats every R minibatches.
	steady := len(at)/2 - len(at)/2%o.repeats
	return func(m int) int {
		if m < len(at)/2 {
			return at[m]
		}
		back := (m - steady) / o.repeats * o.repeats
		return at[m-back] + back
	}
}

// made returns how many updates a stage has made by the time that each of minibatches 0 to n-1 enters it.
func (o *order) made(r rule, s, n int) []int {
	at, k := make([]int, n), newWeightStash(r, make([]bool, o.repeats), 1, 1)
	k.begin(newBound(0))
	_ = o.within(o.ofStage(s), newBound(n), func(v instance) error {
		switch v.kind {
		case pipeline.F:
			at[v.minibatch] = k.latest
		case minibatchEnd:
			for k.end(v.minibatch); k.due(); {
				k.update()
			}
		}
		return nil
	})
	return at
}
