package validate

import "fmt"

// clearly is by how much a strategy must be faster to count.
const clearly = 1.01

// duels compares the strategy of the first row with every other one.
func duels(rows []Row) (all []Duel) {
	index := map[string]int{}
	for i := range rows {
		a := &rows[i]
		if a.Strategy != rows[0].Strategy {
			continue
		}
		for j := range rows {
			b := &rows[j]
			if a.Strategy == b.Strategy || a.Devices != b.Devices || a.Limit != b.Limit || a.Draw != b.Draw {
				continue
			}
			at, ok := index[b.Strategy]
			if !ok {
				at = len(all)
				index[b.Strategy], all = at, append(all, Duel{A: a.Strategy, B: b.Strategy})
			}
			all[at].add(a, b)
		}
	}
	return all
}

// add counts a point. A step's microbatches are images of a smaller batch: strategies are compared by the image.
func (d *Duel) add(a, b *Row) {
	d.Points++
	per := func(r *Row, seconds float64) float64 {
		return seconds / float64(r.Minibatches*r.from.Job.Config.Batch)
	}
	planned := per(b, b.PredictedS) / per(a, a.PredictedS)
	measured := per(b, b.MeasuredS) / per(a, a.MeasuredS)
	switch {
	case planned > clearly:
		d.PlannedFaster++
		if measured > 1 {
			d.MeasuredFaster++
		}
	case planned*clearly < 1:
		d.PlannedSlower++
		if measured < 1 {
			d.MeasuredSlower++
		}
	}
}

// String prints the duel as a sentence.
func (d Duel) String() string {
	return fmt.Sprintf("%s beside %s at %d points: planned faster by more than 1 %% at %d, was at %d; planned slower at %d, was at %d",
		d.A, d.B, d.Points, d.PlannedFaster, d.MeasuredFaster, d.PlannedSlower, d.MeasuredSlower)
}
