package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// blockKind says which memory a block of an op lies in.
type blockKind uint8

const (
	inNothing        blockKind = iota
	inStageInput               // the input of the stage; of a branch, whose number is the item
	inInputGradient            // δ of the input of the stage, which leaves it
	inSentOutput               // the output of the stage, which leaves it and is not kept
	inOutputGradient           // δ of the output of the stage, which comes back
	inItem                     // of the minibatch, from one op to another
)

// block is a piece of memory of an op.
type block struct {
	in   blockKind
	item int // of the minibatch, where it lies in one
}

// op is one program of a layer within a task.
type op struct {
	layer   int             // counted from 1, in the whole model
	number  int             // in the sequence of the stage, from 1; of a second half behind it
	at      int             // its moment
	until   int             // the last moment before it has ended
	program *models.Program // nil of a transfer
	moves   schedule.Kind   // of a transfer in a step with a flush
	host    int             // the host item of that
	// first says that the layer's statistics move: it is the minibatch's first forward of the layer.
	first                                               bool
	input, output, gradOutput, gradInput, scratch, kept block
	joined                                              []end // of branches 1 and up, where the layer joins branches
	// gradients says that the op writes those of parameters.
	gradients bool
	closes    []int // buckets whose gradients no later op of the task writes (synchronization)
}

// end is the end of a branch, as the op of the layer that joins branches works on it.
type end struct{ input, gradInput block }

// ofBranch returns the blocks of input number branch of the layer, and of δ of it.
func (o *op) ofBranch(branch int) (input, gradInput *block) {
	if branch == 0 {
		return &o.input, &o.gradInput
	}
	return &o.joined[branch-1].input, &o.joined[branch-1].gradInput
}

// stageOps is what one minibatch does in a stage: the ops of each task, with their memory. The input of the stage, δ of its output
// and δ of its input are blocks of their own, because they may come from or go to another device; so is an output that only
// another device reads. All else are items, which live from one moment to another: a moment is an op of the sequence, or of the second
// half of the backward behind it. Where they lie is up to who lays a device out.
type stageOps struct {
	tasks   map[pipeline.Kind][]op
	cut     int         // the first moment of the backward
	half    int         // the first moment of its second half, behind all others
	moments int         // of all tasks
	out     block       // a_j, the stage's output, when the forward has ended
	result  int         // the item of it; none when it leaves at once
	items   []pack.Item // by their moments
	swaps   []swap      // what goes to the host and comes back, round and round
	host    []pack.Item // what is with the host in a step with a flush
	before  []int       // by moment, in a step with transfers: that of the compute op before it in the sequence; none
}

// stageContext is what surrounds a stage.
type stageContext struct {
	chain.Wiring
	inputBytes int64 // of the model; of each branch
	split      bool  // the backward is B and W
	departs    bool  // the output goes to another device, for every minibatch
	lingers    bool  // the stage behind reads the output when the backward of this one may have ended
	// time says when transfers run in a step with a flush: a moment is then the start of an op. nil: there are none, or they go round
	// and round, and a moment is the place of an op in the sequence.
	time *executor.Timeline
}

// stageCompiler compiles the sequence of a stage.
type stageCompiler struct {
	*stageOps
	stageContext
	layers []*models.Programs // of the whole model
	st     pipeline.Stage
	seq    schedule.Sequence
	params []op // the second half, where there is one
	turn   int  // in the sequence, the first op of the backward
	now    int  // likewise, the op
	refs   []ref
	act    map[int]storedActivation // by activation: what is stored of it
	moving                          // with a timeline
	grad   map[int]int              // by activation: the item of δ of it
	entry  int64                    // bytes of the stage's input
	seen   map[int]bool
}

// ref binds a block of an op to an item until the items have places.
type ref struct {
	to   *block
	item int
}

// storedActivation is a stored activation: an item, or the stage's input.
type storedActivation struct {
	item   int
	branch int // of an input
	saved  bool
}

// storeAll returns the sequence of a stage that recomputes nothing.
func storeAll(st pipeline.Stage) (seq schedule.Sequence) {
	for l := st.First; l <= st.Last; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
	}
	for l := st.Last; l >= st.First; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

// compileStage lays out what a minibatch does in a stage. Its own ops, where it has any, must be those of a plan that was checked.
// In two halves, a backward keeps for the second one what the first has spared (models.Programs). Errors: ErrPlan.
func compileStage(layers []*models.Programs, st pipeline.Stage, c stageContext) (*stageOps, error) {
	t := &stageCompiler{
		stageOps: &stageOps{tasks: map[pipeline.Kind][]op{}, result: none}, stageContext: c, layers: layers, st: st, seq: st.Ops,
		entry: c.inputBytes, act: map[int]storedActivation{}, grad: map[int]int{}, seen: map[int]bool{}, moving: newMoving(),
	}
	if st.First > 1 {
		t.entry = layers[st.First-2].GradientBytes
	}
	if c.split && len(t.seq) > 0 {
		return nil, fmt.Errorf("%w: stage of layers %d to %d has ops of its own and a backward in two halves", ErrPlan, st.First, st.Last)
	}
	if len(t.seq) == 0 {
		t.seq = storeAll(st)
	}
	t.half = len(t.seq)
	if c.split {
		t.params = make([]op, st.Len())
	}
	t.moments = t.half + len(t.params)
	if err := t.findTurn(); err != nil {
		return nil, err
	}
	ops := make([]op, len(t.seq))
	t.act[st.First-1] = storedActivation{item: none}
	for k := 1; k < t.Inputs(); k++ {
		t.act[t.Input(k)] = storedActivation{item: none, branch: k}
	}
	for i, o := range t.seq {
		t.now = i
		ops[i] = op{layer: o.Layer, number: i + 1, at: t.starts(), until: t.ends()}
		if err := t.apply(o, &ops[i]); err != nil {
			return nil, fmt.Errorf("%w: stage of layers %d to %d, op %d, %v: %w", ErrPlan, st.First, st.Last, i, o, err)
		}
	}
	if t.result != none && t.lingers {
		t.items[t.result].Last = t.moments - 1
	}
	for _, r := range t.refs {
		*r.to = block{in: inItem, item: r.item}
	}
	t.out = ops[t.turn-1].output
	if t.time != nil {
		ops = t.inTime(ops)
	} else {
		t.cut = t.turn
	}
	t.tasks[pipeline.F], t.tasks[pipeline.B], t.tasks[pipeline.W] = t.issued(ops[:t.cut]), t.issued(ops[t.cut:]), t.params
	return t.stageOps, nil
}

// starts returns the moment at which the op starts, ends the last one before it has ended.
func (t *stageCompiler) starts() int {
	if t.time != nil {
		return t.time.Start[t.now]
	}
	return t.now
}

func (t *stageCompiler) ends() int {
	if t.time != nil {
		return t.time.End[t.now]
	}
	return t.now
}

// findTurn finds where the backward of a stage begins: behind the op that computes its output for the first time.
func (t *stageCompiler) findTurn() error {
	t.turn = slices.IndexFunc(t.seq, func(o schedule.Op) bool {
		return o.Layer == t.st.Last && o.Kind != schedule.Offload && o.Kind != schedule.Prefetch
	})
	if t.turn < 0 || t.seq[t.turn].Kind == schedule.Backward {
		return fmt.Errorf("%w: stage of layers %d to %d: its ops do not compute layer %d", ErrPlan, t.st.First, t.st.Last, t.st.Last)
	}
	t.turn++
	return nil
}

func (t *stageCompiler) apply(o schedule.Op, out *op) error {
	if o.Layer < t.st.First || o.Layer > t.st.Last {
		return fmt.Errorf("stages run their own layers")
	}
	if o.Kind.Transfer() {
		return t.transfer(o, out)
	}
	p, inputs := t.layers[o.Layer-1], t.Reads(o.Layer)
	out.joined = make([]end, len(inputs)-1)
	for k, i := range inputs {
		input, _ := out.ofBranch(k)
		if err := t.read(i, input); err != nil {
			return err
		}
	}
	switch o.Kind {
	case schedule.Backward:
		out.program = &p.Back
		if len(t.params) > 0 {
			out.program = &p.BackInput
		}
		out.gradients = out.program.Uses(models.Grads)
		if err := t.backward(o.Layer, inputs, out); err != nil {
			return err
		}
	case schedule.ForwardAll:
		out.program = &p.Save
		if err := t.store(o.Layer, p.SavedBytes, true, &out.output); err != nil {
			return err
		}
	default:
		out.program = &p.Forget
		if t.now == t.turn-1 && t.departs {
			out.output = block{in: inSentOutput}
		} else if err := t.store(o.Layer, p.OutputBytes, false, &out.output); err != nil {
			return err
		}
		if o.Kind == schedule.ForwardDiscard {
			t.dropPlain(inputs)
		}
	}
	if o.Kind != schedule.Backward {
		out.first, t.seen[o.Layer] = !t.seen[o.Layer], true
	}
	if n := out.program.Scratch; n > 0 {
		t.close(t.open(n, &out.scratch))
	}
	clear(t.leaving)
	return nil
}

// read binds a block to the stored activation l.
func (t *stageCompiler) read(l int, to *block) error {
	a, ok := t.act[l]
	if !ok {
		a, ok = t.leaving[l]
	}
	if !ok {
		return fmt.Errorf("the output of layer %d is not stored", l)
	}
	if a.item == none {
		*to = block{in: inStageInput, item: a.branch}
		return nil
	}
	t.refs = append(t.refs, ref{to, a.item})
	it := &t.items[a.item]
	if _, leaves := t.leaving[l]; leaves {
		it.Last = max(it.Last, t.ends())
	} else {
		it.Last = t.ends()
	}
	return nil
}

// store opens the block that a forward of layer l writes; ā_l takes the place of a plain a_l. Error: *executor.UnusedPrefetchError.
func (t *stageCompiler) store(l int, bytes int64, saved bool, to *block) error {
	item := t.open(bytes, to)
	if t.now == t.turn-1 {
		t.result = item
	}
	if old, ok := t.act[l]; ok && (old.saved || !saved) {
		t.close(item) // a redundant result
		return nil
	}
	old, ok := t.act[l]
	t.drop(l)
	t.act[l] = storedActivation{item: item, saved: saved}
	if ok && old.item != none && t.items[old.item].Last < t.items[old.item].First {
		return &executor.UnusedPrefetchError{Prefetch: t.time.Order[t.items[old.item].First], Index: t.now, Op: t.seq[t.now]}
	}
	return nil
}

func (t *stageCompiler) backward(l int, inputs []int, out *op) error {
	a, stored := t.act[l]
	if !stored {
		a = t.leaving[l] // to the host, since the op before
	}
	if !a.saved {
		return fmt.Errorf("layer %d was not saved", l)
	}
	if err := t.read(l, &out.output); err != nil {
		return err
	}
	switch {
	case l < t.st.Last:
		t.refs = append(t.refs, ref{&out.gradOutput, t.grad[l]})
		t.close(t.grad[l])
	case l < len(t.layers):
		out.gradOutput.in = inOutputGradient
	}
	for k, i := range inputs {
		_, to := out.ofBranch(k)
		t.openGradient(i, to)
	}
	if len(t.params) > 0 {
		return t.second(l, out)
	}
	t.drop(l)
	t.dropPlain(inputs)
	return nil
}

// openGradient binds a block to δ of activation i.
func (t *stageCompiler) openGradient(i int, to *block) {
	switch {
	case t.IsInput(i): // which nobody reads
		t.close(t.open(t.inputBytes, to))
	case i < t.st.First:
		to.in = inInputGradient
	default:
		t.grad[i] = t.open(t.layers[i-1].GradientBytes, to)
	}
}

// second records the second half of a layer's backward. What a minibatch has saved stays until its end, as the plan counts
// it; so do gradients that the second half reads.
func (t *stageCompiler) second(l int, first *op) error {
	p, at := t.layers[l-1], t.st.Last-l
	w := &t.params[at]
	*w = op{layer: l, number: t.half + at + 1, at: t.half + at, until: t.half + at, program: &p.BackParams, gradients: p.BackParams.Uses(models.Grads)}
	if err := t.read(l-1, &w.input); err != nil {
		return err
	}
	if err := t.read(l, &w.output); err != nil {
		return err
	}
	for _, item := range []int{t.act[l].item, t.act[l-1].item} {
		if item != none {
			t.items[item].Last = t.half + len(t.params) - 1
		}
	}
	if n := p.BackParams.Scratch; n > 0 {
		item := &t.items[t.open(n, &w.scratch)]
		item.First, item.Last = t.half+at, t.half+at
	}
	if p.KeptBytes > 0 {
		item := t.open(p.KeptBytes, &first.kept)
		t.refs = append(t.refs, ref{&w.kept, item})
		t.items[item].Last = t.half + at
	}
	if !p.BackParams.Uses(models.GradOutput) {
		return nil
	}
	if l == t.st.Last {
		w.gradOutput.in = inOutputGradient
		return nil
	}
	t.refs = append(t.refs, ref{&w.gradOutput, t.grad[l]})
	t.items[t.grad[l]].Last = t.half + at
	return nil
}

// dropPlain drops those of some activations that are not saved sets.
func (t *stageCompiler) dropPlain(activations []int) {
	for _, i := range activations {
		if !t.act[i].saved {
			t.drop(i)
		}
	}
}

// drop ends the life of what is stored of activation l with the current op.
func (t *stageCompiler) drop(l int) {
	if a, ok := t.act[l]; ok && a.item != none {
		t.close(a.item)
		delete(t.act, l)
	}
}

func (t *stageCompiler) open(bytes int64, to *block) int {
	t.items = append(t.items, pack.Item{Bytes: kernels.Align(bytes), First: t.starts(), Last: len(t.seq) - 1})
	t.refs = append(t.refs, ref{to, len(t.items) - 1})
	return len(t.items) - 1
}

func (t *stageCompiler) close(item int) { t.items[item].Last = t.ends() }

// task returns the moments at which those of a task begin and end.
func (t *stageOps) task(kind pipeline.Kind) (begin, end int) {
	switch kind {
	case pipeline.F:
		return 0, t.cut
	case pipeline.B:
		return t.cut, t.half
	}
	return t.half, t.moments
}

// taskAt returns the task of a moment.
func (t *stageOps) taskAt(moment int) pipeline.Kind {
	switch {
	case moment < t.cut:
		return pipeline.F
	case moment < t.half:
		return pipeline.B
	}
	return pipeline.W
}

// stays reports whether an item outlives its task. The output of the stage does: it may be on its way to another device.
func (t *stageOps) stays(item int) bool {
	it := &t.items[item]
	return t.taskAt(it.First) != t.taskAt(it.Last) || item == t.result
}

// writes reports whether a task writes gradients of parameters.
func (t *stageOps) writes(kind pipeline.Kind) bool {
	return slices.ContainsFunc(t.tasks[kind], func(o op) bool { return o.gradients })
}

// late reports whether the second half of a stage's backward reads δ of the stage's output.
func late(layers []*models.Programs, st pipeline.Stage, split bool) bool {
	return split && st.Last < len(layers) && layers[st.Last-1].BackParams.Uses(models.GradOutput)
}

// those returns the items that begin at the moments from begin to end and stay, or do not, and which they are.
func (t *stageOps) those(begin, end int, stay bool) (items []pack.Item, index []int) {
	for i, it := range t.items {
		if it.First >= begin && it.First < end && t.stays(i) == stay {
			items, index = append(items, it), append(index, i)
		}
	}
	return items, index
}
