package periodic

// 1f1b: PipeDream's schedule.
//
// PipeDream, section 3.2. Each replica of a stage starts with so many forwards and then alternates one backward and one
// forward, so that exactly that many minibatches are live on it. The input stage starts with NOAM = ceil(workers /
// replicas of the input stage); a later stage with what is still in flight when the earlier stages have theirs. Replicas
// take turns (1F1B-RR), in rounds as in 1f1b*. The period is the smallest at which this is possible, boundaries being virtual
// stages; memory does not depend on it.

import (
	"context"
	"fmt"

	"plimsoll/planner/pipeline"
)

func solve1F1B(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	return OneFOneB(ctx, "1f1b", r)
}

// OneFOneB returns the 1F1B plan of the request's stages, with r.Active minibatches in flight on each replica of the input
// stage (0: PipeDream's NOAM), in the name of a strategy. Errors: *InfeasibleError when that many do not fit; ErrStages,
// ErrOptions.
func OneFOneB(ctx context.Context, strategy string, r pipeline.Request) (*pipeline.Plan, error) {
	q, err := contiguousPipe(ctx, strategy, r)
	if err != nil {
		return nil, err
	}
	if r.Active < 0 {
		return nil, fmt.Errorf("%w: %d active minibatches: give at least 1, or 0 for PipeDream's number", ErrOptions, r.Active)
	}
	live := warmUps(q.problem.stages, r.Active)
	just := demand{least: live, most: live}
	period := q.smallest(just, func([]int) bool { return true })
	plan := q.plan(period, q.inRounds(period, just), 0)
	if !q.problem.fits(live) {
		return nil, q.problem.infeasible(live, named(q.problem, plan))
	}
	return pipeline.Finish(strategy, r, plan)
}

// warmUps returns with how many forwards a replica of each stage starts. active is NOAM; 0: PipeDream's number. Minibatches
// beyond one for each worker are spread over the boundaries; the last stage never waits with a backward.
func warmUps(stages []pipeline.Stage, active int) []int {
	flying := 0
	for _, s := range stages {
		flying += len(s.Devices)
	}
	extra := 0
	if active > 0 {
		extra = max(0, active*len(stages[0].Devices)-flying)
		flying = min(flying, active*len(stages[0].Devices))
	}
	live := make([]int, len(stages))
	for s, st := range stages {
		n, here := len(st.Devices), flying
		if boundaries := len(stages) - 1; boundaries > 0 {
			here += extra * (boundaries - s) / boundaries
		}
		live[s] = max(1, (here+n-1)/n)
		flying -= n
	}
	return live
}
