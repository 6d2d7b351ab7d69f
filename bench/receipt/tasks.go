package receipt

import (
	"maps"
	"slices"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Tasks is a step along a plan for several devices, as it ran. Chain, platform and the plan's order are the prediction.
type Tasks struct {
	Chain    *chain.Chain
	Platform *pipeline.Platform
	Plan     *pipeline.Plan
	Took     map[int]float64 // seconds of the tasks that compute, by their position in the plan
	// Predicted is the predicted time of a step and Measured its time, seconds. Updates is the part of that in which updates ran behind the last
	// task.
	Predicted, Measured, Updates float64
}

// NewTasks makes the receipt of a step. The plan replayed with the times that its tasks took has the cost of slow tasks; the rest of the step
// are messages and waits. Errors: those of pipeline.Replay.
func NewTasks(t Tasks) (*Receipt, error) {
	planned, err := pipeline.Simulate(t.Chain, t.Platform, t.Plan, pipeline.Noise{})
	if err != nil {
		return nil, err
	}
	replayed, err := pipeline.Replay(t.Chain, t.Platform, t.Plan, t.Took)
	if err != nil {
		return nil, err
	}
	updates := pipeline.UpdateSeconds(t.Chain, t.Platform, t.Plan)
	slower := (t.Predicted - updates) * (replayed.PerMinibatch/planned.PerMinibatch - 1)
	a := attribution{}
	a.by[Ops], a.by[Update] = signedDuration(slower), signedDuration(t.Updates-updates)
	costs := map[int]float64{}
	for _, s := range planned.Spans {
		costs[s.Task] = s.End - s.Start
	}
	for _, i := range slices.Sorted(maps.Keys(t.Took)) {
		task := t.Plan.Tasks[i]
		a.worst = append(a.worst, OpGap{task.String(), t.layers(t.Plan.Stages[task.Stage]), signedDuration(t.Took[i] - costs[i])})
	}
	r := a.receipt()
	r.Predicted, r.Measured, r.Steps, r.devices = signedDuration(t.Predicted), signedDuration(t.Measured), 1, true
	r.By[Messages] = r.Gap() - r.By[Ops] - r.By[Update]
	return r, nil
}

// layers names the layers of a stage.
func (t *Tasks) layers(s pipeline.Stage) string {
	first, last := t.Chain.Layer(s.First).Name, t.Chain.Layer(s.Last).Name
	if first == last {
		return first
	}
	return first + " to " + last
}

// signedDuration rounds seconds of either sign.
func signedDuration(seconds float64) time.Duration {
	if seconds < 0 {
		return -schedule.Duration(-seconds)
	}
	return schedule.Duration(seconds)
}
