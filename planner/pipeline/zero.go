package pipeline

import (
	"fmt"
	"math/big"
	"slices"
)

// shards refuses divisions that are not known, and those of plans that do not update once for all. The same goes for state on the host.
func (l *layout) shards() error {
	if _, err := ParseZero(int(l.plan.Zero)); err != nil {
		return fmt.Errorf("field %w", err)
	}
	if l.plan.Zero != ZeroNothing && !l.plan.IsFlush() {
		return fmt.Errorf("field \"zero\" is %d: weights are divided in plans with a flush, and field \"weight_versions\" is %q", l.plan.Zero, l.plan.Versions)
	}
	return checkHostState(l)
}

// PartBytes returns the bytes of a part of a bucket of so many bytes that r replicas divide; part 0 is all of it.
func PartBytes(bytes int64, part, r int) int64 {
	if part == 0 {
		return bytes
	}
	return cut(bytes, part, r) - cut(bytes, part-1, r)
}

// cut returns where the first i of r equal parts of so many bytes end.
func cut(bytes int64, i, r int) int64 {
	at := new(big.Int).Mul(big.NewInt(bytes), big.NewInt(int64(i)))
	return at.Div(at, big.NewInt(int64(r))).Int64()
}

// sharded reports whether the optimizer's state of stages is divided among their replicas.
func (l *layout) sharded() bool { return l.plan.Zero != ZeroNothing }

// whole reports whether some sums are those of all parts of one bucket.
func (a *arranger) whole(x *replicatedStage, bucket []*sum) bool {
	for i, y := range bucket {
		if x.parts > 1 && y.part != i+1 || y.first != bucket[0].first || y.last != bucket[0].last {
			return false
		}
	}
	return len(bucket) == x.parts
}

// misowned says why no message carries such a part of a bucket that goes along a line.
func (a *arranger) misowned(m *Synchronization, x *replicatedStage) (reason string) {
	line := x.line
	switch {
	case a.period != nil && m.Part != 0:
		return fmt.Sprintf("field \"part\" is %d: only plans with a flush divide buckets", m.Part)
	case m.Part < 0 || x.parts > 1 && (m.Part < 1 || m.Part > len(line)):
		return fmt.Sprintf("field \"part\" is %d: the stage's %d devices that work own parts 1 to %d", m.Part, len(line), len(line))
	case m.Part == 0:
		return ""
	}
	owner := line[m.Part-1]
	switch {
	case m.Kind == Reduce && m.To != owner:
		return fmt.Sprintf("field \"to\" is %d: device %d owns part %d", m.To, owner, m.Part)
	case m.Kind == Gather && m.To == owner:
		return fmt.Sprintf("field \"to\" is %d, the owner of part %d, which has it already", m.To, m.Part)
	}
	return ""
}

// owned returns the bytes of the weights of a stage whose optimizer's state a device keeps.
func (c account) owned(s, device int, bytes int64) int64 {
	x := stageOf(c.divided, s)
	if x == nil {
		return bytes
	}
	sum, at := int64(0), slices.Index(x.line, device)
	for _, y := range c.sums {
		if y.stage == s && y.end() == at && (!c.plan.Zero.dividesGradients() || y.until() == c.repeats-1) {
			sum += PartBytes(weights(c.chain, y.first, y.last), y.part, len(y.line))
		}
	}
	return sum
}

// behindAll calls do for pairs of jobs of which the second waits for the first; the second is the first job of its link that carries new
// weights. The norm of all gradients is known when all backwards of the step and all sums have ended, and no update is made before. A hub
// stands for all of these jobs.
func (l *layout) behindAll(hub *job, do func(x, y *job)) {
	for _, x := range l.finals() {
		do(x, hub)
	}
	for _, y := range l.jobs {
		if y.fromOwner() && !l.plan.Zero.dividesWeights() {
			do(hub, y)
		}
	}
}

// finals returns the jobs that updates wait for: the last tasks of all microbatches, and reduces.
func (l *layout) finals() (all []*job) {
	for _, j := range l.jobs {
		if j.bucket == nil && !j.kind.Communication() && j == l.leaves(j.stage, j.residue) || j.bucket != nil && j.bucket.Kind == Reduce {
			all = append(all, j)
		}
	}
	return all
}

// renews reports whether a job carries new weights.
func (l *layout) renews(j *job) bool {
	return l.sharded() && j.bucket != nil && j.bucket.Kind == Gather
}

// fromOwner reports whether a job carries a part from who has added it up.
func (j *job) fromOwner() bool {
	return j.bucket != nil && j.bucket.Kind == Gather && j.owner == j.from
}

// updatesBehind calls do for what ends last of what updates wait for, and for every message of new weights from who has made them.
func (l *layout) updatesBehind(do func(x, y *job)) {
	if len(l.divided) == 0 || l.plan.Zero.dividesWeights() {
		return
	}
	last := l.lastFinal()
	for _, y := range l.jobs {
		if y.fromOwner() {
			do(last, y)
		}
	}
}

// lastFinal returns the job that ends last among those that updates wait for.
func (l *layout) lastFinal() (last *job) {
	for _, j := range l.finals() {
		if last == nil || less(last.end(), j.end()) {
			last = j
		}
	}
	return last
}

// mistaken says why a message of a stage, along the line of its devices, cannot be for a turn, or for none.
func mistaken(a *arranger, m *Synchronization, line []int) (reason string) {
	fetches := a.plan.Zero.dividesWeights() && m.Kind == Gather
	switch {
	case !fetches && m.Before != 0:
		return fmt.Sprintf("field \"before\" is %v: it is for a gather of weights, with \"zero\" of %d", m.Before, ZeroWeights)
	case !fetches:
		return ""
	case m.Before == 0:
		return "field \"before\" is missing: it names the first task, F or B, of the turn that the weights are for"
	case m.Before != F && m.Before != B:
		return fmt.Sprintf("field \"before\" is %v: it names the first task, F or B, of the turn that the weights are for", m.Before)
	case m.From != line[m.Part-1]:
		return fmt.Sprintf("field \"from\" is %d: device %d owns part %d", m.From, line[m.Part-1], m.Part)
	case a.at[place{m.Before, m.Stage, m.Shift}].device != m.To:
		return fmt.Sprintf("field \"to\" is %d: %v of microbatch %d is on device %d", m.To, m.Before, m.Shift, a.at[place{m.Before, m.Stage, m.Shift}].device)
	}
	return ""
}
