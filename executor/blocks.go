package executor

import (
	"fmt"

	"plimsoll/models"
	"plimsoll/planner/schedule"
)

// none marks the absence of a block.
const none = -1

// opBlocks says which items one op of a sequence works on; none where it has no such block.
type opBlocks struct {
	input, output, gradOutput, gradInput, scratch int
}

// tape is a sequence with its memory: every block that it makes, with the ops between which it lives.
type tape struct {
	seq   schedule.Sequence
	ops   []opBlocks
	items []item
	first []bool // whether an op is the first forward of its layer
}

// stored is what device memory holds of one activation.
type stored struct {
	block int
	saved bool // ā_i rather than a_i
}

// recorder replays a sequence into a tape. Memory of op i: everything stored before it, its output and its
// scratch; what the op replaces or consumes lives until it ends (design, section 4).
type recorder struct {
	*tape
	layers []*models.Programs
	act    []stored // by activation index 0..n
	grad   int      // block of the gradient in memory; none for the empty δ_{L+1}
	level  int      // its index
	seen   []bool
	now    int
}

// record lays the life of every block of seq onto a tape. input is the size of a_0. The sequence must keep the
// rules (schedule.Verify) and have no transfers.
func record(layers []*models.Programs, input int64, seq schedule.Sequence) (*tape, error) {
	n := len(layers)
	r := &recorder{
		tape:   &tape{seq: seq, ops: make([]opBlocks, len(seq)), first: make([]bool, len(seq))},
		layers: layers, act: make([]stored, n+1), grad: none, level: n, seen: make([]bool, n+1),
	}
	for i := range r.act {
		r.act[i].block = none
	}
	r.act[0] = stored{block: r.open(input)}
	for i, op := range seq {
		r.now = i
		if err := r.apply(op); err != nil {
			return nil, fmt.Errorf("op %d (%v): %w", i, op, err)
		}
	}
	r.close(r.grad) // δ_0
	return r.tape, nil
}

func (r *recorder) apply(op schedule.Op) error {
	if op.Kind.Transfer() {
		return ErrTransfers
	}
	l, p := op.Layer, r.layers[op.Layer-1]
	blocks := &r.ops[r.now]
	*blocks = opBlocks{input: r.act[l-1].block, output: none, gradOutput: none, gradInput: none, scratch: none}
	if blocks.input == none {
		panic("BUG: a sequence that was not verified reached the executor")
	}
	scratch := p.Forget.Scratch
	switch op.Kind {
	case schedule.Backward:
		scratch = p.Back.Scratch
		r.backward(l, blocks)
	case schedule.ForwardAll:
		scratch = p.Save.Scratch
		blocks.output = r.store(l, p.SavedBytes, true)
	default:
		blocks.output = r.store(l, p.OutputBytes, false)
		if op.Kind == schedule.ForwardDiscard {
			r.drop(l - 1)
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
	return nil
}

func (r *recorder) backward(l int, blocks *opBlocks) {
	blocks.output, blocks.gradOutput = r.act[l].block, r.grad
	blocks.gradInput = r.open(r.gradient(l - 1))
	r.close(r.grad)
	r.grad, r.level = blocks.gradInput, l-1
	r.drop(l)
	if !r.act[l-1].saved {
		r.drop(l - 1)
	}
}

// gradient returns the bytes of δ_i.
func (r *recorder) gradient(i int) int64 {
	if i == 0 {
		return r.items[0].bytes
	}
	return r.layers[i-1].GradientBytes
}

// store opens the block that a forward of layer l writes. What is stored already stays, except that ā_l takes the
// place of a plain a_l; a redundant result lives only while its op runs.
func (r *recorder) store(l int, bytes int64, saved bool) int {
	block := r.open(bytes)
	switch old := r.act[l]; {
	case old.block == none:
		r.act[l] = stored{block, saved}
	case saved && !old.saved:
		r.close(old.block)
		r.act[l] = stored{block, saved}
	default:
		r.close(block)
	}
	return block
}

func (r *recorder) drop(i int) {
	r.close(r.act[i].block)
	r.act[i] = stored{block: none}
}

// open begins the life of a block at the current op.
func (r *recorder) open(bytes int64) int {
	r.items = append(r.items, item{bytes: bytes, first: r.now, last: len(r.seq) - 1})
	return len(r.items) - 1
}

// close ends the life of a block with the current op.
func (r *recorder) close(block int) {
	if block != none {
		r.items[block].last = r.now
	}
}
