package pipeline

import (
	"slices"

	"plimsoll/planner/pipeline"
)

// Kinds of instructions for messages between the replicas of a stage (pipeline.Synchronization). A gather has two: the device that
// waits for the sum lets it come, at the same place in the order of all instructions, just before the other one sends it.
const (
	reducing   = pipeline.Reducing
	gathering  = pipeline.Gathering
	admitting  = pipeline.Admitting
	owning     = pipeline.Owning     // a device adds the sum that has come to its own gradients; of a part (zero.go) its owner all that have come
	completing = pipeline.Completing // a device has all new weights of a stage whose parts have owners
	joining    = pipeline.Joining    // of sums that a library makes (collective.go): a device adds up some buckets together with all others of the line
)

// synchronized reports whether an instruction belongs to a message between replicas.
func (t instruction) synchronized() bool { return t.kind >= reducing && t.kind <= joining }

// message reports whether an instruction sends something.
func (t instruction) message() bool {
	return t.kind.Communication() || t.kind == reducing || t.kind == gathering
}

// computes reports whether an instruction is a task for kernels.
func (t instruction) computes() bool { return computes(t.kind) }

func computes(kind pipeline.Kind) bool {
	return kind == pipeline.F || kind == pipeline.B || kind == pipeline.W
}

// synchronization is how a plan lets the gradients of a stage's replicas be added up: in buckets of layers, along the line of its
// devices, and from the last of them along a tree to all others. Sums have the bits of those that the plan has no messages for.
type synchronization struct {
	line    []int    // devices
	round   int      // minibatches, or microbatches
	buckets []bucket // those of all rounds
	sources map[arrivalOf]int
	closing map[taskKey]bool // the last task of its kind on its device in a round

	together map[arrivalOf][]int // by residue and first of them: buckets that a library adds up at once; nil: none does

	reduces  []*channel          // by position in the line: to the next device
	scatters map[[2]int]*channel // by the two devices: of parts to their owners
	gathers  map[[2]int]*channel // likewise
}

// bucket is consecutive layers whose gradients go together, or a part of them.
type bucket struct{ first, last, part int }

// arrivalOf tells where the sum of a bucket comes from to a device, in the round that ends with a residue.
type arrivalOf struct{ residue, bucket, device int }

// synchronizations reads a plan's messages between replicas; nil for stages without.
func synchronizations(o *order) (all []*synchronization) {
	all = make([]*synchronization, len(o.on))
	for _, m := range o.plan.Synchronization {
		x := all[m.Stage]
		if x == nil {
			x = &synchronization{line: o.hosts(m.Stage), round: o.repeats, sources: map[arrivalOf]int{}, closing: map[taskKey]bool{}}
			if !o.plan.IsFlush() {
				x.round = o.plan.Round(m.Stage)
			}
			all[m.Stage] = x
		}
		if x.bucket(m) == none {
			x.buckets = append(x.buckets, bucket{m.First, m.Last, m.Part})
		}
		if m.Kind == pipeline.Gather {
			x.sources[arrivalOf{o.residue(m.Shift), x.bucket(m), m.To}] = m.From
		}
	}
	return all
}

// bucket returns which one a message carries; none: it is new.
func (x *synchronization) bucket(m pipeline.Synchronization) int {
	return slices.Index(x.buckets, bucket{m.First, m.Last, m.Part})
}

// arriving returns the buckets of the round that ends with a residue: those that come to the first device.
func (x *synchronization) arriving(residue int) (all []int) {
	for b := range x.buckets {
		if _, ok := x.sources[arrivalOf{residue, b, x.line[0]}]; ok {
			all = append(all, b)
		}
	}
	return all
}

// number numbers the messages of a stage from one device to another, those of minibatch after minibatch.
func (x *synchronization) number(v instance) int { return v.minibatch*len(x.buckets) + v.bucket }

// idle reports whether an instruction does nothing for a minibatch: gradients are added up in the last round of an update.
func (o *order) idle(t instruction, minibatch int) bool {
	return t.synchronized() && o.updates != nil && (minibatch+1)%o.updates[t.stage] != 0
}

// closes reports whether a task is the last of its kind that adds to the gradients of an update on its device.
func (o *order) closes(kind pipeline.Kind, stage, minibatch int) bool {
	x := o.sums[stage]
	return x.closing[taskKey{kind, stage, o.residue(minibatch)}] && (minibatch/x.round+1)*x.round%o.updates[stage] == 0
}

// number returns that of a message on its channel.
func (o *order) number(v instance) int {
	if v.synchronized() {
		return o.sums[v.stage].number(v)
	}
	return v.minibatch
}
