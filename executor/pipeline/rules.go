package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/planner/pipeline"
)

// newRules says when the stages of a plan update which weights. Errors: ErrPlan.
func (e *Executor) newRules(plan *pipeline.Plan) error {
	e.group = 1
	most := e.order.depth()
	for s := range e.order.on {
		r, err := e.newRule(plan, s, most)
		if err != nil {
			return fmt.Errorf("%w: stage %d: %w", ErrPlan, s, err)
		}
		e.rules = append(e.rules, r)
		e.group = e.group / gcd(e.group, r.group) * r.group
	}
	return nil
}

// round returns the least common multiple of the numbers of devices of all stages: how many minibatches give every device as many.
func (o *order) round() int {
	n := 1
	for s := range o.on {
		hosts := len(o.hosts(s))
		n = n / gcd(n, hosts) * hosts
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
	hosts := len(e.order.hosts(s))
	r := rule{mode: plan.Versions, group: hosts, local: 1}
	if r.mode == "" {
		r.mode = pipeline.DoubleBuffered
	}
	if r.mode != pipeline.Flush && e.order.split[s] {
		return r, fmt.Errorf("its backward is split, and the plan does not flush: gradients of two updates would mix")
	}
	if r.mode != pipeline.Flush && !e.order.takesTurns(s) {
		return r, fmt.Errorf("its %d devices do not take turns: minibatches go to %v", hosts, e.order.on[s])
	}
	switch r.mode {
	case pipeline.Flush:
		r.group, r.local = plan.Microbatches, plan.Microbatches/hosts
		if !e.order.shares(s) {
			return r, fmt.Errorf("its %d devices do not share the microbatches evenly: they go to %v", hosts, e.order.on[s])
		}
	case pipeline.DoubleBuffered:
		r.group = max(e.opt.Group, plan.Microbatches)
		if round := e.order.round(); r.group < depth || r.group%round != 0 {
			if e.opt.Group > 0 || plan.Microbatches > 1 {
				return r, fmt.Errorf("double buffered weights with %d minibatches to an update: it must be a multiple of %d, so that all devices of a stage have as many, and at least the %d minibatches that are in flight at one time",
					r.group, round, depth)
			}
			r.group = (depth + round - 1) / round * round
		}
		r.local = r.group / hosts
	case pipeline.VerticalSync:
		if e.order.round() > 1 {
			return r, fmt.Errorf("vertical_sync counts the updates of the first stage, and with several devices for a stage the stages have different numbers of them")
		}
		r.entered = e.order.entered()
	}
	return r, nil
}

// takesTurns reports whether consecutive minibatches go to the devices of a stage in turn.
func (o *order) takesTurns(s int) bool {
	hosts := o.hosts(s)
	if o.repeats%len(hosts) != 0 {
		return false
	}
	for r := range o.repeats {
		if o.on[s][r] != o.on[s][r%len(hosts)] || slices.Index(o.on[s], o.on[s][r]) != r%len(hosts) {
			return false
		}
	}
	return true
}

// shares reports whether the devices of a stage have as many microbatches each.
func (o *order) shares(s int) bool {
	count := map[int]int{}
	for _, d := range o.on[s] {
		count[d]++
	}
	for _, d := range o.hosts(s) {
		if count[d]*len(o.hosts(s)) != o.repeats {
			return false
		}
	}
	return true
}

// depth returns the most minibatches that are in flight in one stage.
func (o *order) depth() (most int) {
	for d := range o.turns {
		live := map[int]int{}
		_ = o.visits(d, o.long(), func(v visit) error {
			switch {
			case v.kind == pipeline.F:
				live[v.stage]++
				most = max(most, live[v.stage])
			case o.last(v.turn):
				live[v.stage]--
			}
			return nil
		}, func() error { return nil })
	}
	return most
}

// entered returns how many updates the first stage has done when a minibatch enters. In a run it is at first 0 and then a
// fixed number of minibatches behind.
func (o *order) entered() func(m int) int {
	var at []int
	updates := 0
	for d := range o.turns {
		_ = o.visits(d, o.long(), func(v visit) error {
			switch {
			case v.stage != 0 || v.kind.Communication():
			case v.kind == pipeline.F:
				for len(at) <= v.minibatch {
					at = append(at, 0)
				}
				at[v.minibatch] = updates
			case o.last(v.turn):
				updates++
			}
			return nil
		}, func() error { return nil })
	}
	return func(m int) int {
		if m < len(at)/2 {
			return at[m]
		}
		// The pattern repeats every R minibatches.
		steady := len(at)/2 - len(at)/2%o.repeats
		back := (m - steady) / o.repeats * o.repeats
		return at[m-back] + back
	}
}
