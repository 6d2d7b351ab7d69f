package pipeline

import (
	"cmp"
	"plimsoll/planner/pipeline"
	"slices"
)

// sumAtOnce puts one instruction on all devices of a stage's line in place of the messages of a bucket, where the last device would first
// send the whole sum: that is behind the last backwards of all of them, and before their updates. Buckets that are made behind one part
// of a backward, and between which no device of the line has anything else to do, are one instruction.
func (o *order) sumAtOnce(s int, parts []float64) {
	x := o.sums[s]
	x.together = map[arrivalOf][]int{}
	var all []instruction
	var before instruction
	for _, t := range o.wholeSums(s) {
		n := len(all) - 1
		if n < 0 || t.shift != before.shift || parts[t.bucket] != parts[before.bucket] || o.comesBetween(x.line, before, t) {
			v := t
			v.kind, v.to, v.place = pipeline.Joining, none, t.place.Joint(s)
			n, all = len(all), append(all, v)
		}
		k := arrivalOf{o.residue(t.shift), all[n].bucket, none}
		x.together[k], before = append(x.together[k], t.bucket), t
	}
	for _, d := range x.line {
		own := slices.DeleteFunc(o.instructions[d], func(t instruction) bool { return t.stage == s && t.synchronized() })
		o.instructions[d] = append(own, all...)
		o.sort(o.instructions[d])
	}
}

// wholeSums returns the instructions with which the last device of a stage's line first sends the sum of each bucket of each round, in
// their order.
func (o *order) wholeSums(s int) (all []instruction) {
	x := o.sums[s]
	for _, t := range o.instructions[x.line[len(x.line)-1]] {
		if t.kind != pipeline.Gathering || t.stage != s {
			continue
		}
		at := slices.IndexFunc(all, func(u instruction) bool { return u.bucket == t.bucket && o.residue(u.shift) == o.residue(t.shift) })
		switch {
		case at < 0:
			all = append(all, t)
		case earlier(t, all[at]):
			all[at] = t
		}
	}
	slices.SortStableFunc(all, func(a, b instruction) int {
		return cmp.Or(cmp.Compare(o.residue(a.shift), o.residue(b.shift)), cmp.Compare(b.shift, a.shift), a.place.Compare(b.place))
	})
	return all
}

// comesBetween reports whether a device of a line has something else to do between two instructions of sums.
func (o *order) comesBetween(line []int, a, b instruction) bool {
	behind := func(a, b instruction) bool { return a.place.Compare(b.place) > 0 }
	return slices.ContainsFunc(line, func(d int) bool {
		return slices.ContainsFunc(o.instructions[d], func(t instruction) bool {
			return (t.stage != a.stage || !t.synchronized()) && behind(t, a) && behind(b, t)
		})
	})
}

// earlier reports whether an instruction of one residue comes before another one of it.
func earlier(a, b instruction) bool {
	return cmp.Or(cmp.Compare(b.shift, a.shift), cmp.Compare(a.place.Half, b.place.Half)) < 0
}
