package pipeline

import (
	"fmt"

	"plimsoll/planner/pipeline"
)

// newRules says when the stages of the plan update which weights, and how many minibatches make whole updates of all of them. asked is how
// many minibatches make one update of a double buffered plan; 0: as in Options.Group. Errors: ErrPlan.
func (o *order) newRules(asked int) (rules []rule, group int, err error) {
	group = 1
	most := o.depth()
	o.updates = make([]int, len(o.on))
	for s := range o.on {
		r, err := o.newRule(s, most, asked)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: stage %d: %w", ErrPlan, s, err)
		}
		rules, o.updates[s] = append(rules, r), r.group
		group = group / gcd(group, r.group) * r.group
	}
	return rules, group, nil
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

// newRule returns the rule of a stage with so many minibatches in flight at most.
func (o *order) newRule(s, depth, asked int) (rule, error) {
	plan := o.plan
	r := rule{mode: plan.Versions, group: plan.Round(s), speaks: o.speaks[s]}
	if r.mode == "" {
		r.mode = pipeline.DoubleBuffered
	}
	switch r.mode {
	case pipeline.Flush:
		r.group = plan.Microbatches
	case pipeline.DoubleBuffered:
		r.group = max(asked, plan.Microbatches)
		if round := o.round(); r.group < depth || r.group%round != 0 {
			if asked > 0 || plan.Microbatches > 1 {
				return r, fmt.Errorf("double buffered weights with %d minibatches to an update: it must be a multiple of %d, so that all devices of a stage have some, and at least the %d minibatches that are in flight in a stage at one time",
					r.group, round, depth)
			}
			r.group = (depth + round - 1) / round * round
		}
	case pipeline.VerticalSync:
		if o.round() > 1 {
			return r, fmt.Errorf("vertical_sync counts the updates of the first stage, and with several devices for a stage the stages have different numbers of them")
		}
		r.entered = o.entered()
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
			case pipeline.Update:
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
		case pipeline.Update:
			for k.end(v.minibatch); k.due(); {
				k.update()
			}
		}
		return nil
	})
	return at
}
