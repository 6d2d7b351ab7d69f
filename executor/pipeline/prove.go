package pipeline

import (
	"iter"
	"maps"
	"plimsoll/executor/internal/cycle"
	"plimsoll/executor/internal/table"
	"slices"
)

// prove proves that memory, of whatever device, is reused only behind its last user. With Pace, kernels touch nothing. Errors:
// ErrPlan, *OrderError.
func (comp *compilation) prove() error {
	if comp.opt.Pace != nil {
		return nil
	}
	return comp.proveSegments(comp.provenSegments()...)
}

// proveSegments is prove for segments of so many minibatches, one behind the other.
func (comp *compilation) proveSegments(segments ...int) error {
	var sources []iter.Seq[[]table.Played]
	var commands []iter.Seq[*table.Command]
	for _, d := range comp.drivers {
		sources, commands = append(sources, d.table.Plays(d.Device, segments)), append(commands, d.table.Commands())
	}
	return comp.prover().Prove(sources, commands)
}

// prover returns the one of all devices. At the beginning of a run all blocks of channels are granted but those that are asked for.
func (comp *compilation) prover() table.Prover {
	p := table.Prover{Streams: comp.streams}
	for _, d := range comp.drivers {
		p.Devices = append(p.Devices, d.Device)
	}
	for _, l := range comp.channels {
		if !l.asked {
			p.Given = append(p.Given, l.free...)
		}
	}
	return p
}

// mostProven is how many commands of a segment are proved at most so that operands come together in all ways that they can. The
// cycle of one operand alone is proved however long it is.
const mostProven = 1 << 18

// provenSegments returns how many minibatches the segments have that are proved, one behind the other. With a flush a step is proved
// twice: the second begins in the memory of the first. Where batches are staged the second begins with one that waits, and a third step
// brings its own again. Steps of a cyclic plan run on into each other: all that meets is in three of
// them.
//
// Without a flush three kinds of segments follow each other:
//
//   - The first one fills the pipeline, and goes on until each operand of each command, and each row's shapes, have gone round twice. The
//     first round's data in a place then meet the second round's. If at most mostProven commands are enough, it goes on until
//     all operands of a command have gone round together.
//   - For each slot of the weights of a stage, the shortest segment follows that leaves the latest weights there.
//   - The first one comes again.
//
// Segments of other lengths differ from these in which slab, block or slot a command has, and so do operands that come together later. The
// waits of a command are the same. Slabs, blocks and slots of one kind are taken in turn, and each has memory and events of its own.
// Between two commands that meet in one lie the same commands, whichever it is. The order of commands is one list for each shape of a row,
// and all shapes are in the first segment. Slots of a ring may share memory (ring), and all of them are in it, too.
func (comp *compilation) provenSegments() []int {
	switch {
	case comp.order.Plan.IsCycle():
		return []int{3 * comp.group, comp.group, 3 * comp.group}
	case comp.order.Plan.IsFlush() && comp.StagedBytes() > 0:
		return []int{comp.group, comp.group, comp.group}
	case comp.order.Plan.IsFlush():
		return []int{comp.group, comp.group}
	}
	begins, turn, together, commands := 0, 1, 1, 0
	for _, d := range comp.drivers {
		for i := range d.table.Rows {
			r := &d.table.Rows[i]
			turn, commands = max(turn, r.Turn, len(r.Shapes.Round)), commands+len(r.Lists[0])
			for _, c := range append([]cycle.Cycle{r.Shapes}, r.Axes...) {
				begins, together = max(begins, len(c.Begins)), max(together, len(c.Round))
			}
		}
	}
	together = min(together, mostProven/max(commands, 1))
	whole := max(comp.order.Long(), (begins+max(2*turn, together))*comp.order.Repeats)
	whole = (whole + comp.group - 1) / comp.group * comp.group
	ends := map[int]bool{}
	for _, d := range comp.drivers {
		for i := range d.table.Ends {
			d.table.Ends[i].Lengths(comp.group, ends)
		}
	}
	return slices.Concat([]int{whole}, slices.Sorted(maps.Keys(ends)), []int{whole})
}
