package cycle

import "math"

// NoLimit is the memory limit of a simulation in which nothing waits for memory.
const NoLimit = math.MaxInt64

// Limits holds the memory that a plan may use and the rule that its updates keep.
type Limits struct {
	Memory int64 // bytes of device memory; NoLimit for none
	Host   int64 // bytes of host memory; NoLimit for none
	// UpdatesLast refuses updates before the last backward of their step: clipping, and skipping a step whose gradients are not finite,
	// need all gradients first.
	UpdatesLast bool
	// Waits lists, by position, the positions of ops that the op there waits for, beside those that it waits for by the rules. Of each it waits
	// for the latest before it, in its step or in the one before. A layout in memory makes an op wait for those whose bytes it takes over.
	Waits [][]int
	// Steps is the number of steps after which a plan whose state has not repeated counts as one without a steady state; 0: mostSteps.
	// Searches give up slow plans earlier.
	Steps int
}

// Result holds the costs of a cyclic plan. Times are seconds.
type Result struct {
	Period float64 // mean time of a step of the steady state
	// WarmUp is the number of steps before the state repeats for the first time, Repeats the number of steps after which it does.
	WarmUp, Repeats int
	Peak            int64 // most bytes of the device in use
	PeakStep        int   // step and position of the op at whose start the peak is reached first; -1: what is resident takes it
	PeakOp          int
	Resident        int64 // bytes of the device in use when a step begins and nothing runs
	// InOrderPeak is the peak when every op runs alone, in the order of the sequence. Where it is within the limit, a device that grants
	// memory in this order never waits for ever, whatever the durations are.
	InOrderPeak int64
	HostPeak    int64            // most bytes of host memory in use, the homes of what moves included
	Busy        [streams]float64 // seconds of a step in which ops of each kind run; those of one link add up
	Starts      []Start          // in the order of time, from the first step on
}

// Start is the start of an op.
type Start struct {
	Step, Position int
	Start, End     float64 // seconds from the start of the first step
	Used           int64   // bytes of the device in use from then on
}
