// Package joint chooses together what other strategies choose one after the other, or not at all: the stages, how many replicas each has,
// and what each recomputes.
//
// It extends loadline's dynamic program: a stage may have several devices that take minibatches in turn. A stage recomputes in the memory
// that its minibatches in flight leave. Its replicas synchronize their gradients over links that have to find the time for it. The package
// judges plans of loadline and pipedream beside its own; loadline's stages may offload, and its devices may have several stages. So it is
// never slower than these, than contiguous and madpipe, than one device or than data parallelism.
package joint

import "plimsoll/planner/pipeline"

// Strategies returns the registry entries of this package.
func Strategies() []pipeline.Strategy {
	return []pipeline.Strategy{
		{
			Name: name, Type: pipeline.Partitioner,
			Summary: "stages, their replicas and what each recomputes, chosen together, synchronization counted; never slower than loadline and pipedream",
			Paper:   "Plimsoll", Section: "loadline with replicas (PipeDream, 3.1 and 3.2)",
			Solve: solve, Parts: parts,
		},
		{
			Name: flushing, Type: pipeline.Flushing,
			Summary: "copies of 1f1b-recompute's pipeline that share the microbatches: how many, their stages and what these recompute",
			Paper:   "Plimsoll", Section: "1f1b-recompute with data parallelism",
			Solve: solveFlush, Parts: flushParts,
		},
		{
			Name: automatic, Type: pipeline.Flushing,
			Summary: "the fastest of joint-flush and all schedules with a flush, by the simulation with everything counted",
			Paper:   "Plimsoll", Section: "a choice among the schedules below",
			Solve: solveAuto, Parts: autoParts,
		},
	}
}
