package staged

import (
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// WithPortals is pipeline.WithPortals for all plans. The plan that it returns has been judged, and says its peaks and makespan.
// Errors: pipeline.ErrNoRoom, those of Flatten and of Check.
func WithPortals(c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan, portals []pipeline.Portal, back pipeline.Return) (*pipeline.Plan, error) {
	whole, flat, err := Flatten(c, plan)
	if err != nil {
		return nil, err
	}
	timed, err := pipeline.WithPortals(whole, p, flat, portals, back)
	if err != nil {
		return nil, err
	}
	out := *plan
	out.Portals, out.Tasks, out.Period, out.PerDevicePeak, out.Predicted.Makespan = portals, timed.Tasks, timed.Period, nil, 0
	report, err := Check(c, p, &out)
	if report != nil {
		out.PerDevicePeak, out.Predicted.Makespan = report.PerDevicePeak, report.Makespan
	}
	return &out, err
}
