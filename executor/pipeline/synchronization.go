package pipeline

import (
	"cmp"
	"math"
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
func (t instruction) synchronized() bool { return t.kind >= reducing }

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

// depth returns how many messages are before one, of those that it needs.
func (x *synchronization) depth(residue int, m pipeline.Synchronization) int {
	n := slices.Index(x.line, m.From)
	if m.Kind == pipeline.Reduce {
		return n
	}
	end := len(x.line) - 1
	for n, at := end, m.From; ; n++ {
		from, ok := x.sources[arrivalOf{residue, x.bucket(m), at}]
		if !ok || n > 2*end {
			return n
		}
		at = from
	}
}

// number numbers the messages of a stage from one device to another, those of minibatch after minibatch.
func (x *synchronization) number(v instance) int { return v.minibatch*len(x.buckets) + v.bucket }

// since returns a time of the period in which a shift is that of a minibatch, counted from the period in which its residue is.
func (o *order) since(k *clock, at float64, shift int) float64 {
	return at - float64(floorDiv(shift, o.repeats))*k.period
}

// synchronizer places the messages between replicas.
type synchronizer struct {
	*order
	clock *clock
	tasks map[synchronizedTask]float64 // when the last backwards of a round stand, by device
	sums  map[arrivalOf]float64        // when sums come to a device, whole or not
	ends  map[[2]int]float64           // when rounds are over, by stage and residue
	last  map[[2]int]float64           // likewise, when their last instructions stand
}

type synchronizedTask struct{ stage, residue, device int }

const (
	// rankOfSums is that of the first message between replicas of those at one instant: they come behind all tasks, and updates behind
	// them.
	rankOfSums    = 1 << 24
	rankOfUpdates = 1 << 28
)

// addSynchronization gives devices the instructions of messages between replicas. They stand where the plan has them; what starts
// at one instant stands in the order in which it needs each other.
func (o *order) addSynchronization(k *clock) {
	y := &synchronizer{order: o, clock: k, tasks: map[synchronizedTask]float64{}, ends: map[[2]int]float64{}, last: map[[2]int]float64{}}
	for s, x := range o.sums {
		if x == nil {
			continue
		}
		y.backwards(s, x)
		if x.divided() {
			y.placeParts(s, x)
			continue
		}
		y.sums = map[arrivalOf]float64{}
		messages := make([]int, 0, len(o.plan.Synchronization))
		for i, m := range o.plan.Synchronization {
			if m.Stage == s {
				messages = append(messages, i)
			}
		}
		depth := func(i int) int {
			m := o.plan.Synchronization[i]
			return x.depth(o.residue(m.Shift), m)
		}
		slices.SortStableFunc(messages, func(a, b int) int { return cmp.Compare(depth(a), depth(b)) })
		for _, i := range messages {
			y.place(x, i, depth(i))
		}
		if !o.plan.IsFlush() {
			y.updates(s, x)
		}
	}
	y.placeWeights()
}

// of returns how the plan sums what a message carries.
func (y *synchronizer) of(m pipeline.Synchronization) *synchronization { return y.order.sums[m.Stage] }

// backwards finds the last backwards of all rounds on all devices.
func (y *synchronizer) backwards(s int, x *synchronization) {
	type key struct {
		kind          pipeline.Kind
		round, device int
	}
	latest, at := map[key]instruction{}, map[key]float64{}
	for d, instructions := range y.instructions {
		for _, t := range instructions {
			if t.stage != s || t.kind != pipeline.B && t.kind != pipeline.W {
				continue
			}
			r := y.residue(t.shift)
			g := key{t.kind, r / x.round, d}
			now := y.since(y.clock, t.at, t.shift)
			if before, ok := at[g]; !ok || now > before || now == before && t.rank > latest[g].rank {
				latest[g], at[g] = t, now
			}
		}
	}
	for g, t := range latest {
		x.closing[taskKey{g.kind, s, y.residue(t.shift)}] = true
		end := [2]int{s, (g.round+1)*x.round - 1}
		if y.order.last(t) {
			y.tasks[synchronizedTask{s, end[1], g.device}] = at[g]
			y.last[end] = max(y.last[end], at[g])
			y.ends[end] = max(y.ends[end], y.since(y.clock, t.start, t.shift)+y.clock.length(t.kind, s, y.residue(t.shift)))
		}
	}
}

// place adds the instructions of a message that needs so many others.
func (y *synchronizer) place(x *synchronization, i, depth int) {
	m := y.plan.Synchronization[i]
	r, span := y.residue(m.Shift), y.clock.sums[i]
	t := instruction{kind: reducing, stage: m.Stage, to: m.To, layer: m.First, bucket: x.bucket(m), rank: rankOfSums + 2*depth + 1}
	from, to := arrivalOf{r, t.bucket, m.From}, arrivalOf{r, t.bucket, m.To}
	at := span.Start
	if t.instant = span.End-span.Start <= y.clock.eps; t.instant {
		at -= y.clock.eps
	}
	for _, d := range []int{m.From, m.To} {
		at = max(at, y.tasks[synchronizedTask{m.Stage, r, d}])
	}
	if m.Kind == pipeline.Gather || m.From != x.line[0] {
		at = max(at, y.sums[from])
	}
	y.sums[to] = at
	end := [2]int{m.Stage, r}
	y.ends[end], y.last[end] = max(y.ends[end], span.End), max(y.last[end], at)
	if m.Kind == pipeline.Gather {
		t.kind = gathering
		admit := t
		admit.kind, admit.to, admit.instant = admitting, m.From, true
		admit.rank--
		y.add(m.To, admit, r, span.Start, at)
	}
	y.add(m.From, t, r, span.Start, at)
	if t.kind == reducing { // the next one that comes there has a place
		own := t
		own.kind, own.to, own.instant = owning, none, true
		own.rank++
		y.add(m.To, own, r, span.Start, at)
	}
}

// add gives a device an instruction, in the period that has it.
func (y *synchronizer) add(device int, t instruction, residue int, start, at float64) {
	n := 0.0
	if y.clock.period > 0 {
		n = math.Floor((at + 2*y.clock.eps) / y.clock.period)
	}
	t.shift, t.start, t.at = residue-int(n)*y.repeats, max(0, start-n*y.clock.period), at-n*y.clock.period
	y.instructions[device] = append(y.instructions[device], t)
}

// updates adds the ends of rounds: when all have what they need for the update, at one place in the order on all devices.
func (y *synchronizer) updates(s int, x *synchronization) {
	for r := x.round - 1; r < y.repeats; r += x.round {
		end := [2]int{s, r}
		t := instruction{kind: minibatchEnd, stage: s, to: none, rank: rankOfUpdates + s}
		for _, d := range x.line {
			y.add(d, t, r, y.ends[end], max(y.ends[end]-y.clock.eps, y.last[end]))
		}
	}
}

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
