package pipeline

import (
	"cmp"
	"math/rand/v2"
)

// Noise perturbs durations. The zero Noise leaves them alone.
type Noise struct {
	Fraction float64 // each duration is multiplied by a factor drawn evenly from [1-Fraction, 1+Fraction]; 0 to 1
	Seed     uint64
	Periods  int // of a periodic plan: how many to run (default: enough to reach the steady state)
}

// Outcome is a simulated run.
type Outcome struct {
	// Period is the time between two periods in the steady state, seconds; of a flush plan 0.
	Period float64
	// Makespan is the time from the start of the first task to the end of the last one, seconds, of all that ran.
	Makespan float64
	// PerMinibatch is the time of one pass through the chain: the period over k, the makespan over the microbatches.
	PerMinibatch  float64
	Bubble        float64 // idle fraction of the devices that hold a stage, in the steady state
	PerDevicePeak []int64 // bytes; of stages with ops, as if they had none
	Spans         []Span  // in the order of their start
}

// Span is a task, or a message between replicas, that ran.
type Span struct {
	Task       int     // its position in the plan; of a message between replicas its position behind all tasks
	Minibatch  int     // minibatch or microbatch; of a message between replicas the last of the round
	Start, End float64 // seconds
	Early      float64 // of a backward that recomputes first: by how much it may start before its gradient, seconds
}

func byTime(a, b Span) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) }

// factor draws the factor of a turn of a task, or of an op of a sequence.
func (n Noise) factor(task, turn int) float64 {
	if n.Fraction == 0 {
		return 1
	}
	rnd := rand.New(rand.NewPCG(n.Seed, uint64(task)<<32|uint64(turn)))
	return 1 + n.Fraction*(2*rnd.Float64()-1)
}
