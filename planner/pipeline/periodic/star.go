package periodic

// 1f1b*: the optimal 1-periodic schedule of contiguous stages.
//
// Thesis, section 5.2.1. For a given period, Algorithm 6 gives the schedule with the fewest live minibatches in every stage at once.
// Theorem 15 proves it, and counts each boundary as a virtual stage of a half-duplex link. Algorithm 7 looks for the smallest period at
// which that fits; here exactly, among all periods at which something changes, because its bisection starts from bounds that can be wrong.
// With replicas each minibatch goes to one of them, in turn (PipeDream's 1F1B-RR), and the period is that of one minibatch. They keep
// rounds, as PipeDream's do, where that takes neither time nor memory; else some minibatches start before a round has ended whose update
// PipeDream's would wait for. With duplex links the schedule is valid but another one may be faster.
// Time: O(P² log P) periods, O(P) for each that is looked at.

import (
	"context"

	"plimsoll/planner/pipeline"
)

func solveStar(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	return Star(ctx, "1f1b*", r)
}

// Star returns the 1F1B* plan of the request's stages with the smallest period that fits, in the name of a strategy.
// Errors: *InfeasibleError when the stages do not fit with one live minibatch each; ErrStages, ErrOptions.
func Star(ctx context.Context, strategy string, r pipeline.Request) (*pipeline.Plan, error) {
	return StarFrom(ctx, strategy, r, 0)
}

// StarFrom is Star with a period of one minibatch that is not shorter than something else, beside the tasks, takes.
func StarFrom(ctx context.Context, strategy string, r pipeline.Request, shortest float64) (*pipeline.Plan, error) {
	q, err := contiguousPipe(ctx, strategy, r)
	if err != nil {
		return nil, err
	}
	q.shortest = shortest
	if one := ones(len(q.problem.stages)); !q.problem.fits(one) {
		return nil, q.problem.infeasible(one, q.least())
	}
	period := q.smallest(demand{}, q.problem.fits)
	return pipeline.Finish(strategy, r, q.plan(period, q.inRounds(period, demand{}), 0))
}

// inRounds returns the passages at a period: where no stage needs more live minibatches for it, with as few rounds in flight as there
// can be.
func (q *pipe) inRounds(period float64, d demand) []passage {
	all, _ := q.passages(period, d)
	if fewest, ok := q.passages(period, demand{least: d.least, most: q.live(all, period), rounds: true}); ok {
		return fewest
	}
	return all
}

// contiguousPipe reads a request for contiguous stages.
func contiguousPipe(ctx context.Context, strategy string, r pipeline.Request) (*pipe, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := newProblem(strategy, r)
	if err != nil {
		return nil, err
	}
	if err := p.contiguous(); err != nil {
		return nil, err
	}
	q := newPipe(p)
	return q, q.bounded()
}

// least returns the plan with the smallest memory: one live minibatch everywhere. It may exceed the memory all the same.
func (q *pipe) least() *pipeline.Plan {
	periods := q.periods()
	period := periods[len(periods)-1]
	all, _ := q.passages(period, demand{})
	return named(q.problem, q.plan(period, all, 0))
}

// named returns a plan with what Finish says of one that exceeds the memory.
func named(p *problem, plan *pipeline.Plan) *pipeline.Plan {
	_, _ = pipeline.Finish(p.strategy, p.Request, plan)
	return plan
}

func ones(n int) []int {
	one := make([]int, n)
	for i := range one {
		one[i] = 1
	}
	return one
}

// Tightest returns the smallest period of one minibatch that 1F1B* reaches with contiguous stages in their devices' memories. It makes no
// plan, so that many allocations can be compared. The result is false if the stages do not fit, or Star refuses them.
func Tightest(r pipeline.Request) (period float64, ok bool) {
	p, err := newProblem("1f1b*", r)
	if err != nil || p.contiguous() != nil || !p.fits(ones(len(p.stages))) {
		return 0, false
	}
	q := newPipe(p)
	if q.bounded() != nil {
		return 0, false
	}
	return q.smallest(demand{}, p.fits), true
}
