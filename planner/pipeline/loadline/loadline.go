// Package loadline partitions a chain into stages that recompute, and offload, just as much as their memory asks.
//
// It is the dynamic program of the best contiguous partition under 1F1B* (package partition) in which a stage that does not
// fit as it is may run a sequence of its own: rotor's, for as many minibatches as are in flight there. So it is never slower
// than the contiguous partition with the same memory, and it has plans where that has none. Where the platform says how fast
// devices talk to their host, such a stage may offload what it keeps between forward and backward; that is only done where it
// makes the period shorter, or a plan possible.
package loadline

import "plimsoll/planner/pipeline"

// Strategies returns the registry entries of this package.
func Strategies() []pipeline.Strategy {
	return []pipeline.Strategy{{
		Name: "loadline", Type: pipeline.Partitioner,
		Summary: "the best contiguous stages, each of which recomputes and offloads just as much as its memory asks; never slower than contiguous",
		Paper:   "Plimsoll", Section: "contiguous (thesis, 7.1.1) over rotor (thesis, Theorem 6) and its offloads",
		Solve: solve,
	}}
}
