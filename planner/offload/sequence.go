package offload

import (
	"sort"

	"plimsoll/planner/schedule"
)

// build writes the sequence that offloads a selection: every offload directly before the forward that reads the
// activation, every prefetch of activation i before compute op at[i]. Compute ops are numbered from 0: F_1..F_n,
// B_n..B_1. The sequence is valid until the next call.
func (s *search) build(away []bool) schedule.Sequence {
	s.ops = s.ops[:0]
	next := s.n - 1
	for k := range 2 * s.n {
		for ; next >= 0 && (!away[next] || s.at[next] <= k); next-- {
			if away[next] {
				s.ops = append(s.ops, schedule.Op{Kind: schedule.Prefetch, Layer: next + 1})
			}
		}
		op := schedule.Op{Kind: schedule.ForwardAll, Layer: k + 1}
		if k >= s.n {
			op = schedule.Op{Kind: schedule.Backward, Layer: 2*s.n - k}
		} else if away[k] {
			s.ops = append(s.ops, schedule.Op{Kind: schedule.Offload, Layer: k + 1})
		}
		s.ops = append(s.ops, op)
	}
	return s.ops
}

// early is a prefetch that must start before B_n does.
type early struct {
	activation int
	lead       float64 // seconds from its start to the start of B_n
}

// latest places every prefetch as late as possible, and returns those that must start before B_n, in increasing
// order; for now they stand directly before it.
//
// It follows the backward phase in reversed time, in which a prefetch is an offload. It starts when the link is free
// and the backward that reads the activation has ended, and it frees memory when it has ended itself. A prefetch
// stands before the op during which it then starts. In the simulation it starts no later than here, and fits,
// because an op and the transfers beside it fit together here.
func (s *search) latest(away []bool) []early {
	now, free, kept, queued := 0.0, 0.0, 0.0, 0.0
	var queue []int // activations in transfer, in increasing order
	s.early = s.early[:0]
	for l := 1; l <= s.n; l++ {
		room := s.memory - kept - s.saved[l-1] - s.needB[l]
		for len(queue) > 0 && (queued > room || s.arrives[queue[0]] <= now) {
			now = max(now, s.arrives[queue[0]])
			queued -= s.saved[queue[0]]
			queue = queue[1:]
		}
		s.starts[l] = now
		now += s.uB[l]
		if !away[l-1] {
			kept += s.saved[l-1]
			continue
		}
		free = max(free, now) + s.saved[l-1]/s.bandwidth
		s.arrives[l-1] = free
		queued += s.saved[l-1]
		queue = append(queue, l-1)
	}
	for i := range s.n {
		if !away[i] {
			continue
		}
		l := sort.Search(s.n, func(j int) bool { return s.starts[j+1] >= s.arrives[i] })
		s.at[i] = 2*s.n - max(l, i+1)
		if lead := s.arrives[i] - now; lead > 0 {
			s.early = append(s.early, early{i, lead})
		}
	}
	return s.early
}

// shift moves the early prefetches up into the forward phase, so that the first one starts with F_k. It reports whether
// that leaves no idle time before B_n, so that moving further is of no use.
func (s *search) shift(group []early, k int) (done bool) {
	first := group[len(group)-1]
	gap := max(0, first.lead-s.untilLoss[k])
	for _, e := range group {
		// Until the loss are the forwards from j+1 on, and the gap: the prefetch starts while F_j runs, or in the gap.
		j := sort.Search(s.n, func(j int) bool { return gap+s.untilLoss[j+2] < e.lead }) + 1
		s.at[e.activation] = max(j-1, first.activation+1)
	}
	return gap == 0
}

// offer tries the sequences that offload exactly a selection, with the early prefetches at every place where the
// first of them can start: at the loss, or with a forward. A selection that is too slow even with fractional
// communications is not simulated. It reports whether a sequence is the best so far.
func (s *search) offer(away []bool) (better bool) {
	if !s.fits(away) || s.best.seq != nil && s.seconds(s.evaluate(away)) > s.best.makespan {
		return false
	}
	group := s.latest(away)
	better = s.try(s.build(away), away)
	if len(group) == 0 {
		return better
	}
	first := group[len(group)-1].activation
	for k := s.n; k >= first+2; k-- {
		done := s.shift(group, k)
		if s.try(s.build(away), away) {
			better = true
		}
		if done {
			break
		}
	}
	return better
}
