package pipeline

import (
	"cmp"
	"slices"
)

// addSums adds messages between replicas. They stand where the plan has them; messages that start at one instant stand in the order in
// which they need each other.
func (o *orderer) addSums() {
	for _, x := range o.sums {
		for _, j := range slices.Concat(x.reduces, x.gathers) {
			if j != nil {
				o.sumOf[j.task] = x
			}
		}
	}
	for s := range o.plan.Stages {
		if !o.sends(s) {
			continue
		}
		o.closeRounds(s)
		o.addMessages(s, o.addParts(s))
		if o.period != nil {
			o.addRoundUpdates(s)
		}
	}
	switch {
	case o.plan.Zero.dividesWeights():
		o.addTurns()
	case o.sharded():
		o.addNewWeights()
	}
}

// messages returns some messages between replicas, in the order of the plan.
func (o *orderer) messages(is func(j *job) bool) (all []*job) {
	for _, j := range o.jobs[len(o.plan.Tasks):] {
		if is(j) {
			all = append(all, j)
		}
	}
	return all
}

// closeRounds finds the last backwards of all rounds of a stage on all devices.
func (o *orderer) closeRounds(s int) {
	type key struct {
		kind         Kind
		last, device int
	}
	latest, at := map[key]*queuedWork{}, map[key]int{}
	size := len(o.sums[slices.IndexFunc(o.sums, func(x *sum) bool { return x.stage == s })].round)
	for d, list := range o.devices {
		for i := range list {
			w := &list[i]
			if w.Stage != s || w.Kind != B && w.Kind != W {
				continue
			}
			r := modulus(w.Shift, o.repeats)
			g := key{w.Kind, r - r%size + size - 1, d}
			half := w.Place.Half + (r-w.Shift)/o.repeats*2*o.moments.count()
			if before := latest[g]; before == nil || half > at[g] || half == at[g] && w.Place.Rank > before.Place.Rank {
				latest[g], at[g] = w, half
			}
		}
	}
	for g, w := range latest {
		w.Closes = true
		if o.leavesStage(w.Work) {
			x := o.round(s, g.last)
			x.backwards[g.device] = at[g]
			x.extend(o.moments.number(o.at[place{w.Kind, s, modulus(w.Shift, o.repeats)}].end()), at[g])
		}
	}
}

// round returns a round of a stage.
func (o *orderer) round(s, last int) *roundEnd {
	at := roundOf{s, last}
	if o.rounds[at] == nil {
		o.rounds[at] = &roundEnd{backwards: map[int]int{}}
	}
	return o.rounds[at]
}

// extend notes work of a round that ends at a moment and stands in a half moment.
func (x *roundEnd) extend(end, half int) { x.end, x.half = max(x.end, end), max(x.half, half) }

// depth returns how many messages are before one, of those that it needs.
func (o *orderer) depth(j *job) int {
	x, n := o.sumOf[j.task], slices.Index(o.sumOf[j.task].line, j.from)
	if j.bucket.Kind == Reduce {
		return n
	}
	end := len(x.line) - 1
	depth := end
	if x.part > 0 {
		depth = 2 // behind what its owner adds up
	}
	for most := depth + end; x.gathers[n] != nil && depth <= most; {
		n = slices.Index(x.line, x.gathers[n].from)
		depth++
	}
	return depth
}

// messageWork returns the work of a message, with a rank.
func (o *orderer) messageWork(kind Kind, j *job, to, rank int) Work {
	return Work{Kind: kind, Stage: j.stage, Task: j.task, To: to, First: j.bucket.First, Last: j.bucket.Last, Part: j.bucket.Part, Before: j.bucket.Before, Place: Place{Rank: rank}}
}

// sumOn is a sum on a device.
type sumOn struct {
	sum    *sum
	device int
}

// addMessages adds the messages of a stage along the line of its devices, and those of whole sums. come is the half moment in which sums
// come, whole or not.
func (o *orderer) addMessages(s int, come map[sumOn]int) {
	all := o.messages(func(j *job) bool {
		return j.stage == s && !o.renews(j) && (j.bucket.Part == 0 || j.bucket.Kind == Gather)
	})
	slices.SortStableFunc(all, func(a, b *job) int { return o.depth(a) - o.depth(b) })
	for _, j := range all {
		x, round := o.sumOf[j.task], o.round(s, j.residue)
		half := max(o.moments.begin(j), round.backwards[j.from], round.backwards[j.to])
		if j.bucket.Kind == Gather || j.from != x.line[0] {
			half = max(half, come[sumOn{x, j.from}])
		}
		come[sumOn{x, j.to}] = half
		round.extend(o.moments.number(j.end()), half)
		o.addMessage(j, rankOfSums+2*o.depth(j)+1, half)
	}
}

// addMessage adds the actions of both devices of a message. A device grants a gather just before the other one sends it. It adds a
// reduce to its own gradients just after, so that the next message has a block.
func (o *orderer) addMessage(j *job, rank, half int) {
	start := o.moments.number(j.start)
	if j.bucket.Kind == Gather {
		o.add(j.to, o.messageWork(Admitting, j, j.from, rank-1), j.residue, start, half)
		o.add(j.from, o.messageWork(Gathering, j, j.to, rank), j.residue, start, half)
		return
	}
	o.add(j.from, o.messageWork(Reducing, j, j.to, rank), j.residue, start, half)
	o.add(j.to, o.messageWork(Owning, j, NoDevice, rank+1), j.residue, start, half)
}

// addRoundUpdates adds the updates of rounds: when all have what they need for it, at one place on all devices.
func (o *orderer) addRoundUpdates(s int) {
	for r := range o.repeats {
		x := o.rounds[roundOf{s, r}]
		if x == nil {
			continue
		}
		for _, d := range o.plan.Line(s) {
			w := Work{Kind: Update, Stage: s, Task: None, To: NoDevice, Place: Place{Rank: rankOfUpdates + s}}
			o.add(d, w, r, x.end, max(2*x.end, x.half))
		}
	}
}

// addParts adds the messages of a stage's parts to their owners, and the work of adding them up there. It returns the half moments of that.
func (o *orderer) addParts(s int) map[sumOn]int {
	added := map[sumOn]int{}
	var sums []*sum
	for _, j := range o.messages(func(j *job) bool { return j.stage == s && j.bucket.Part > 0 && o.sumOf[j.task] != nil }) {
		if x := o.sumOf[j.task]; !slices.Contains(sums, x) {
			sums = append(sums, x)
		}
		if j.bucket.Kind == Reduce {
			o.add(j.from, o.messageWork(Reducing, j, j.to, rankOfSums+1), j.residue, o.moments.number(j.start), max(o.moments.begin(j), o.round(s, j.residue).backwards[j.from]))
		}
	}
	slices.SortStableFunc(sums, func(a, b *sum) int { return a.round[0] - b.round[0] })
	before, begun := map[bucketOf]int{}, map[bucketOf]int{} // rounds are added up in their order, which yield keeps
	for _, x := range sums {
		owner, last := x.line[x.end()], x.round[len(x.round)-1]
		round := o.round(s, last)
		half := max(round.backwards[owner], before[x.bucket()])
		for _, j := range x.reduces {
			if j != nil {
				half = max(half, o.moments.begin(j), round.backwards[j.from])
			}
		}
		w := Work{Kind: Owning, Stage: s, Task: None, To: NoDevice, First: x.first, Last: x.last, Part: x.part, Place: Place{Rank: rankOfSums + 2}}
		if o.plan.Zero.dividesGradients() {
			half = max(half, 2*o.moments.number(divisionOf(o.layout).addedAt(x))) // not before others that are added up earlier
			w.Place.Rank += last                                                  // two rounds may be added up in one half moment
		}
		start := max(half/2, o.lastEnd(x, owner), begun[x.bucket()])
		o.add(owner, w, last, start, half)
		added[sumOn{x, owner}], before[x.bucket()], begun[x.bucket()] = half, half, start
	}
	return added
}

// lastEnd returns the moment at which the last task of a round ends on a device, of those that recompute first: before it no message of the round
// yields. It is 0 where none does.
func (o *orderer) lastEnd(x *sum, device int) (end int) {
	for _, r := range x.round {
		if j := o.leaves(x.stage, r); j.device == device && j.early.Sign() > 0 {
			end = max(end, o.moments.number(j.end()))
		}
	}
	return end
}

// addNewWeights adds the messages of new weights, which stand behind the updates of all stages, and the work that waits for them behind
// all of these.
func (o *orderer) addNewWeights() {
	all := o.messages(func(j *job) bool { return j.bucket.Kind == Gather })
	slices.SortStableFunc(all, func(a, b *job) int {
		return cmp.Or(o.moments.number(a.start)-o.moments.number(b.start), o.depth(a)-o.depth(b))
	})
	for i, j := range all {
		o.addMessage(j, rankOfUpdates+2*i+1, o.stepEnd())
	}
	for s := range o.plan.Stages {
		if !o.sends(s) {
			continue
		}
		for _, d := range o.plan.Line(s) {
			w := Work{Kind: Completing, Stage: s, Task: None, To: NoDevice, Place: Place{Rank: rankOfUpdates + 2*len(all) + s}}
			o.add(d, w, o.repeats-1, 0, o.stepEnd())
		}
	}
}

// parts returns how long parts of gradients are there until they are added up.
func (o *orderer) partsThere() map[partsOf][]Interval {
	all := map[partsOf][]Interval{}
	for _, x := range o.sums {
		for _, j := range x.reduces {
			if j != nil && x.part > 0 {
				at := partsOf{x.stage, j.from, j.to}
				if o.plan.Zero.dividesGradients() {
					at.stage = None
				}
				all[at] = append(all[at], Interval{o.moments.number(j.start), o.moments.number(divisionOf(o.layout).addedAt(x))})
			}
		}
	}
	return all
}

// addTurns adds the messages of weights for turns. A device lets them come behind the turn whose buffer they take. They are sent behind that,
// and before the first task of their own turn.
func (o *orderer) addTurns() {
	for d := range o.platform.Devices {
		turns := divisionOf(o.layout).weightTurns(d)
		for i, t := range turns {
			for _, j := range t.gathers {
				start, free, sent := o.moments.number(j.start), divisionOf(o.layout).freeFor(o.moments, turns, i), divisionOf(o.layout).placeOfWeights(o.moments, turns, i, j)
				o.add(d, o.messageWork(Admitting, j, j.from, free.Rank), j.residue, start, free.Half)
				o.add(j.from, o.messageWork(Gathering, j, d, sent.Rank), j.residue, start, sent.Half)
			}
		}
	}
}
