package improve

import (
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Memory returns, for each compute op, the bytes in use while it runs if the activations of the gaps are away between
// their two ops and transfers take no time; nil when the sequence does not keep the rules then.
func Memory(c *chain.Chain, compute schedule.Sequence, gaps []Gap) []int64 {
	moves := make([]Transfers, len(gaps))
	for k, g := range gaps {
		moves[k] = Transfers{Layer: g.Layer, Offload: g.From, Prefetch: g.To}
	}
	f, out := schedule.Follow(c), make([]int64, 0, len(compute))
	used, leaving := c.AllInputBytes(), int64(0)
	for _, op := range Merge(compute, moves) {
		e, err := f.Do(op)
		switch {
		case err != nil:
			return nil
		case op.Kind == schedule.Offload: // it is there while the next op runs
			leaving += e.Moves
		case op.Kind == schedule.Prefetch:
			used += e.Moves
		default:
			out = append(out, used+e.Takes)
			used, leaving = used+e.Leaves-leaving, 0
		}
	}
	return out
}

// Bytes returns the size of what a gap moves.
func Bytes(c *chain.Chain, compute schedule.Sequence, gap Gap) int64 {
	return stored(c, compute[:gap.From]).Bytes(gap.Layer - 1)
}

// stored replays ops that keep the rules.
func stored(c *chain.Chain, seq schedule.Sequence) *schedule.Follower {
	f := schedule.Follow(c)
	for _, op := range seq {
		if _, err := f.Do(op); err != nil {
			panic("BUG: " + err.Error())
		}
	}
	return f
}
