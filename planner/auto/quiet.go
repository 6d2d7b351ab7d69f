package auto

import (
	"cmp"
	"slices"

	"plimsoll/planner/schedule"
)

// quieter returns, among the plans that are expected to take at most Tolerance longer than the fastest, the plan with the least
// time of transfers; of equal ones the fastest. Expected times include the time that transfers take from computation beside them
// (Contention). Predicted times are as good as the machine is steady, and they are least certain about transfers. So a gain
// below the noise is not worth a transfer.
func (a *portfolio) quieter(best *Candidate, ranking []*Candidate) (*Candidate, error) {
	if a.Tolerance <= 0 && a.Contention <= 0 || best.transfers() == 0 {
		return best, nil
	}
	all := append([]*Candidate{best}, ranking...)
	slices.SortStableFunc(all, func(x, y *Candidate) int { return cmp.Compare(a.cost(x), a.cost(y)) })
	q := quieting{cost: a.cost, most: a.cost(all[0]) * (1 + a.Tolerance), limits: a.Limits()}
	var err error
	if q.sim, err = schedule.NewSimulator(a.Chain); err != nil {
		return nil, err
	}
	for _, c := range distinct(all) {
		fewer, err := q.without(c)
		if err != nil {
			return nil, err
		}
		all = append(all, fewer)
		q.most = min(q.most, a.cost(fewer)*(1+a.Tolerance))
	}
	all = slices.DeleteFunc(all, func(c *Candidate) bool { return a.cost(c) > q.most })
	return slices.MinFunc(all, func(x, y *Candidate) int { return cmp.Or(cmp.Compare(x.Transfer, y.Transfer), x.compare(y)) }), nil
}

// cost is the time that a plan is expected to take.
func (a *portfolio) cost(c *Candidate) float64 { return c.Makespan + a.Contention*c.Transfer }

func (c *Candidate) transfers() (n int) {
	for _, op := range c.Sequence {
		if op.Kind.Transfer() {
			n++
		}
	}
	return n
}

// quieting leaves out transfers.
type quieting struct {
	sim    *schedule.Simulator
	limits schedule.Limits
	cost   func(*Candidate) float64
	most   float64 // that a plan may cost, if it does not cost less than before
}

// without removes the offloads that a candidate can do without, each tried once, the longest first. The activation stays on
// the device, and the prefetches of its copy go too.
func (q *quieting) without(c *Candidate) (*Candidate, error) {
	r, err := q.sim.Run(c.Sequence, q.limits)
	if err != nil {
		return nil, err
	}
	out, gone := *c, make([]bool, len(c.Sequence))
	out.take(r)
	moved := offloads(c.Sequence, r)
	for _, at := range moved[:min(len(moved), 1+work/len(c.Sequence))] {
		toggle(c.Sequence, gone, at)
		next := Candidate{Strategy: c.Strategy, Sequence: kept(c.Sequence, gone)}
		if r, err = q.sim.Run(next.Sequence, q.limits); err == nil {
			next.take(r)
		}
		if err != nil || q.cost(&next) > max(q.most, q.cost(&out)) || swallows(next.Sequence) {
			toggle(c.Sequence, gone, at) // it is needed
			continue
		}
		out = next
	}
	return &out, nil
}

// offloads returns the positions of the offloads, the longest first.
func offloads(seq schedule.Sequence, r *schedule.Result) (all []int) {
	for p, op := range seq {
		if op.Kind == schedule.Offload {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(p, o int) int { return cmp.Compare(r.End[o]-r.Start[o], r.End[p]-r.Start[p]) })
	return all
}

// toggle leaves an offload and the prefetches of its copy out, or takes them in again.
func toggle(seq schedule.Sequence, gone []bool, offload int) {
	gone[offload] = !gone[offload]
	for p := offload + 1; p < len(seq) && seq[p] != seq[offload]; p++ {
		if seq[p].Kind == schedule.Prefetch && seq[p].Layer == seq[offload].Layer {
			gone[p] = !gone[p]
		}
	}
}

func kept(seq schedule.Sequence, gone []bool) (out schedule.Sequence) {
	for p, op := range seq {
		if !gone[p] {
			out = append(out, op)
		}
	}
	return out
}
