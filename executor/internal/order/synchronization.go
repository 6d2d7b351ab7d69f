package order

import (
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Synchronized reports whether an instruction belongs to a message between replicas.
func (t Instruction) Synchronized() bool {
	return t.Kind >= pipeline.Reducing && t.Kind <= pipeline.Joining
}

// Message reports whether an instruction sends something.
func (t Instruction) Message() bool {
	return t.Kind.Communication() || t.Kind == pipeline.Reducing || t.Kind == pipeline.Gathering
}

// Computes reports whether an instruction is a task for kernels.
func (t Instruction) Computes() bool { return Computes(t.Kind) }

func Computes(kind pipeline.Kind) bool {
	return kind == pipeline.F || kind == pipeline.B || kind == pipeline.W
}

// Synchronization adds up the gradients of a stage's replicas as a plan says. Buckets of layers go along the line of the stage's devices, and
// their sums from the last device along a tree to all others. Parts of buckets go straight to their owners, and come from there. Sums have the
// bits of those that the plan has no messages for.
type Synchronization struct {
	Line    []int    // devices
	round   int      // minibatches, or microbatches
	Buckets []Bucket // those of all rounds
	Sources map[ArrivalOf]int
	closing map[TaskKey]bool // the last task of its kind on its device in a round

	Shards   bool // owners of parts update them, and send new weights
	passes   bool
	fetches  bool
	first    int                 // the number of its first bucket, of those of all stages
	numbers  int                 // how many these are
	Together map[ArrivalOf][]int // by residue and first of them: buckets that a library adds up at once; nil: none does
}

// Bucket is consecutive layers whose gradients go together, or a part of them.
type Bucket struct{ First, Last, Part int }

// ArrivalOf tells where the sum of a bucket comes from to a device, in the round that ends with a residue.
type ArrivalOf struct{ Residue, Bucket, Device int }

// synchronizations reads a plan's messages between replicas; nil for stages without.
func synchronizations(o *Order) (all []*Synchronization) {
	all = make([]*Synchronization, len(o.On))
	for _, m := range o.Plan.Synchronization {
		x := all[m.Stage]
		if x == nil {
			x = &Synchronization{Line: o.Hosts(m.Stage), round: o.Repeats, Shards: o.Plan.Zero != pipeline.ZeroNothing, passes: o.Plan.Zero >= pipeline.ZeroGradients, fetches: o.Plan.Zero == pipeline.ZeroWeights, Sources: map[ArrivalOf]int{}, closing: map[TaskKey]bool{}}
			if !o.Plan.IsFlush() || x.passes {
				x.round = o.Plan.Round(m.Stage)
			}
			all[m.Stage] = x
		}
		if x.Bucket(m) == none {
			x.Buckets = append(x.Buckets, Bucket{m.First, m.Last, m.Part})
		}
		if m.Kind == pipeline.Gather {
			x.Sources[ArrivalOf{o.Residue(m.Shift), x.Bucket(m), m.To}] = m.From
		}
	}
	number(all)
	return all
}

// number numbers the buckets of all stages, which may have a channel together.
func number(all []*Synchronization) {
	total := 0
	for _, x := range all {
		if x != nil {
			x.first = total
			total += len(x.Buckets)
		}
	}
	for _, x := range all {
		if x != nil {
			x.numbers = total
		}
	}
}

// Round returns in which round of a step a minibatch is.
func (x *Synchronization) Round(minibatch, step int) int { return minibatch % step / x.round }

// Rounds returns how many rounds a step has.
func (x *Synchronization) Rounds(step int) int { return step / x.round }

// Bucket returns which one a message carries; none: it is new.
func (x *Synchronization) Bucket(m pipeline.Synchronization) int {
	return slices.Index(x.Buckets, Bucket{m.First, m.Last, m.Part})
}

// Arriving returns the buckets of the round that ends with a residue. Of the first two devices of a line at least one gets each bucket by a
// gather.
func (x *Synchronization) Arriving(residue int) (all []int) {
	for b := range x.Buckets {
		if slices.ContainsFunc(x.Line[:2], func(d int) bool { _, ok := x.Sources[ArrivalOf{residue, b, d}]; return ok }) {
			all = append(all, b)
		}
	}
	return all
}

// Number numbers the messages of a stage from one device to another, those of minibatch after minibatch.
func (x *Synchronization) Number(v Instance) int {
	n := v.Minibatch
	if x.fetches { // for a forward and for a backward
		if n *= 2; v.Before == pipeline.B {
			n++
		}
	}
	return n*x.numbers + x.first + v.Bucket
}

// Idle reports whether an instruction does nothing for a minibatch: gradients are added up in the last round of an update, if they do not pass.
func (o *Order) Idle(t Instruction, minibatch int) bool {
	return t.Synchronized() && o.updates != nil && !o.Sums[t.Stage].passes && (minibatch+1)%o.updates[t.Stage] != 0
}

// Closes reports whether a task is the last of its kind that adds to the gradients of an update, or of a round where these pass, on its device.
func (o *Order) Closes(kind pipeline.Kind, stage, minibatch int) bool {
	x := o.Sums[stage]
	return x.closing[TaskKey{kind, stage, o.Residue(minibatch)}] && (x.passes || (minibatch/x.round+1)*x.round%o.updates[stage] == 0)
}

// Number returns a message's number on its channel.
func (o *Order) Number(v Instance) int {
	if v.Synchronized() {
		return o.Sums[v.Stage].Number(v)
	}
	return v.Minibatch
}

// Divided reports whether buckets are parts, which have owners.
func (x *Synchronization) Divided() bool { return x.Buckets[0].Part > 0 }

// Owner returns the device at which the sum of a bucket is whole first: the owner of a part, or the last device.
func (x *Synchronization) Owner(bucket int) int {
	if part := x.Buckets[bucket].Part; part > 0 {
		return x.Line[part-1]
	}
	return x.Line[len(x.Line)-1]
}

// MostReduces returns how many blocks a device has for the sums of another one. With two, one sum is added up while the next one comes;
// one is enough where a round has one bucket (pipeline.Check counts as many).
func (x *Synchronization) MostReduces() int {
	most := 0
	for at := range x.Sources {
		most = max(most, len(x.Arriving(at.Residue)))
	}
	return min(most, 2)
}

// MadeBehind returns behind which part of a backward of a stage, by the chain, the gradients of each bucket are made.
func (x *Synchronization) MadeBehind(st pipeline.Stage, c *chain.Chain, split bool) (parts []float64) {
	all := seconds(c, st.First, st.Last)
	for _, b := range x.Buckets {
		part := 1.0
		if !split && len(st.Ops) == 0 && all > 0 {
			part = seconds(c, b.First, st.Last) / all
		}
		parts = append(parts, part)
	}
	return parts
}

// seconds returns the time of the backwards of some layers.
func seconds(c *chain.Chain, first, last int) (sum float64) {
	for l := first; l <= last; l++ {
		sum += c.Layer(l).BackwardS
	}
	return sum
}

// Passes reports whether gradients pass on to owners round by round, which add up those of all rounds (pipeline.ZeroGradients).
func (x *Synchronization) Passes() bool { return x != nil && x.passes }

// Fetches reports whether weights come from owners for turns (pipeline.ZeroWeights).
func (x *Synchronization) Fetches() bool { return x != nil && x.fetches }

// has reports whether a device is one of the stage's.
func (x *Synchronization) has(device int) bool { return slices.Contains(x.Line, device) }
