package flush

import (
	"context"
	"errors"
	"fmt"
	"math"

	"plimsoll/planner/pipeline"
)

// strategy registers the recipe.
func (r *recipe) strategy() pipeline.Strategy {
	return pipeline.Strategy{
		Name: r.name, Type: pipeline.Flushing, Summary: r.summary, Paper: r.paper, Section: r.section,
		Solve: func(ctx context.Context, q pipeline.Request) (*pipeline.Plan, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return r.solve(ctx, q)
		},
	}
}

func (r *recipe) solve(ctx context.Context, q pipeline.Request) (*pipeline.Plan, error) {
	p, err := r.prepare(q)
	if err != nil {
		return nil, err
	}
	t := r.schedule(p)
	if math.IsInf(t.makespan, 0) {
		return nil, fmt.Errorf("%s: %w: its schedule takes longer than a number can say", r.name, ErrOptions)
	}
	plan, err := finish(r.name, q, p.plan(q, t))
	var whole *pipeline.InfeasibleError
	if r.recomputes && errors.As(err, &whole) {
		return r.fitted(ctx, q, p, whole.Best)
	}
	return plan, err
}
