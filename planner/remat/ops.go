package remat

import "plimsoll/planner/schedule"

func all(l int) schedule.Op      { return schedule.Op{Kind: schedule.ForwardAll, Layer: l} }
func backward(l int) schedule.Op { return schedule.Op{Kind: schedule.Backward, Layer: l} }

// run appends F^ck_s, F^∅_{s+1}, ..., F^∅_x: a_{s-1} stays, a_x is new.
func run(seq schedule.Sequence, s, x int) schedule.Sequence {
	seq = append(seq, checkpoint(s))
	for l := s + 1; l <= x; l++ {
		seq = append(seq, discard(l))
	}
	return seq
}

func discard(l int) schedule.Op { return schedule.Op{Kind: schedule.ForwardDiscard, Layer: l} }

func checkpoint(l int) schedule.Op { return schedule.Op{Kind: schedule.ForwardCheckpoint, Layer: l} }
