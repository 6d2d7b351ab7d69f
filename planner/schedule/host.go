package schedule

import "plimsoll/planner/chain"

// HostBytes returns the most that the copies of a sequence take of host memory, in bytes: each is there from its offload to the
// last prefetch that reads it. Errors: *RuleError.
func HostBytes(c *chain.Chain, seq Sequence) (int64, error) {
	var r replay
	if err := r.judge(c, seq); err != nil {
		return 0, err
	}
	return r.hostBytes(seq), nil
}

// hostBytes adds up a sequence that was judged.
func (r *replay) hostBytes(seq Sequence) (most int64) {
	if r.compute == len(seq) {
		return 0
	}
	last := make([]int, len(seq)) // by offload: the last op that needs its copy
	offload := map[int]int{}      // by layer, the latest
	for p, op := range seq {
		switch op.Kind {
		case Offload:
			offload[op.Layer], last[p] = p, p
		case Prefetch:
			last[offload[op.Layer]] = p
		}
	}
	leaves := make([]int64, len(seq)) // bytes whose last op this is
	used := int64(0)
	for p, op := range seq {
		if op.Kind == Offload {
			used += r.steps[p].bytes
			leaves[last[p]] += r.steps[p].bytes
			most = max(most, used)
		}
		used -= leaves[p]
	}
	return most
}
