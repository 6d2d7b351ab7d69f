package schedule

// Ungroup rewrites a sequence for a chain with its layers in groups (chain.Group) as one for the layers themselves. Each op
// becomes the ops of its group's members, and a transfer of a group's saved set becomes transfers of its members' saved sets.
// Compute ops run as chain.Group says; a sequence with transfers has to be simulated again.
func Ungroup(seq Sequence, lasts []int) Sequence {
	u := ungrouping{lasts: lasts, saved: make([]bool, len(lasts)+1), host: make([]bool, len(lasts)+1)}
	for _, op := range seq {
		u.add(op)
	}
	return u.out
}

// ungrouping is a sequence on its way. An activation that a group left is a saved set, or plain, on the device and on the host.
type ungrouping struct {
	lasts       []int
	saved, host []bool
	out         Sequence
}

// layers returns the first and the last member of a group.
func (u *ungrouping) layers(group int) (first, last int) {
	if group > 1 {
		first = u.lasts[group-2]
	}
	return first + 1, u.lasts[group-1]
}

func (u *ungrouping) add(op Op) {
	first, last := u.layers(op.Layer)
	switch op.Kind {
	case ForwardAll, ForwardCheckpoint, ForwardDiscard:
		u.forward(op.Kind, first, last)
		u.saved[op.Layer] = op.Kind == ForwardAll
	case Backward:
		for l := last; l >= first; l-- {
			u.emit(Backward, l)
		}
	case Offload:
		u.host[op.Layer-1] = u.saved[op.Layer-1]
		for l := u.oldest(op.Layer); l <= first; l++ {
			u.emit(Offload, l)
		}
	case Prefetch:
		u.saved[op.Layer-1] = u.host[op.Layer-1]
		for l := first; l >= u.oldest(op.Layer); l-- {
			u.emit(Prefetch, l)
		}
	}
}

// oldest returns the first layer whose input belongs to what a transfer of the input of a group moves.
func (u *ungrouping) oldest(group int) int {
	first, _ := u.layers(group)
	if u.host[group-1] {
		before, _ := u.layers(group - 1)
		return before + 1
	}
	return first
}

func (u *ungrouping) forward(kind Kind, first, last int) {
	u.emit(kind, first)
	if kind == ForwardCheckpoint {
		kind = ForwardDiscard
	}
	for l := first + 1; l <= last; l++ {
		u.emit(kind, l)
	}
}

func (u *ungrouping) emit(kind Kind, layer int) { u.out = append(u.out, Op{Kind: kind, Layer: layer}) }
