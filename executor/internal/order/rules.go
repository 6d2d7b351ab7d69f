package order

import (
	"fmt"

	"plimsoll/planner/pipeline"
)

// NewRules returns when the stages of the plan update which weights, and how many minibatches make whole updates of all of them. An
// update of a double buffered plan has as many minibatches as asked; 0 leaves that to the plan, as in Options.Group. Errors: ErrPlan.
func (o *Order) NewRules(asked int) (rules []Rule, group int, err error) {
	group = 1
	most := o.depth()
	o.updates = make([]int, len(o.On))
	for s := range o.On {
		r, err := o.newRule(s, most, asked)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: stage %d: %w", ErrPlan, s, err)
		}
		rules, o.updates[s] = append(rules, r), r.Group
		group = group / GCD(group, r.Group) * r.Group
	}
	return rules, group, nil
}

// wholeRound returns the least common multiple of the rounds of all stages: how many minibatches give every device some.
func wholeRound(p *pipeline.Plan) int {
	n := 1
	for s := range p.Stages {
		round := p.Round(s)
		n = n / GCD(n, round) * round
	}
	return n
}

// GCD returns the greatest common divisor of two numbers that are not both 0.
func GCD(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// newRule returns the rule of a stage with so many minibatches in flight at most.
func (o *Order) newRule(s, depth, asked int) (Rule, error) {
	plan := o.Plan
	r := Rule{Mode: plan.Versions, Group: plan.Round(s), Speaks: o.speaks[s]}
	if r.Mode == "" {
		r.Mode = pipeline.DoubleBuffered
	}
	switch r.Mode {
	case pipeline.Flush:
		r.Group = plan.Microbatches
	case pipeline.DoubleBuffered:
		r.Group = max(asked, plan.Microbatches)
		if round := wholeRound(plan); r.Group < depth || r.Group%round != 0 {
			if asked > 0 || plan.Microbatches > 1 {
				return r, fmt.Errorf("double buffered weights with %d minibatches to an update: give a multiple of %d, one for each device of a stage, and at least %d, the minibatches in flight",
					r.Group, round, depth)
			}
			r.Group = (depth + round - 1) / round * round
		}
	case pipeline.VerticalSync:
		if wholeRound(plan) > 1 {
			return r, fmt.Errorf("vertical_sync counts the updates of the first stage, and with several devices for a stage the stages have different numbers of them")
		}
		r.entered = o.entered()
	}
	return r, nil
}

// Here reports which minibatches, by residue, a stage has on a device.
func (o *Order) Here(s, device int) []bool {
	here := make([]bool, o.Repeats)
	for r, d := range o.On[s] {
		here[r] = d == device
	}
	return here
}

// depth returns how far, at most, a minibatch that enters a stage is ahead of the oldest one that has not ended there, on all its
// devices, both counted. It is the number in flight if none overtakes another.
func (o *Order) depth() (most int) {
	for s := range o.On {
		oldest, early := 0, map[int]bool{}
		_ = o.within(o.ofStage(s), NewBound(o.Long()), func(v Instance) error {
			switch v.Kind {
			case pipeline.F:
				most = max(most, v.Minibatch-oldest+1)
			case pipeline.Update:
				for i := range o.speaks[s] {
					early[v.Minibatch-i] = true
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
func (o *Order) entered() func(m int) int {
	at := o.Made(Rule{Group: 1, Speaks: 1}, 0, o.Long())
	// The pattern repeats every R minibatches.
	steady := len(at)/2 - len(at)/2%o.Repeats
	return func(m int) int {
		if m < len(at)/2 {
			return at[m]
		}
		back := (m - steady) / o.Repeats * o.Repeats
		return at[m-back] + back
	}
}

// Made returns how many updates a stage has made by the time that each of minibatches 0 to n-1 enters it.
func (o *Order) Made(r Rule, s, n int) []int {
	at, k := make([]int, n), NewWeightStash(r, make([]bool, o.Repeats), 1, 1)
	k.Begin(NewBound(0))
	_ = o.within(o.ofStage(s), NewBound(n), func(v Instance) error {
		switch v.Kind {
		case pipeline.F:
			at[v.Minibatch] = k.Latest
		case pipeline.Update:
			for k.End(v.Minibatch); k.Due(); {
				k.Update()
			}
		}
		return nil
	})
	return at
}
