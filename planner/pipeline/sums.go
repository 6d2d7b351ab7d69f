package pipeline

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
)

// replicatedStages returns the stages with weights on several devices that work.
func (l *layout) replicatedStages() (all []replicatedStage) {
	costs, inParts := NewCosts(l.chain), map[int]bool{}
	for _, m := range l.plan.Synchronization {
		inParts[m.Stage] = inParts[m.Stage] || m.Part > 0
	}
	for s, st := range l.plan.Stages {
		if len(st.Devices) < 2 {
			continue
		}
		x := replicatedStage{stage: s, line: l.plan.Line(s), round: l.repeats, weights: costs.Summed(st.First, st.Last), parts: 1}
		if len(x.line) < 2 || x.weights == 0 {
			continue
		}
		if l.sharded() || inParts[s] {
			x.parts = len(x.line)
		}
		if l.period != nil || l.plan.Zero.dividesGradients() {
			x.round = l.plan.Round(s)
		}
		all = append(all, x)
	}
	return all
}

// synchronizations: if there are messages between replicas, they are those that add up the gradients of every stage in every round.
func (a *arranger) synchronizations() {
	all := a.replicatedStages()
	if a.unfit = divisionOf(a.layout).takeTurns(all); a.unfit != nil {
		return
	}
	if a.sharded() {
		a.divided = all
	} else if len(a.plan.Synchronization) == 0 {
		return
	}
	sums := map[bucketOf]*sum{}
	for i := range a.plan.Synchronization {
		m := &a.plan.Synchronization[i]
		j := &job{task: len(a.plan.Tasks) + i, bucket: m, owner: None, stage: m.Stage, from: m.From, to: m.To, early: new(big.Int)}
		fetches := a.plan.Zero.dividesWeights() && m.Kind == Gather
		reason := a.misdirected(m, all)
		if reason == "" {
			reason = mistaken(a, m, stageOf(all, m.Stage).line)
		}
		if reason != "" {
			a.broken.add(RuleSynchronization, j.task, None, "%s: %s", a.name(j), reason)
			continue
		}
		a.timed(j, m.Start, m.Shift)
		if line := stageOf(all, m.Stage).line; fetches {
			j.owner = line[m.Part-1]
			j.length = a.message(PartBytes(weights(a.chain, m.First, m.Last), m.Part, len(line)), a.platform.Beta(m.From, m.To))
			a.jobs, a.found.messages = append(a.jobs, j), append(a.found.messages, j)
			continue
		}
		at := bucketOf{m.Stage, j.residue, m.First, m.Last, m.Part}
		if sums[at] == nil {
			sums[at] = stageOf(all, m.Stage).sum(at)
			a.sums = append(a.sums, sums[at])
		}
		line := sums[at].line
		if m.Part > 0 {
			j.owner = line[m.Part-1]
		}
		j.length = a.message(PartBytes(weights(a.chain, m.First, m.Last), m.Part, len(line)), a.platform.Beta(m.From, m.To))
		if first := sums[at].put(j); first != nil {
			a.broken.add(RuleSynchronization, j.task, first.task, "%s: a second one for %s %d, after %s: leave one out", a.name(j), a.word(), j.residue, a.name(first))
			continue
		}
		a.jobs = append(a.jobs, j)
	}
	if len(a.broken) == 0 {
		slices.SortFunc(a.sums, func(x, y *sum) int {
			return cmp.Or(x.stage-y.stage, x.round[0]-y.round[0], x.first-y.first, x.last-y.last, x.part-y.part)
		})
		for i := range all {
			a.addedUp(&all[i])
		}
	}
}

// sum returns the sum of a bucket, without its messages.
func (x *replicatedStage) sum(at bucketOf) *sum {
	n := len(x.line)
	s := &sum{stage: x.stage, first: at.first, last: at.last, part: at.part, line: x.line, reduces: make([]*job, n), gathers: make([]*job, n)}
	for r := at.residue - x.round + 1; r <= at.residue; r++ {
		s.round = append(s.round, r)
	}
	return s
}

// end returns the position in the line at which the sum ends.
func (x *sum) end() int {
	if x.part > 0 {
		return x.part - 1
	}
	return len(x.line) - 1
}

// next returns the position to which the device at one sends its part of the sum.
func (x *sum) next(at int) int {
	if x.part > 0 {
		return x.part - 1
	}
	return at + 1
}

// of reports whether the sum is that of a round of a stage.
func (x *sum) of(stage int, round []int) bool { return x.stage == stage && x.round[0] == round[0] }

// put books a message, unless there is one like it, which it returns.
func (x *sum) put(j *job) (first *job) {
	at := &x.gathers[slices.Index(x.line, j.to)]
	if j.bucket.Kind == Reduce {
		at = &x.reduces[slices.Index(x.line, j.from)]
	}
	if *at == nil {
		*at = j
		return nil
	}
	return *at
}

// misdirected says why there is no such message.
func (a *arranger) misdirected(m *Synchronization, all []replicatedStage) (reason string) {
	if m.Kind < Reduce || m.Kind > Gather {
		return "no such kind"
	}
	x := stageOf(all, m.Stage)
	if x == nil {
		return fmt.Sprintf("field \"stage\" is %d: stages with weights on several devices that work are %v", m.Stage, stagesOf(all))
	}
	st := a.plan.Stages[m.Stage]
	switch {
	case m.First < st.First || m.Last > st.Last || m.First > m.Last:
		return fmt.Sprintf("fields \"first_layer\" and \"last_layer\" are %d and %d: the stage has layers %d to %d", m.First, m.Last, st.First, st.Last)
	case weights(a.chain, m.First, m.Last) == 0:
		return fmt.Sprintf("layers %d to %d have no weights: leave it out", m.First, m.Last)
	}
	if reason := a.mistimed(m.Start, m.Shift); reason != "" {
		return reason
	}
	if m.Kind == Gather && a.plan.Zero.dividesWeights() {
		return a.noWay(m, x)
	}
	if m.Kind == Gather && a.plan.Zero.dividesGradients() && m.Shift != a.repeats-1 {
		return fmt.Sprintf("field \"shift\" is %d: new weights follow the last microbatch, %d", m.Shift, a.repeats-1)
	}
	if last := modulus(m.Shift, x.round); last != x.round-1 {
		return fmt.Sprintf("field \"shift\" is %d: a round of the stage is %d of them and ends with %d", m.Shift, x.round, m.Shift-last+x.round-1)
	}
	return a.noWay(m, x)
}

func stagesOf(all []replicatedStage) (stages []int) {
	for _, x := range all {
		stages = append(stages, x.stage)
	}
	return stages
}

// noWay says why no message of that kind goes that way along the line of a stage's devices.
func (a *arranger) noWay(m *Synchronization, x *replicatedStage) (reason string) {
	line := x.line
	from, to, last := slices.Index(line, m.From), slices.Index(line, m.To), len(line)-1
	switch {
	case from < 0:
		return fmt.Sprintf("field \"from\" is %d: for the stage work devices %v", m.From, line)
	case to < 0:
		return fmt.Sprintf("field \"to\" is %d: for the stage work devices %v", m.To, line)
	case from == to:
		return fmt.Sprintf("fields \"from\" and \"to\" are both %d", m.To)
	case a.misowned(m, x) != "":
		return a.misowned(m, x)
	case m.Part == 0 && m.Kind == Reduce && to != from+1:
		return fmt.Sprintf("field \"to\" is %d: sums pass devices %v in this order", m.To, line)
	case m.Part == 0 && m.Kind == Gather && to == last:
		return fmt.Sprintf("field \"to\" is %d: the last of devices %v has the sum already", m.To, line)
	case a.platform.Beta(m.From, m.To) == 0:
		return fmt.Sprintf("no link joins devices %d and %d", m.From, m.To)
	}
	return ""
}

// addedUp: in each round, buckets have all weights of the stage once, and every device gets the sum of each. Where gradients are divided, all
// rounds have the same buckets.
func (a *arranger) addedUp(x *replicatedStage) {
	all := rounds(a.repeats, x.round)
	for _, round := range all {
		r, next := round[x.round-1], a.plan.Stages[x.stage].First
		for bucket := range slices.Chunk(a.sumsOf(x.stage, round), x.parts) {
			y := bucket[0]
			switch {
			case !a.whole(x, bucket):
				a.unsummed(None, "stage %d for %s %d: a part of layers %d to %d is missing, or in two buckets that overlap", x.stage, a.word(), r, y.first, y.last)
				return
			case a.plan.Zero.dividesWeights() && len(bucket) < len(a.sumsOf(x.stage, round)):
				a.broken.add(RuleSynchronization, None, None, "stage %d for %s %d: it has several buckets: with \"zero\" of %d give it one", x.stage, a.word(), r, a.plan.Zero)
				return
			case y.first < next:
				a.unsummed(None, "stage %d for %s %d: layers %d to %d are in two buckets that overlap", x.stage, a.word(), r, y.first, min(y.last, next-1))
				return
			case !a.covered(x, r, next, y.first-1) || slices.ContainsFunc(bucket, func(y *sum) bool { return !a.sent(y) }):
				return
			}
			next = y.last + 1
		}
		if !a.covered(x, r, next, a.plan.Stages[x.stage].Last) || !sameBuckets(a, x, all[0], round) {
			return // one is enough: R may be a large number
		}
	}
}

// sumsOf returns the sums of a round of a stage, in the order of their layers.
func (l *layout) sumsOf(stage int, round []int) []*sum {
	i, _ := slices.BinarySearchFunc(l.sums, round, func(y *sum, round []int) int { return cmp.Or(y.stage-stage, y.round[0]-round[0]) })
	n := i
	for n < len(l.sums) && l.sums[n].of(stage, round) {
		n++
	}
	return l.sums[i:n]
}

func (a *arranger) unsummed(task int, format string, args ...any) {
	a.broken.add(RuleSynchronization, task, None, format+": give all messages of all rounds of stages with replicas, or none", args...)
}

// covered refuses weights between buckets.
func (a *arranger) covered(x *replicatedStage, r, first, last int) bool {
	for i := first; i <= last; i++ {
		if a.chain.SummedWeights(i) > 0 {
			a.unsummed(None, "stage %d for %s %d: layer %d (%s) is in no bucket", x.stage, a.word(), r, i, a.chain.Layer(i).Name)
			return false
		}
	}
	return true
}

// sent refuses a sum that does not pass all devices or, where messages bring it, does not come to all.
func (a *arranger) sent(y *sum) bool {
	n, part := y.end(), ""
	if y.part > 0 {
		part = fmt.Sprintf("part %d of ", y.part)
	}
	missing := func(kind SynchronizationKind, from string, to int) bool {
		a.unsummed(None, "stage %d for %s %d: no %v of %slayers %d to %d goes from %s to device %d", y.stage, a.word(), y.round[len(y.round)-1], kind, part, y.first, y.last, from, to)
		return false
	}
	for i := range y.line {
		if i != n && y.reduces[i] == nil {
			return missing(Reduce, fmt.Sprintf("device %d", y.line[i]), y.line[y.next(i)])
		}
	}
	for i := range y.line {
		if i != n && y.gathers[i] == nil && divisionOf(a.layout).gathered(y.until()) {
			return missing(Gather, "a device that has the sum", y.line[i])
		}
	}
	for i := range y.line {
		at := i
		if !divisionOf(a.layout).gathered(y.until()) {
			break
		}
		for hops := 0; at != n; hops++ {
			if hops > len(y.line) {
				a.unsummed(y.gathers[i].task, "%s: the sum never comes to device %d, from where it is sent", a.name(y.gathers[i]), y.gathers[i].from)
				return false
			}
			at = slices.Index(y.line, y.gathers[at].from)
		}
	}
	return true
}

// beforeSum calls do for every pair of jobs of a sum of which the second needs the first. A reduce needs the reduce before it, and the
// backwards of the round on the sender and on the receiver, which adds its own. A gather needs the message that brought the sum. A
// reduce of a part needs the backwards on the sender alone. The first gather of a part needs all its reduces, and the backwards on its
// owner; of new weights see behindAll.
func (l *layout) beforeSum(x *sum, do func(x, y *job)) {
	n := x.end()
	for i, y := range x.reduces {
		if i == n {
			continue
		}
		if i == 0 || x.part > 0 {
			l.beforeGradients(x, x.line[i], y, do)
		} else {
			do(x.reduces[i-1], y)
		}
		if x.part == 0 {
			l.beforeGradients(x, x.line[i+1], y, do)
		}
	}
	for i, y := range x.gathers {
		switch from := slices.Index(x.line, y.fromOr(x.line[n])); {
		case i == n || l.sharded() && from == n:
		case from != n:
			do(x.gathers[from], y)
		case x.part > 0:
			for _, reduce := range x.reduces {
				if reduce != nil {
					do(reduce, y)
				}
			}
			l.beforeGradients(x, x.line[n], y, do)
		default:
			do(x.reduces[n-1], y)
		}
	}
}

// fromOr returns the device that sends, or another one where there is no message.
func (j *job) fromOr(device int) int {
	if j == nil {
		return device
	}
	return j.from
}

// beforeGradients calls do for the last task of each minibatch of a round on a device, before a message of its gradients.
func (l *layout) beforeGradients(x *sum, device int, y *job, do func(x, y *job)) {
	for _, r := range x.round {
		if at := l.leaves(x.stage, r); at.device == device {
			do(at, y)
		}
	}
}

// after returns the time of a backward after the gradients of a layer and all later ones: the layers of its stage below. It returns 0
// if the time of these gradients is not known.
func (l *layout) after(backward *job, layer int) ticks {
	sum := new(big.Int)
	if backward.kind != B || l.timing(backward) != nil {
		return sum
	}
	if l.backwards == nil {
		l.backwards = []ticks{new(big.Int)}
		for i := range l.chain.Layers {
			l.backwards = append(l.backwards, add(l.backwards[i], l.ticks(l.chain.Layers[i].BackwardS)))
		}
	}
	return sum.Sub(l.backwards[layer-1], l.backwards[l.plan.Stages[backward.stage].First-1])
}

// replicated returns the report on stages with replicas and weights.
func (l *layout) replicated() (all []Replicated) {
	for _, x := range l.replicatedStages() {
		r := Replicated{Stage: x.stage, Replicas: len(x.line), Parts: x.parts, Zero: l.plan.Zero}
		of := rounds(l.repeats, x.round)
		for _, round := range of {
			r.Buckets = len(l.sumsOf(x.stage, round)) / x.parts
			made := l.computed(x.stage, round)
			if l.plan.Zero.dividesGradients() { // one update is behind all rounds
				made = l.computed(x.stage, slices.Concat(of...))
			}
			r.Behind = max(r.Behind, l.seconds(sub(l.updated(x.stage, round), made)))
		}
		all = append(all, r)
	}
	return all
}

// computed returns when the last task of a round ends.
func (l *layout) computed(stage int, round []int) (end ticks) {
	for _, r := range round {
		if e := l.leaves(stage, r).end(); end == nil || less(end, e) {
			end = e
		}
	}
	return end
}

// updated returns when a round's update can be made on all devices: its last task and its last message have ended.
func (l *layout) updated(stage int, round []int) ticks {
	end := l.computed(stage, round)
	for _, x := range l.sumsOf(stage, round) {
		for _, j := range slices.Concat(x.reduces, x.gathers) {
			if j != nil && less(end, j.end()) {
				end = j.end()
			}
		}
	}
	return end
}

// sameBuckets refuses a round whose buckets are not those of the first one, where gradients are divided: an owner adds up its parts of all rounds.
func sameBuckets(a *arranger, x *replicatedStage, first, round []int) bool {
	same := slices.EqualFunc(a.sumsOf(x.stage, first), a.sumsOf(x.stage, round), func(y, z *sum) bool { return y.bucket() == z.bucket() })
	if !a.plan.Zero.dividesGradients() || same {
		return true
	}
	last := x.round - 1
	a.broken.add(RuleSynchronization, None, None, "stage %d: the buckets of microbatch %d are not those of microbatch %d: give all rounds the same", x.stage, round[last], first[last])
	return false
}

// addedAt returns when a part of gradients is added up: all of it has come to its owner, who has made its own, and has added up the rounds
// before.
func (l division) addedAt(x *sum) ticks {
	if l.found.added == nil {
		l.found.added = map[*sum]ticks{}
		before := map[bucketOf]ticks{}
		for _, y := range l.sums { // of a bucket, in the order of rounds
			if y.part == 0 {
				continue
			}
			at := l.comeAt(y)
			if earlier := before[y.bucket()]; earlier != nil && less(at, earlier) {
				at = earlier
			}
			l.found.added[y], before[y.bucket()] = at, at
		}
	}
	return l.found.added[x]
}

// comeAt returns when all of a part of gradients has come to its owner, who has made its own.
func (l division) comeAt(x *sum) ticks {
	var at ticks
	later := func(t ticks) {
		if at == nil || less(at, t) {
			at = t
		}
	}
	for _, j := range x.reduces {
		if j != nil {
			later(j.end())
		}
	}
	for _, r := range x.round {
		if b := l.leaves(x.stage, r); b.device == x.line[x.end()] {
			later(sub(b.end(), l.after(b, x.first)))
		}
	}
	return at
}
