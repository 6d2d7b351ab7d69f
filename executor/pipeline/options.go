package pipeline

import (
	"context"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/world"
)

// Costs are the chain and the platform that a plan was made with.
type Costs struct {
	Chain    *chain.Chain
	Platform *pipeline.Platform
}

// Result holds the loss and the predictions of one minibatch, or microbatch.
type Result struct {
	Minibatch int
	Loss      float64
	Correct   int
	Counted   int // labels that count
	// Norm is the norm of all gradients of the step together, before clipping. Only the last microbatch of a step of a plan
	// that flushes has it; else it is NaN.
	Norm float64
	// Skipped says, likewise, that the norm is not finite, and that the weights and the optimizer's state are as before.
	Skipped bool
}

// Options are how a plan is run.
type Options struct {
	Feed Feed
	Seed uint64 // of the weights and of dropout
	Past Past   // what this run goes on from
	// Rate is the learning rate of a step, from 0: of a plan with a flush, or of the minibatch with which an update begins.
	Rate func(step int) float32
	// PipeMare corrects weight versions "latest" for their delays; nil: no correction.
	PipeMare *PipeMare
	// DeferredBatchNorm moves BatchNorm's running statistics once for each step of a plan that flushes, by the mean and the
	// variance of the whole minibatch. Otherwise they move once for each microbatch.
	DeferredBatchNorm bool
	// MaxNorm clips the gradients of a step to this norm, all of them together; 0: no clipping. Only plans that flush can.
	MaxNorm float32
	// Limits are the bytes of each device's arena; nil or 0: as much as the plan needs.
	Limits []int64
	// HostLimit bounds the page-locked memory of each device, in bytes; 0: no limit.
	HostLimit int64
	// Group is how many minibatches make one update of a double buffered plan; 0: the plan's microbatches, or else as few
	// as two versions allow.
	Group int
	// Save takes what a device has of the state behind a segment that says so (Segment.Save), stage by stage, on a goroutine
	// of the device while training goes on. A device has page-locked memory for one state: where its next one comes before
	// Save is done with it, the device waits. It may be nil.
	Save func(*Snapshot)
	// Done is called for every minibatch when its loss is known, one call at a time. Calls come in the order in which the last stage
	// works, or each of its devices. It may be nil.
	Done func(Result)
	// Patience ends a run with a *StuckError when nothing has happened on any device for so long; 0: never. If a device
	// does not tell how far its streams are (Dump), only the issuing of work counts.
	Patience time.Duration
	// Pace gives tasks fixed durations: simulated time. May be nil.
	Pace Pace
	// World is the processes that run the plan together; nil: this one alone.
	World *World
	// AllReduce lets World's transport add up the gradients of stages whose replicas are in different processes.
	AllReduce bool
	// NoGraph issues the steps of a plan that flushes call by call, also on devices that could repeat tasks as graphs
	// (runtime.Grapher).
	NoGraph bool
	// Audit lets New run a step of a plan that flushes and stop after every op (Audited). New checks that the op wrote only to
	// memory held by it or by minibatches in flight. It leaves nothing behind.
	Audit bool
	// Observe is called behind every op of a sequence on one device, for everything that the op left. It is slow, like Audit; it may be nil.
	Observe func(Observation)
	// Timed records when every task ran (Timings); nil: nothing is recorded.
	Timed *Timed
}

// Past counts the work of a run that another one goes on from.
type Past struct {
	Minibatches int // of a plan with a flush whole steps, else any number, whatever plan they had
	// Updates are how often the weights of each layer were updated; nil: as often as this plan updates them in so many minibatches.
	Updates []int64
}

// Timed says what is recorded of when tasks ran.
type Timed struct {
	Periods int  // of the plan, that the records go back, about; 0: to the beginning of the run
	Ops     bool // of the last step of a run with a flush every op is recorded, too, every transfer and what brings batches
}

// World is the set of processes that run one plan together, each with some of its devices. Every process lays out, dry-runs and
// proves the tables of all devices, so that no process need be told of the work of others. It runs its own tables. Only bytes then
// cross between two processes, each message in the order of its channel.
type World struct {
	Ranks     []int // by device: of the process that has it
	Rank      int   // of this process
	Transport world.Transport
	// Broadcast returns the bytes that the process of a rank has given. All processes call it, at the same point of their work.
	Broadcast func(ctx context.Context, rank int, data []byte) ([]byte, error)
	// Fail tells all processes that this one has stopped. Tasks that wait for a message fail.
	Fail func(err error)
}

// has reports whether this process has a device; without a World it has all.
func (w *World) has(device int) bool { return w == nil || w.Ranks[device] == w.Rank }

// rank returns the number of the process that has a device; 0 without a World.
func (w *World) rank(device int) int {
	if w == nil {
		return 0
	}
	return w.Ranks[device]
}

// parts reports whether two devices are in different processes.
func (w *World) parts(a, b int) bool { return w != nil && w.Ranks[a] != w.Ranks[b] }

// stop tells the other processes that this one goes on no more.
func (w *World) stop(err error) {
	if w != nil {
		w.Fail(err)
	}
}

// Pace gives tasks a fixed duration in place of their kernels, on host devices: simulated time. Streams, events, memory and
// copies are real. The trained weights mean nothing.
type Pace func(kind pipeline.Kind, stage int) time.Duration

// PipeMare corrects training with `latest` weights for its delays, by two techniques of Yang et al. 2021. T1 reschedules
// learning rates (Rescheduled); T2 corrects the weights of the backward (discrepancy).
type PipeMare struct {
	// Anneal is K, the number of updates over which T1 is phased out; 0: without it.
	Anneal int
	// Decay is D, what is left of a change in T2's mean after as many updates as the delay; 0: without T2. The paper's is
	// 0.135.
	Decay float64
}

// Hold is a part of Memory's Working or InFlight, from the start of a task to the end of one.
type Hold struct {
	Stage     int
	Minibatch int // of a step, or of the first period: all that follow a period later hold the same
	// Task works in it; 0: the minibatch keeps it while it is in flight.
	Task pipeline.Kind
	// Behind is the task behind which it is held; 0: it is held from its task on, or of what is kept from the forward on.
	Behind pipeline.Kind
	Bytes  int64
	// It is given back at the end of the task Until of UntilStage.
	Until      pipeline.Kind
	UntilStage int
}

// limit returns the limit of a device, bytes; 0: it has none.
func (o *Options) limit(device int) int64 {
	if device < len(o.Limits) && o.Limits[device] > 0 {
		return o.Limits[device]
	}
	return 0
}
