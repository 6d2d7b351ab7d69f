package train

import (
	"slices"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/stats"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// measureTasks fills in how long the devices of a pipeline computed nothing in the latest steps, and how far they went from their profile.
func (c *pipelineEngine) measureTasks() error {
	p := c.Plan
	if len(c.timings) == 0 {
		return nil
	}
	sim, err := p.simulated(p.Costs.Chain)
	if err != nil {
		return err
	}
	c.out.Idle = c.idleTasks(sim.Bubble)
	times := c.recent.Times()
	if p.stepwise() {
		times = times[:0]
		for _, tasks := range c.timings {
			times = append(times, lastEnd(tasks))
		}
	}
	c.out.Drift, err = c.drift(c.timedTasks(), times, func(drifted *chain.Chain) (float64, error) {
		o, err := p.simulated(drifted)
		if err != nil {
			return 0, err
		}
		return c.out.PredictedS * o.PerMinibatch / sim.PerMinibatch, nil
	})
	return err
}

// simulated plays the tasks of the plan with the costs of a chain.
func (p *JobPlan) simulated(c *chain.Chain) (*pipeline.Outcome, error) {
	return pipeline.Simulate(c, p.Costs.Platform, p.Plan, pipeline.Noise{})
}

// TookOf returns the seconds of the tasks that ran of a plan, by position in the plan: the median of each. All that a plan does in a step, or in a
// period, takes so long on its devices together; updates is what all updates took of them.
func (p *JobPlan) TookOf(ran []pipe.Timing) (tasks map[int]float64, updates float64) {
	tasks, passes := map[int]float64{}, 1
	for i, all := range pipe.TaskSeconds(p.Plan, ran) {
		tasks[i], passes = stats.Median(all), max(passes, len(all))
	}
	for _, t := range ran {
		if t.Kind == pipeline.Update {
			updates += (t.End - t.Start) / float64(passes)
		}
	}
	return tasks, updates
}

// idleTasks returns how long the devices computed nothing. The plan alone leaves a share of its own time idle.
func (c *pipelineEngine) idleTasks(bubble float64) *Idle {
	if !(c.out.MeasuredS > 0) {
		return nil
	}
	tasks, busy := c.Plan.TookOf(slices.Concat(c.timings...))
	for _, took := range tasks {
		busy += took
	}
	p := c.Plan
	length := p.Predicted.Makespan // of all that repeats
	if !p.IsFlush() {
		length = p.Period
	}
	planned := c.out.PredictedS / c.out.MeasuredS
	i := &Idle{Share: max(1-busy*planned/(length*float64(p.used())), 0), Data: c.out.DataWaitShare}
	i.Bubble = min(bubble*planned, i.Share)
	i.Host = max(i.Share-i.Data-i.Bubble, 0)
	return i
}

// used returns how many devices hold a stage.
func (p *JobPlan) used() int {
	on := map[int]bool{}
	for _, st := range p.Stages {
		for _, d := range st.Devices {
			on[d] = true
		}
	}
	return len(on)
}

// timedTasks returns the tasks of each step and device, with their costs.
func (c *pipelineEngine) timedTasks() (all [][]executor.TimedOp) {
	costs := c.Plan.taskCosts()
	for _, step := range c.timings {
		on := make([][]executor.TimedOp, c.Plan.devices())
		for _, t := range step {
			if t.Op != 0 || t.Kind == pipeline.Update {
				continue
			}
			on[t.Device] = append(on[t.Device], executor.TimedOp{Interval: executor.Interval{Start: t.Start, End: t.End}, Cost: costs[taskOf{t.Device, t.Stage, t.Kind}]})
		}
		all = append(all, on...)
	}
	return all
}
