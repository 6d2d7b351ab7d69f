// Package flush schedules pipelines that empty before every weight update: forwards and backwards of m microbatches, then the update.
//
// A schedule (recipe) is an order of work for each device; one list scheduler turns it into times, for any costs of stages, links and
// messages. On equal stages without communication the times are the published formulas. A schedule takes the stages that it is given, or
// divides the chain into stages of equal time. F is a forward, B a backward; if the backward is split, B is its input half and W its weight
// half. P is the number of devices, m of microbatches, v of stages on each device. Ranks number devices in the order of the pipeline.
package flush

import "plimsoll/planner/pipeline"

// Strategies returns the flush schedules, and those that do the opposite and never empty, in the order in which they are
// shown.
func Strategies() []pipeline.Strategy {
	var out []pipeline.Strategy
	for _, r := range recipes() {
		out = append(out, r.strategy())
	}
	out = append(out, checkpointing(), recompute1F1B())
	for _, a := range streams() {
		out = append(out, a.strategy())
	}
	return out
}

func streams() []asynchronous { return []asynchronous{ampnet(), pipemare()} }

func recipes() []recipe {
	return []recipe{
		gpipe(), oneForwardOneBackward(), interleaved(), loopedBFS(), chimera(),
		zbH1(), zbH2(), zbV(), vHalf(), vMin(), dualPipeV(),
	}
}
