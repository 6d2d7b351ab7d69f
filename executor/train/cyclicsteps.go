package train

import (
	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/stats"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
)

// cyclicSteps is the latest steps of a run along a cyclic plan, as they ran.
type cyclicSteps struct {
	sim     *cycle.Simulator
	plan    *cycle.Result
	spans   []cycle.Span
	windows []cycle.Window // each of as many steps as the plan repeats after
}

// measureCycle fills in when the ops of a cyclic plan ran, and the step in the middle of the latest ones, whose time is then the measured one.
func (c *pipelineEngine) measureCycle() error {
	p := c.Plan
	tasks, err := c.x.Timings()
	if err != nil {
		return err
	}
	c.out.Tasks, c.out.MeasuredRunS = tasks, c.busy.Seconds()
	if c.out.PredictedRunS, err = c.predictRun(); err != nil {
		return err
	}
	s := &cyclicSteps{spans: pipe.CycleSpans(p.Plan, tasks)}
	if s.sim, s.plan, err = p.PlayCycle(p.Costs.Chain, p.Costs.Platform); err != nil {
		return err
	}
	s.windows = s.sim.Windows(s.spans, s.plan.WarmUp, s.plan.Repeats)
	if len(s.windows) == 0 {
		return nil
	}
	c.out.Window = s.windows[stats.Middle(s.windows, s.seconds)]
	c.out.MeasuredS = s.seconds(c.out.Window)
	c.out.Idle = s.idle(c.out.DataWaitShare)
	var steps [][]executor.TimedOp
	var times []float64
	for _, w := range s.windows {
		steps, times = append(steps, s.timed(w)), append(times, s.seconds(w))
	}
	c.out.Drift, err = c.drift(steps, times, func(drifted *chain.Chain) (float64, error) {
		_, r, err := p.PlayCycle(drifted, p.Costs.Platform)
		if err != nil {
			return 0, err
		}
		return r.Period, nil
	})
	return err
}

// predictRun returns how long all segments of a run along a cyclic plan take, each of which has a first and a last step.
func (c *pipelineEngine) predictRun() (seconds float64, err error) {
	run, err := c.Plan.RunCycle(c.Plan.Costs.Chain, c.Plan.Costs.Platform)
	if err != nil {
		return 0, err
	}
	for _, steps := range c.passed {
		took, err := run.Seconds(steps)
		if err != nil {
			return 0, err
		}
		seconds += took
	}
	return seconds, nil
}

// seconds returns the time of a step of a window.
func (s *cyclicSteps) seconds(w cycle.Window) float64 { return w.Length().Seconds() / float64(w.Steps) }

// timed returns the ops that ran in a window, with their costs.
func (s *cyclicSteps) timed(w cycle.Window) (all []executor.TimedOp) {
	for _, x := range s.sim.Replay(s.spans, w) {
		if !x.Ran || x.Stream == cycle.Compute && !x.Inside {
			continue
		}
		op := executor.TimedOp{Interval: executor.Interval{Start: x.Start.Seconds(), End: x.End.Seconds()}}
		if x.Stream == cycle.Compute {
			op.Cost = x.Cost.Seconds()
		}
		all = append(all, op)
	}
	return all
}

// streamNames are the names of streams in JSON.
var streamNames = [...]string{cycle.Compute: "compute", cycle.ToDevice: "host_to_device", cycle.ToHost: "device_to_host", cycle.Host: "host_updates"}

// idle returns how long the streams did nothing in all windows, and why the device computed nothing. Batches are copied within ops.
func (s *cyclicSteps) idle(data float64) *Idle {
	var busy [len(streamNames)]float64
	var all, copies float64
	uses := [len(streamNames)]bool{}
	for _, w := range s.windows {
		all += w.Length().Seconds()
		for _, x := range s.sim.Replay(s.spans, w) {
			uses[x.Stream] = uses[x.Stream] || x.Ran
			if part := min(x.End, w.Until) - max(x.Start, w.From); part > 0 {
				busy[x.Stream] += part.Seconds()
			}
			copies += (x.Wait.Transfer + x.Wait.Memory).Seconds()
		}
	}
	i := &Idle{Share: max(1-busy[cycle.Compute]/all, 0), Data: data, Copies: copies / all}
	i.Host = max(i.Share-i.Data-i.Copies, 0)
	for stream, name := range streamNames {
		if uses[stream] {
			i.Streams = append(i.Streams, StreamIdle{name, max(1-busy[stream]/all, 0)})
		}
	}
	return i
}
