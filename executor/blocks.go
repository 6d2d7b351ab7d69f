package executor

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/pack"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// none marks the absence of a block.
const none = -1

// opBlocks says which items one op of a sequence works on; none where it has no such block. An offload copies input to
// host, a prefetch host to output; host is an item of the host slab.
type opBlocks struct {
	input, output, gradOutput, gradInput, scratch, host int
	joined                                              []end // of branches 1 and up, where a layer joins branches
}

// end is the end of a branch, as the layer that joins them works on it.
type end struct{ input, gradInput int }

var noBlocks = opBlocks{none, none, none, none, none, none, nil}

// end returns the blocks of input number branch.
func (o *opBlocks) end(branch int) end {
	if branch == 0 {
		return end{o.input, o.gradInput}
	}
	return o.joined[branch-1]
}

// layout is a sequence with its memory: every block that it makes, with the moments between which it lives.
type layout struct {
	*Timeline
	seq   schedule.Sequence
	ops   []opBlocks
	items []pack.Item // of the arena; the first are the inputs, a_0
	host  []pack.Item // copies in the host slab
	first []bool      // whether an op is the first forward of its layer
}

// stored is the part of one activation that a memory holds.
type stored struct {
	block int
	saved bool // ā_i rather than a_i
}

var nowhere = stored{block: none}

// recorder replays a sequence into a layout. While an op runs, everything stored before it, its output and its scratch
// are in memory; what the op replaces or consumes lives until it ends. An offload frees the device copy when it, and
// the op that directly follows and reads the copy, have ended; a prefetch takes memory when it starts (design,
// section 4).
type recorder struct {
	*layout
	chain.Wiring
	layers  []*models.Programs
	act     []stored // on the device, by activation
	leaving []stored // offloaded since the last compute op, which still may be read
	away    []stored // on the host
	grad    []int    // block of the gradient of an activation; none for the empty δ_{L+1}
	seen    []bool
	now     int // position of the op
}

// record lays the life of every block of seq onto a layout. input is the size of a_0. The sequence must keep the
// rules (schedule.Verify). Error: *UnusedPrefetchError.
func record(wiring chain.Wiring, layers []*models.Programs, input int64, seq schedule.Sequence, t *Timeline) (*layout, error) {
	n := wiring.Activations()
	r := &recorder{
		layout: &layout{Timeline: t, seq: seq, ops: make([]opBlocks, len(seq)), first: make([]bool, len(seq))},
		Wiring: wiring, layers: layers, grad: slices.Repeat([]int{none}, n), seen: make([]bool, len(layers)+1),
		act: make([]stored, n), leaving: make([]stored, n), away: make([]stored, n),
	}
	for i := range r.act {
		r.act[i], r.leaving[i], r.away[i] = nowhere, nowhere, nowhere
	}
	for k := range wiring.Inputs() {
		r.items = append(r.items, pack.Item{Bytes: input, Last: len(seq) - 1})
		r.act[wiring.Input(k)].block = k
	}
	for p, op := range seq {
		r.now = p
		if err := r.apply(op); err != nil {
			return nil, err
		}
	}
	return r.layout, nil
}

func (r *recorder) apply(op schedule.Op) error {
	blocks := &r.ops[r.now]
	*blocks = noBlocks
	switch op.Kind {
	case schedule.Offload:
		r.offload(op.Layer-1, blocks)
		return nil
	case schedule.Prefetch:
		r.prefetch(op.Layer-1, blocks)
		return nil
	}
	return r.compute(op, blocks)
}

func (r *recorder) compute(op schedule.Op, blocks *opBlocks) (err error) {
	l, p, inputs := op.Layer, r.layers[op.Layer-1], r.Reads(op.Layer)
	blocks.input = r.read(inputs[0])
	for _, i := range inputs[1:] {
		blocks.joined = append(blocks.joined, end{r.read(i), none})
	}
	scratch := p.Forget.Scratch
	switch op.Kind {
	case schedule.Backward:
		scratch = p.Back.Scratch
		r.backward(l, inputs, blocks)
	case schedule.ForwardAll:
		scratch = p.Save.Scratch
		blocks.output, err = r.store(l, p.SavedBytes, true)
	default:
		blocks.output, err = r.store(l, p.OutputBytes, false)
		if op.Kind == schedule.ForwardDiscard {
			for _, i := range inputs {
				r.drop(i)
			}
		}
	}
	if op.Kind != schedule.Backward {
		r.first[r.now] = !r.seen[l]
		r.seen[l] = true
	}
	if scratch > 0 {
		blocks.scratch = r.open(scratch)
		r.close(blocks.scratch)
	}
	for i := range r.leaving {
		r.leaving[i] = nowhere
	}
	return err
}

// offload frees the device copy when the transfer ends.
func (r *recorder) offload(i int, blocks *opBlocks) {
	from := r.act[i]
	blocks.input, blocks.host = from.block, len(r.host)
	r.host = append(r.host, pack.Item{Bytes: r.items[from.block].Bytes, First: r.Start[r.now], Last: r.End[r.now]})
	r.close(from.block)
	r.leaving[i], r.away[i], r.act[i] = from, stored{blocks.host, from.saved}, nowhere
}

func (r *recorder) prefetch(i int, blocks *opBlocks) {
	from := r.away[i]
	copied := &r.host[from.block]
	copied.Last = max(copied.Last, r.End[r.now])
	blocks.host, blocks.output = from.block, r.open(copied.Bytes)
	r.act[i] = stored{blocks.output, from.saved}
}

// read returns the block of activation i. One that is leaving stays until its reader has ended, too.
func (r *recorder) read(i int) int {
	if block := r.act[i].block; block != none {
		return block
	}
	block := r.leaving[i].block
	if block == none {
		panic("BUG: a sequence that was not verified reached the executor")
	}
	it := &r.items[block]
	it.Last = max(it.Last, r.End[r.now])
	return block
}

func (r *recorder) backward(l int, inputs []int, blocks *opBlocks) {
	blocks.output, blocks.gradOutput = r.read(l), r.grad[l]
	blocks.gradInput = r.openGradient(inputs[0])
	for k, i := range inputs[1:] {
		blocks.joined[k].gradInput = r.openGradient(i)
	}
	r.close(r.grad[l])
	r.drop(l)
	for _, i := range inputs {
		if !r.act[i].saved {
			r.drop(i)
		}
	}
}

// openGradient begins the life of δ_i. That of a branch's input goes when its op has ended: nothing reads it.
func (r *recorder) openGradient(i int) int {
	if !r.IsInput(i) {
		r.grad[i] = r.open(r.layers[i-1].GradientBytes)
		return r.grad[i]
	}
	block := r.open(r.items[0].Bytes)
	if r.Joins() {
		r.close(block)
	}
	return block
}

// store opens the block that a forward of layer l writes. A stored activation stays, except that ā_l takes the
// place of a plain a_l; a redundant result lives only while its op runs.
func (r *recorder) store(l int, bytes int64, saved bool) (int, error) {
	block := r.open(bytes)
	switch old := r.act[l]; {
	case old.block == none:
		r.act[l] = stored{block, saved}
	case saved && !old.saved:
		r.close(old.block)
		if it := &r.items[old.block]; it.Last < it.First {
			return none, &UnusedPrefetchError{Prefetch: r.Order[it.First], Index: r.now, Op: r.seq[r.now]}
		}
		r.act[l] = stored{block, saved}
	default:
		r.close(block)
	}
	return block, nil
}

func (r *recorder) drop(i int) {
	r.close(r.act[i].block)
	r.act[i] = nowhere
}

// open begins the life of a block at the start of the current op.
func (r *recorder) open(bytes int64) int {
	r.items = append(r.items, pack.Item{Bytes: bytes, First: r.Start[r.now], Last: len(r.seq) - 1})
	return len(r.items) - 1
}

// close ends the life of a block with the current op.
func (r *recorder) close(block int) {
	if block != none {
		r.items[block].Last = r.End[r.now]
	}
}

// UnusedPrefetchError says that a forward_all may end before the transfer starts that brings the plain activation which
// it replaces. The semantics write the bytes of that copy off before they are taken, so memory would not add up.
type UnusedPrefetchError struct {
	Prefetch int         // position of the prefetch
	Index    int         // position of the forward_all
	Op       schedule.Op // the forward_all
}

func (e *UnusedPrefetchError) Error() string {
	return fmt.Sprintf("op %d (%v) replaces the copy that the prefetch at op %d brings, before that starts: leave the prefetch out",
		e.Index, e.Op, e.Prefetch)
}
