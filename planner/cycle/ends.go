package cycle

import "plimsoll/planner/schedule"

// ends says how many steps a run has, and whether ops of the last one come behind it; 0: it has no end.
type ends struct {
	steps  int
	primed bool
}

// over reports whether a step is none of the run.
func (e *ends) over(step int) bool {
	if e == nil || e.steps == 0 {
		return false
	}
	return step > e.steps || step == e.steps && !e.primed
}

// leavesOut reports whether an op of a step takes no time, as it belongs to no step of the run.
func (e *ends) leavesOut(step int, op Op) bool {
	switch {
	case e == nil:
		return false
	case step == 0:
		return op.Prime
	case e.steps == 0 || step < e.steps || op.Prime:
		return false
	}
	switch op.Kind {
	case schedule.FetchWeights, schedule.WriteWeights, schedule.FetchState, schedule.WriteState:
		return false
	}
	return true
}
