package pipeline

import "fmt"

// gathered reports whether messages bring what becomes of a sum to all replicas. Where gradients are divided, those of the last round bring
// new weights.
func (l division) gathered(x *sum) bool {
	return !l.plan.Zero.dividesGradients() || !l.plan.Zero.dividesWeights() && x.lastRound(l.repeats)
}

// lastRound reports whether the sum is that of the last round of a step.
func (x *sum) lastRound(repeats int) bool { return x.round[len(x.round)-1] == repeats-1 }

// bucket tells which part of which bucket a sum has, of whatever round.
func (x *sum) bucket() bucketOf {
	return bucketOf{stage: x.stage, first: x.first, last: x.last, part: x.part}
}

// takeTurns refuses, with ErrPlan, replicas that do not have one microbatch each in every round.
func (l division) takeTurns(stages []replicatedStage) error {
	for _, x := range stages {
		if n := len(x.line); l.plan.Zero.dividesGradients() && x.round != n {
			return fmt.Errorf("%w: field \"zero\" is %d: devices %v of stage %d do not take turns, so that every %d microbatches are one for each: give 1, or --zero 1", ErrPlan, l.plan.Zero, x.line, x.stage, n)
		}
	}
	return nil
}
