package pipeline

import "plimsoll/planner/pipeline"

// TaskSeconds returns how long the tasks that compute took, by their position in a plan that repeats them, in the order of ran.
func TaskSeconds(plan *pipeline.Plan, ran []Timing) map[int][]float64 {
	type task struct {
		kind           pipeline.Kind
		stage, residue int
	}
	at, k := map[task]int{}, plan.Repeats()
	for i, t := range plan.Tasks {
		at[task{t.Kind, t.Stage, (t.Shift%k + k) % k}] = i
	}
	all := map[int][]float64{}
	for _, t := range ran {
		if i, ok := at[task{t.Kind, t.Stage, t.Minibatch % k}]; ok && t.Computes() {
			all[i] = append(all[i], t.End-t.Start)
		}
	}
	return all
}
