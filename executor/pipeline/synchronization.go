package pipeline

import (
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// synchronized reports whether an instruction belongs to a message between replicas.
func (t instruction) synchronized() bool {
	return t.kind >= pipeline.Reducing && t.kind <= pipeline.Joining
}

// message reports whether an instruction sends something.
func (t instruction) message() bool {
	return t.kind.Communication() || t.kind == pipeline.Reducing || t.kind == pipeline.Gathering
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

// divided reports whether buckets are parts, which have owners.
func (x *synchronization) divided() bool { return x.buckets[0].part > 0 }

// owner returns the device that owns a part.
func (x *synchronization) owner(bucket int) int { return x.line[x.buckets[bucket].part-1] }

// renews reports whether a message carries new weights: it stands behind the updates of its step.
func (t instruction) renews() bool { return t.kind == pipeline.Gathering && t.part > 0 }

// mostReduces returns how many blocks a device has for the sums of another one: two, so that one is added up while the next one comes, or
// one where a round has one bucket (pipeline.Check counts as many).
func (x *synchronization) mostReduces() int {
	most := 0
	for at := range x.sources {
		most = max(most, len(x.arriving(at.residue)))
	}
	return min(most, 2)
}

// madeBehind returns behind which part of a backward of a stage, by the chain, the gradients of each bucket are made.
func (x *synchronization) madeBehind(st pipeline.Stage, c *chain.Chain, split bool) (parts []float64) {
	all := seconds(c, st.First, st.Last)
	for _, b := range x.buckets {
		part := 1.0
		if !split && len(st.Ops) == 0 && all > 0 {
			part = seconds(c, b.first, st.Last) / all
		}
		parts = append(parts, part)
	}
	return parts
}

// seconds returns what the backwards of some layers take.
func seconds(c *chain.Chain, first, last int) (sum float64) {
	for l := first; l <= last; l++ {
		sum += c.Layer(l).BackwardS
	}
	return sum
}
