package timeline

import (
	"slices"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/pipeline"
)

// Stretch is a part of a run: when its tasks ran, and what of that counts. The steady state of a run is from the end of one
// period to the end of a later one; a step is a stretch of its own.
type Stretch struct {
	Tasks    []pipe.Timing
	From, To float64 // seconds
}

// Seconds is how long it was.
func (s Stretch) Seconds() float64 { return s.To - s.From }

// Ends returns for each of n periods when the last task of its minibatches ended. Period i has the minibatches from i*repeats on.
func Ends(tasks []pipe.Timing, repeats, n int) []float64 {
	all := make([]float64, n)
	for _, t := range tasks {
		if i := t.Minibatch / repeats; i < n && t.Kind != pipeline.Update {
			all[i] = max(all[i], t.End)
		}
	}
	return all
}

// Idle returns the share of the stretch in which each of n devices computes nothing.
func (s Stretch) Idle(devices int) []float64 {
	all := slices.Repeat([]float64{1}, devices)
	for _, t := range s.Tasks {
		if t.Computes() {
			all[t.Device] -= max(0, min(t.End, s.To)-max(t.Start, s.From)) / (s.To - s.From)
		}
	}
	return all
}
