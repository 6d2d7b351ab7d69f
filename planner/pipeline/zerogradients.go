package pipeline

import "fmt"

// gathered reports whether messages bring what becomes of a sum to all replicas, in the round that ends with a microbatch. Where gradients are divided, those of the last round bring
// new weights.
func (l division) gathered(last int) bool {
	return !l.plan.Zero.dividesGradients() || !l.plan.Zero.dividesWeights() && last == l.repeats-1
}

// until returns the last minibatch of the sum's round.
func (x *sum) until() int { return x.round[len(x.round)-1] }

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
