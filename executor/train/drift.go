package train

import (
	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/planner/schedule"
)

// Drift is how far a machine went from its profile while a run lasted, and what the prediction is worth apart from that. The reference are
// the run's own ops beside which nothing was copied (executor.Recent.Drift): of a plan without transfers they are all of them, and what is
// left of the error is launches, waits and the update.
type Drift struct {
	Factor     float64    `json:"factor"` // costs of ops in the run over those in the chain
	Ops        float64    `json:"reference_ops"`
	PredictedS float64    `json:"predicted_s_per_step"` // with costs times the factor
	Error      float64    `json:"error"`                // of PredictedS, as a share of the measured time; above 0: the step was slower
	Interval   [2]float64 `json:"error_interval"`       // of Error, 95 %, by how much steps vary
	Without    float64    `json:"error_without"`        // of the prediction by the costs of the chain
}

// drift compares a run on one device with its prediction; nil where no step was left to run.
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
