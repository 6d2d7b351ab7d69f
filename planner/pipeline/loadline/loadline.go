// Package loadline partitions a chain into stages that recompute, and offload, just as much as their memory asks.
//
// It is the dynamic program of the best contiguous partition under 1F1B* (package partition) in which a stage that does not
// fit as it is may run a sequence of its own: rotor's, for as many minibatches as are in flight there. So it is never slower
// than the contiguous partition with the same memory, and it has plans where that has none. Where the platform says how fast
// devices talk to their host, such a stage may offload what it keeps between forward and backward; that is only done where it
// makes the period shorter, or a plan possible.
//
// # A stage with ops
//
// A stage of layers i..j with ops (pipeline.Stage.Ops) runs, for each minibatch, a forward part F and a backward part B; other
// minibatches' parts come between. Its ops are forwards and backwards of layers i..j, in the numbers of the whole chain, with
// the semantics of package schedule; F ends with the first op that computes layer j, and B is the rest. In a plan F and B are
// one task each, of the times of their ops.
//
// What a minibatch of a stage without transfers holds, beside the weights and the communication buffers:
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
// # A stage with transfers
//
// Ops may be transfers too, with one minibatch a period and a link between each device and its host (Platform.Host, bytes/s;
// one for each direction where the platform is duplex): offloads in F, each once, and their prefetches in B. A compute op does
// not wait for a transfer; when transfers run follows from the plan, the same in every period:
//
//	prefetches    in their order, each as late as the link allows: it ends before the first op of B begins that reads the
//	              activation, and before the next prefetch of the minibatch begins; it may begin before B does
//	offloads      in their order, each as early as the link, with all prefetches on it, allows: after every op of F before it,
//	              and the offload before it, has ended
//
// The link does one thing at a time, modulo the period: the transfers of all minibatches in flight are on it. A plan in which a
// transfer finds no time, or a prefetch begins before its offload has ended, is refused.
//
// The memory is the sum over all live minibatches at every instant of the period, exactly: each is counted as above, but an
// activation that is offloaded only until the transfer, and the op that directly follows the offload and may still read it, have
// ended, and from the start of its prefetch on.
//
// A stage without ops is counted as the plan's accounting says, as everywhere (shared rules of pipeline plans). Neither checker
// of such plans covers stages with ops: Check here does.
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
