// Package loadline partitions a chain into stages that recompute just as much as their memory asks.
//
// It is the dynamic program of the best contiguous partition under 1F1B* (package partition) in which a stage that does not
// fit as it is may run a sequence of its own: rotor's, for as many minibatches as are in flight there. So it is never slower
// than the contiguous partition with the same memory, and it has plans where that has none.
//
// # A stage with ops
//
// A stage of layers i..j with ops (pipeline.Stage.Ops) runs, for each minibatch, a forward part F and a backward part B; other
// minibatches' parts come between. Its ops are forwards and backwards of layers i..j, in the numbers of the whole chain, with
// the semantics of package schedule; F ends with the first op that computes layer j, and B is the rest. In a plan F and B are
// one task each, of the times of their ops.
//
// What a minibatch holds, beside the weights and the communication buffers:
//
//	while F runs    a_{i-1}, and what the ops have made so far, with the op's output and overhead
//	between         a_{i-1}, and what F leaves: K bytes together. A plain a_j goes, it is in the send buffer; an a_j that
//	                is part of a saved set stays
//	while B runs    that and δ_j, copied from the receive buffer, and so on to δ_{i-1}, which goes when B ends
//
// With R the most bytes that one minibatch holds while F or B runs, a stage in which at most g minibatches are live at once
// (from the start of F to the end of B) needs at most
//
//	copies·W(i,j) + Buffers(i,j) + (g-1)·K + R
//
// Proof: the device runs one part at a time, so that at any instant at most one live minibatch is inside F or B and holds at
// most R; all others live are between and hold K each, and they are at most g-1. When none is inside, at most g hold K each,
// and K <= R: F's last instant holds all of K, or it holds more. For g = 1 the bound is reached: R is what some op reaches, and
// the sum is exactly what it takes. For g > 1 it is reached when a part's peak falls on an instant with g live minibatches.
//
// A stage without ops is counted as the plan's accounting says, as everywhere (shared rules of pipeline plans). Neither checker
// of such plans covers stages with ops: Check here does.
package loadline

import "plimsoll/planner/pipeline"

// Strategies returns the registry entries of this package.
func Strategies() []pipeline.Strategy {
	return []pipeline.Strategy{{
		Name: "loadline", Type: pipeline.Partitioner,
		Summary: "the best contiguous stages, each of which recomputes just as much as its memory asks; never slower than contiguous",
		Paper:   "Plimsoll", Section: "contiguous (thesis, 7.1.1) over rotor (thesis, Theorem 6)",
		Solve: solve,
	}}
}
