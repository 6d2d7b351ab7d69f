package train

import (
	"errors"

	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// measureDevice adds how long the device of a sequence computed nothing, and how far it went from its profile.
func (l *loop) measureDevice(idle *idleness) (err error) {
	if l.busy > 0 {
		l.out.Idle = idle.shares(l.busy.Seconds())
	}
	p := l.Plan
	l.out.Drift, err = l.drift(l.recent.Ops(p.Costs.Chain, p.Sequence()), l.recent.Times(), func(c *chain.Chain) (float64, error) {
		sim, err := schedule.Resimulate(p.Costs.Chain, c, p.Sequence(), p.Limits())
		if err != nil {
			return 0, err
		}
		return float64(l.Job.parts())*sim.Makespan + executor.UpdateSeconds(c), nil
	})
	return err
}

// drift compares the steps of a run on one device, their ops and their times, with their prediction by a chain. It returns nil where no step
// was left to run, and where a cyclic plan fits with the times alone that it was made for.
func (l *loop) drift(steps [][]executor.TimedOp, times []float64, predict func(*chain.Chain) (float64, error)) (d *Drift, err error) {
	if len(times) == 0 {
		return nil, nil
	}
	d = &Drift{}
	d.Factor, d.Ops = executor.Drift(steps)
	d.PredictedS, err = predict(executor.Drifted(l.Plan.Costs.Chain, d.Factor))
	if errors.As(err, new(*cycle.MemoryError)) || errors.Is(err, cycle.ErrNoSteadyState) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	errorOf := func(predicted, measured float64) float64 {
		if !(measured > 0) {
			return 0
		}
		return (measured - predicted) / measured
	}
	d.Error, d.Without = errorOf(d.PredictedS, l.out.MeasuredS), errorOf(l.out.PredictedS, l.out.MeasuredS)
	d.Interval[0], d.Interval[1] = stats.Interval([][]float64{times}, func(m []float64) float64 { return errorOf(d.PredictedS, m[0]) })
	return d, nil
}
