package train

import (
	"cmp"
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
	sim, err := p.simulate(p.Costs.Chain)
	if err != nil {
		return err
	}
	c.out.Idle = c.idleTasks(sim)
	times := c.recent.Times()
	if p.stepwise() {
		times = times[:0]
		for _, tasks := range c.timings {
			times = append(times, lastEnd(tasks))
		}
	}
	c.out.Drift, err = c.drift(c.timedTasks(), times, func(drifted *chain.Chain) (float64, error) {
		o, err := p.simulate(drifted)
		if err != nil {
			return 0, err
		}
		return p.taskSeconds()*o.PerMinibatch/sim.PerMinibatch + pipeline.UpdateSeconds(drifted, p.Costs.Platform, p.Plan), nil
	})
	return err
}

// tellsTime reports whether the time of a stage's tasks is that of their ops. Within a task of a stage that recomputes or offloads, ops wait for
// gradients and copies.
func (p *JobPlan) tellsTime(stage int) bool { return len(p.Stages[stage].Ops) == 0 }

// MeasureTasks returns the seconds that tasks of a plan took, by their position in it: the median of each, of stages whose tasks do not wait.
func (p *JobPlan) MeasureTasks(ran []pipe.Timing) map[int]float64 {
	took := map[int]float64{}
	for i, all := range pipe.TaskSeconds(p.Plan, ran) {
		if p.tellsTime(p.Tasks[i].Stage) {
			took[i] = stats.Median(all)
		}
	}
	return took
}

// idleTasks returns how long the devices computed nothing. The plan alone leaves a share of its own time idle. Tasks that wait count with their
// costs.
func (c *pipelineEngine) idleTasks(sim *pipeline.Outcome) *Idle {
	if !(c.out.MeasuredS > 0) {
		return nil
	}
	p, ran := c.Plan, slices.Concat(c.timings...)
	took, costs := p.MeasureTasks(ran), p.taskCosts()
	busy, used := 0.0, map[int]bool{}
	for i, t := range p.Tasks {
		if t.Kind.Communication() {
			continue
		}
		seconds, measured := took[i]
		if !measured {
			seconds = costs[taskOf{t.Device, t.Stage, t.Kind}]
		}
		busy, used[t.Device] = busy+seconds, true
	}
	first, last := 0, -1 // minibatches that updates belong to
	for _, t := range ran {
		if t.Computes() && (last < 0 || t.Minibatch < first) {
			first = t.Minibatch
		}
		last = max(last, t.Minibatch)
	}
	for _, t := range ran {
		if t.Kind == pipeline.Update {
			busy += (t.End - t.Start) * float64(p.Repeats()) / float64(last-first+1)
		}
	}
	length := p.Predicted.Makespan // of all that repeats
	planned := length / c.out.MeasuredS
	if !p.IsFlush() {
		length, planned = cmp.Or(p.Predicted.Period, p.Period), c.out.PredictedS/c.out.MeasuredS
	}
	i := &Idle{Share: max(1-busy*planned/(length*float64(len(used))), 0)}
	i.Data = min(c.out.DataWaitShare, i.Share)
	i.Bubble = min(sim.Bubble*planned, i.Share-i.Data)
	i.Host = i.Share - i.Data - i.Bubble
	return i
}

// timedTasks returns the tasks of each step, or without a flush of each period, with their costs.
func (c *pipelineEngine) timedTasks() (all [][]executor.TimedOp) {
	costs := c.Plan.taskCosts()
	for _, tasks := range c.timings {
		steps := map[int][]executor.TimedOp{}
		for _, t := range tasks {
			if t.Computes() && c.Plan.tellsTime(t.Stage) {
				step := t.Minibatch / c.Plan.Repeats()
				steps[step] = append(steps[step], executor.TimedOp{Interval: executor.Interval{Start: t.Start, End: t.End}, Cost: costs[taskOf{t.Device, t.Stage, t.Kind}]})
			}
		}
		for _, step := range steps {
			all = append(all, step)
		}
	}
	return all
}
