package pipeline

import (
	"fmt"
	"math"
	"math/big"

	"plimsoll/planner/cycle"
	"plimsoll/planner/schedule"
)

// Report holds the figures of a checked plan. Seconds are exact values rounded once, bytes exact ones rounded up.
type Report struct {
	Period   float64 // seconds, of a periodic plan
	Makespan float64 // seconds, of a flush plan: the end of its last task or message
	// PerMinibatch is the time of one pass through the chain: the period over k, the makespan over the microbatches.
	PerMinibatch float64
	// LowerBound is the plan's word, seconds, for how short PerMinibatch can be; 0 where the plan says nothing, or has a shorter time itself.
	LowerBound float64
	NCA        []int // of each stage: the most live minibatches on one of its devices
	// Missed are, for each stage of a periodic plan, the fewest and the most updates of earlier rounds (Plan.Round) that a minibatch
	// misses when it enters. They tell how stale weights are with versions stash and latest. An update is made when its
	// synchronization has ended.
	Missed [][2]int
	// Replicated is when the gradients of each stage with replicas and weights are added up.
	Replicated []Replicated

	PerDevicePeak    []int64   // bytes
	PerDeviceWeights []int64   // bytes of the peak that are weights, all copies
	PerDeviceBuffers []int64   // bytes of the peak that are communication buffers
	PerDeviceBusy    []float64 // seconds of compute
	PerDeviceBubble  []float64 // idle fraction of the period or makespan; 0 for a device without a stage
	Bubble           float64   // idle fraction over all devices that hold a stage

	Sequence *schedule.Result // of a plan for one device: when its ops run, and its memory over time

	CyclePeak *CyclePeak // of a cyclic plan

	Warnings []string // what the plan says about itself and is otherwise: peaks, makespan, bound
}

// predict gives a plan the figures of the report.
func (r *Report) predict(p *Plan) {
	p.PerDevicePeak, p.Predicted.Makespan, p.Predicted.Period = r.PerDevicePeak, r.Makespan, 0
	if r.Period != p.Period {
		p.Predicted.Period = r.Period
	}
}

// check judges the times and the memory of a layout.
type check struct {
	*layout
	span ticks // period, or makespan of a flush plan
	eps  ticks
}

// span returns the period, or the makespan of a flush plan.
func (l *layout) span() ticks {
	if l.period != nil {
		return l.period
	}
	span := new(big.Int)
	for _, j := range l.jobs {
		if end := j.end(); less(span, end) {
			span = end
		}
	}
	return withTies(l, span)
}

// Replicated is when the gradients of the replicas of a stage are added up.
type Replicated struct {
	Stage, Replicas int
	Parts           int     // into which buckets are divided: 1, or as many as there are replicas
	Zero            Zero    // what they divide beside gradients
	Buckets         int     // of layers; 0: the plan has no messages for them, adding up takes no time
	Behind          float64 // seconds from the end of the last backward of a round to the last message, in the round where that is longest
}

func (k *check) agrees(said float64, length ticks) bool {
	if !(math.Abs(said) <= math.MaxFloat64) {
		return false
	}
	off := exact(said)
	off.Sub(off, new(big.Rat).SetFrac(length, k.unit))
	return off.Abs(off).Cmp(new(big.Rat).SetFrac(k.eps, k.unit)) <= 0
}

// atTask says which task makes a peak, if one is known.
func (k *check) atTask(task int) string {
	if task == None {
		return ""
	}
	return fmt.Sprintf(" at task %d, %v", task, k.plan.Tasks[task])
}

// hold is bytes in the memory of a device from the start of a task on.
type hold struct {
	bytes int64
	stage int // of a live minibatch; None for a tensor that waits between two stages
	task  int // the task that takes the memory
}

// CyclePeak lists the bytes on the device when a cyclic plan needs most of it.
type CyclePeak struct {
	Op    int // position of the op that starts then; -1: none does
	Parts []cycle.Hold
}

// only returns figures of all devices of which the first alone does something.
func only[T any](p *Platform, first T) []T {
	all := make([]T, p.Devices)
	all[0] = first
	return all
}
