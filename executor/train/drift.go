package train

import (
	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/planner/schedule"
)

// measureDevice adds how long the device of a sequence computed nothing, and how far it went from its profile.
func (l *loop) measureDevice(idle *idleness) (err error) {
	if l.busy > 0 {
		l.out.Idle = idle.shares(l.busy.Seconds())
	}
	l.out.Drift, err = l.drift()
	return err
}

// drift compares a run along a sequence with its prediction; nil where no step was left to run.
func (l *loop) drift() (*Drift, error) {
	times, p := l.recent.Times(), l.Plan
	if len(times) == 0 {
		return nil, nil
	}
	d := &Drift{}
	d.Factor, d.Ops = l.recent.Drift(l.Chain, p.Sequence())
	c := executor.Drifted(l.Chain, d.Factor)
	sim, err := schedule.Simulate(c, p.Sequence(), p.Limits())
	if err != nil {
		return nil, err
	}
	d.PredictedS = float64(l.Job.parts())*sim.Makespan + executor.UpdateSeconds(c)
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
