package order

import (
	"cmp"
	"plimsoll/planner/pipeline"
	"slices"
)

// SumAtOnce puts one instruction on all devices of a stage's line in place of the messages of a bucket. Its place is where the device that
// has it first would first send the whole sum: behind the last backwards of all devices, and before their updates. Buckets that are made
// behind one part of a backward, and between which no device of the line has anything else to do, are one instruction.
func (o *Order) SumAtOnce(s int, parts []float64) {
	x := o.Sums[s]
	x.Together = map[ArrivalOf][]int{}
	var all []Instruction
	var before Instruction
	for _, t := range o.wholeSums(s) {
		n := len(all) - 1
		if n < 0 || t.Shift != before.Shift || parts[t.Bucket] != parts[before.Bucket] || comesBetween(o.Instructions, x.Line, before, t) {
			v := t
			v.Kind, v.To, v.Place = pipeline.Joining, none, t.Place.Joint(s)
			n, all = len(all), append(all, v)
		}
		k := ArrivalOf{o.Residue(t.Shift), all[n].Bucket, none}
		x.Together[k], before = append(x.Together[k], t.Bucket), t
	}
	for _, d := range x.Line {
		own := slices.DeleteFunc(o.Instructions[d], func(t Instruction) bool { return t.Stage == s && t.Synchronized() })
		// A recomputing backward may stand behind messages of a later place (pipeline.Order), so nothing else is moved.
		for _, t := range all {
			at := len(own)
			for at > 0 && own[at-1].Place.Compare(t.Place) > 0 {
				at--
			}
			own = slices.Insert(own, at, t)
		}
		o.Instructions[d] = own
	}
}

// wholeSums returns the instructions with which the sum of each bucket of each round is first sent, in their order.
func (o *Order) wholeSums(s int) (all []Instruction) {
	x := o.Sums[s]
	var sends []Instruction
	for _, d := range x.Line {
		for _, t := range o.Instructions[d] {
			if t.Kind == pipeline.Gathering && t.Stage == s && x.Owner(t.Bucket) == d {
				sends = append(sends, t)
			}
		}
	}
	for _, t := range sends {
		at := slices.IndexFunc(all, func(u Instruction) bool { return u.Bucket == t.Bucket && o.Residue(u.Shift) == o.Residue(t.Shift) })
		switch {
		case at < 0:
			all = append(all, t)
		case earlier(t, all[at]):
			all[at] = t
		}
	}
	slices.SortStableFunc(all, func(a, b Instruction) int {
		return cmp.Or(cmp.Compare(o.Residue(a.Shift), o.Residue(b.Shift)), cmp.Compare(b.Shift, a.Shift), a.Place.Compare(b.Place))
	})
	return all
}

// comesBetween reports whether a device of a line has something else to do between two instructions of sums.
func comesBetween(instructions [][]Instruction, line []int, a, b Instruction) bool {
	behind := func(a, b Instruction) bool { return a.Place.Compare(b.Place) > 0 }
	return slices.ContainsFunc(line, func(d int) bool {
		return slices.ContainsFunc(instructions[d], func(t Instruction) bool {
			return (t.Stage != a.Stage || !t.Synchronized()) && behind(t, a) && behind(b, t)
		})
	})
}

// earlier reports whether an instruction of one residue comes before another one of it.
func earlier(a, b Instruction) bool {
	return cmp.Or(cmp.Compare(b.Shift, a.Shift), cmp.Compare(a.Place.Half, b.Place.Half)) < 0
}
