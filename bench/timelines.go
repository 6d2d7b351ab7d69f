package bench

import (
	"plimsoll/bench/timeline"
	"plimsoll/executor/train"
)

// runCycle is how a finished run went along its cyclic plan.
func runCycle(r *train.Run, o *train.Outcome) (*timeline.Cycle, error) {
	c, err := timeline.NewCycle(r.Plan.Costs.Chain, r.Plan.Plan, r.Plan.Costs.Platform)
	if err == nil {
		c.Ran, c.Window = o.Tasks, o.Window
	}
	return c, err
}

// runStep is the step of a finished run.
func runStep(r *train.Run, o *train.Outcome) *timeline.Step {
	return timeline.NewStep(r.Chain, r.Chain, r.Plan.Plan, r.Plan.Work, o.Measured)
}

// runPipeline is how a finished run went along its plan.
func runPipeline(r *train.Run, o *train.Outcome) (*timeline.Pipeline, error) {
	p, err := timeline.NewPipeline(r.Plan.Costs, r.Plan.Plan, r.Plan.Needs, r.Plan.Holds)
	if err != nil {
		return nil, err
	}
	for _, d := range o.Pipe.Devices {
		p.Names = append(p.Names, d.Name)
	}
	p.Ran.Tasks = o.Tasks // of a step from its beginning on: its time is the measured one
	return p, nil
}

// step is the step in the middle of a row.
func (g *Grid) step(row *Row) *timeline.Step {
	return timeline.NewStep(g.Chain, g.Latest, row.Plan, g.Job.Work, row.Measured)
}
