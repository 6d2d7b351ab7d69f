// Package loadline partitions a chain into stages that recompute, and offload, just as much as their memory asks.
//
// The base is the dynamic program of the best contiguous partition under 1F1B* (package partition). A stage that does not fit unchanged may
// run a sequence of its own: rotor's, for as many minibatches as are in flight there. So the result is never slower than the contiguous
// partition with the same memory, and it has plans where that partition has none. If the platform has a bandwidth between devices and their
// host, such a stage may offload the data that it keeps between forward and backward. It offloads only if that makes the period shorter, or
// a plan possible.
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
