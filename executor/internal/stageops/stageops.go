// Package stageops turns the layers of a stage into ops. They are the programs of its layers in the order of its sequence, with the moments
// in which every block of memory is needed.
package stageops

import (
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
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
	InStageInput               // the input of the stage; of a branch, whose number is the item
	InInputGradient            // δ of the input of the stage, which leaves it
	InSentOutput               // the output of the stage, which leaves it and is not kept
	InOutputGradient           // δ of the output of the stage, which comes back
	InItem                     // of the minibatch, from one op to another
)

// Block is a piece of memory of an op.
type Block struct {
	In   blockKind
	Item int // of the minibatch, where it lies in one
}

// Op is one program of a layer within a task.
type Op struct {
	Layer   int             // counted from 1, in the whole model
	Number  int             // in the sequence of the stage, from 1; of a second half behind it
	At      int             // its moment
	Until   int             // the last moment before it has ended
	Program *models.Program // nil of a transfer
	Moves   schedule.Kind   // of a transfer in a step with a flush
	Host    int             // the host item of that
	// First says that the layer's statistics move: it is the minibatch's first forward of the layer.
	First                                               bool
	Input, Output, GradOutput, GradInput, Scratch, Kept Block
	Joined                                              []end // of branches 1 and up, where the layer joins branches
	// Gradients says that the op writes those of parameters.
	Gradients bool
	Closes    []int // buckets whose gradients no later op of the task writes (synchronization)
}

// end is the end of a branch, as the op of the layer that joins branches works on it.
type end struct{ Input, GradInput Block }

// OfBranch returns the blocks of input number branch of the layer, and of δ of it.
func (o *Op) OfBranch(branch int) (input, gradInput *Block) {
	if branch == 0 {
		return &o.Input, &o.GradInput
	}
	return &o.Joined[branch-1].Input, &o.Joined[branch-1].GradInput
}

// StageOps lists the ops of each task of a stage for one minibatch, with their memory. The input of the stage, δ of its output and δ of its
// input are blocks of their own, because they may come from or go to another device. An output that only another device reads is such a
// block, too. All else are items, which live from one moment to another: a moment is an op of the sequence, or of the second
// half of the backward behind it. Where they lie is up to who lays a device out.
type StageOps struct {
	Tasks   map[pipeline.Kind][]Op
	Cut     int         // the first moment of the backward
	half    int         // the first moment of its second half, behind all others
	Moments int         // of all tasks
	Out     Block       // a_j, the stage's output, when the forward has ended
	Result  int         // the item of it; none when it leaves at once
	Items   []pack.Item // by their moments
	Swaps   []Swap      // what goes to the host and comes back, round and round
	Host    []pack.Item // what is with the host in a step with a flush
	Before  []int       // by moment, in a step with transfers: that of the compute op before it in the sequence; none
}

// StageContext says where a stage stands: what its ends join, and when its transfers run.
type StageContext struct {
	chain.Wiring
	InputBytes int64 // of the model; of each branch
	Split      bool  // the backward is B and W
	Departs    bool  // the output goes to another device, for every minibatch
	Lingers    bool  // the stage behind reads the output when the backward of this one may have ended
	// Time says when transfers run in a step with a flush: a moment is then the start of an op. It is nil where there are none, and where
	// transfers go round and round. A moment is then the place of an op in the sequence.
	Time *executor.Timeline
}

// stageCompiler compiles the sequence of a stage.
type stageCompiler struct {
	*StageOps
	StageContext
	layers []*models.Programs // of the whole model
	st     pipeline.Stage
	seq    schedule.Sequence
	params []Op // the second half, where there is one
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
	to   *Block
	item int
}

// storedActivation is a stored activation: an item, or the stage's input.
type storedActivation struct {
	item   int
	branch int // of an input
	saved  bool
}

// StoreAll returns the sequence of a stage that recomputes nothing.
func StoreAll(st pipeline.Stage) (seq schedule.Sequence) {
	for l := st.First; l <= st.Last; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
	}
	for l := st.Last; l >= st.First; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

// Compile lays out what a minibatch does in a stage. Its own ops, where it has any, must be those of a plan that was checked.
// In two halves, a backward keeps for the second one what the first has spared (models.Programs). Errors: ErrPlan.
func Compile(layers []*models.Programs, st pipeline.Stage, c StageContext) (*StageOps, error) {
	t := &stageCompiler{
		StageOps: &StageOps{Tasks: map[pipeline.Kind][]Op{}, Result: none}, StageContext: c, layers: layers, st: st, seq: st.Ops,
		entry: c.InputBytes, act: map[int]storedActivation{}, grad: map[int]int{}, seen: map[int]bool{}, moving: newMoving(),
	}
	if st.First > 1 {
		t.entry = layers[st.First-2].GradientBytes
	}
	if c.Split && len(t.seq) > 0 {
		return nil, fmt.Errorf("%w: stage of layers %d to %d has ops of its own and a backward in two halves", order.ErrPlan, st.First, st.Last)
	}
	if len(t.seq) == 0 {
		t.seq = StoreAll(st)
	}
	t.half = len(t.seq)
	if c.Split {
		t.params = make([]Op, st.Len())
	}
	t.Moments = t.half + len(t.params)
	if err := t.findTurn(); err != nil {
		return nil, err
	}
	ops := make([]Op, len(t.seq))
	t.act[st.First-1] = storedActivation{item: none}
	for k := 1; k < t.Inputs(); k++ {
		t.act[t.Input(k)] = storedActivation{item: none, branch: k}
	}
	for i, o := range t.seq {
		t.now = i
		ops[i] = Op{Layer: o.Layer, Number: i + 1, At: t.starts(), Until: t.ends()}
		if err := t.apply(o, &ops[i]); err != nil {
			return nil, fmt.Errorf("%w: stage of layers %d to %d, op %d, %v: %w", order.ErrPlan, st.First, st.Last, i, o, err)
		}
	}
	if t.Result != none && t.Lingers {
		t.Items[t.Result].Last = t.Moments - 1
	}
	for _, r := range t.refs {
		*r.to = Block{In: InItem, Item: r.item}
	}
	t.Out = ops[t.turn-1].Output
	if t.Time != nil {
		ops = t.inTime(ops)
	} else {
		t.Cut = t.turn
	}
	t.Tasks[pipeline.F], t.Tasks[pipeline.B], t.Tasks[pipeline.W] = t.issued(ops[:t.Cut]), t.issued(ops[t.Cut:]), t.params
	return t.StageOps, nil
}

// starts returns the moment at which the op starts, ends the last one before it has ended.
func (t *stageCompiler) starts() int {
	if t.Time != nil {
		return t.Time.Start[t.now]
	}
	return t.now
}

func (t *stageCompiler) ends() int {
	if t.Time != nil {
		return t.Time.End[t.now]
	}
	return t.now
}

// findTurn finds where the backward of a stage begins: behind the op that computes its output for the first time.
func (t *stageCompiler) findTurn() error {
	t.turn = slices.IndexFunc(t.seq, func(o schedule.Op) bool {
		return o.Layer == t.st.Last && o.Kind != schedule.Offload && o.Kind != schedule.Prefetch
	})
	if t.turn < 0 || t.seq[t.turn].Kind == schedule.Backward {
		return fmt.Errorf("%w: stage of layers %d to %d: its ops do not compute layer %d", order.ErrPlan, t.st.First, t.st.Last, t.st.Last)
	}
	t.turn++
	return nil
}

func (t *stageCompiler) apply(o schedule.Op, out *Op) error {
	if o.Layer < t.st.First || o.Layer > t.st.Last {
		return fmt.Errorf("stages run their own layers")
	}
	if o.Kind.Transfer() {
		return t.transfer(o, out)
	}
	p, inputs := t.layers[o.Layer-1], t.Reads(o.Layer)
	out.Joined = make([]end, len(inputs)-1)
	for k, i := range inputs {
		input, _ := out.OfBranch(k)
		if err := t.read(i, input); err != nil {
			return err
		}
	}
	switch o.Kind {
	case schedule.Backward:
		out.Program = &p.Back
		if len(t.params) > 0 {
			out.Program = &p.BackInput
		}
		out.Gradients = out.Program.Uses(models.Grads)
		if err := t.backward(o.Layer, inputs, out); err != nil {
			return err
		}
	case schedule.ForwardAll:
		out.Program = &p.Save
		if err := t.store(o.Layer, p.SavedBytes, true, &out.Output); err != nil {
			return err
		}
	default:
		out.Program = &p.Forget
		if t.now == t.turn-1 && t.Departs {
			out.Output = Block{In: InSentOutput}
		} else if err := t.store(o.Layer, p.OutputBytes, false, &out.Output); err != nil {
			return err
		}
		if o.Kind == schedule.ForwardDiscard {
			t.dropPlain(inputs)
		}
	}
	if o.Kind != schedule.Backward {
		out.First, t.seen[o.Layer] = !t.seen[o.Layer], true
	}
	if n := out.Program.Scratch; n > 0 {
		t.close(t.open(n, &out.Scratch))
	}
	clear(t.leaving)
	return nil
}

// read binds a block to the stored activation l.
func (t *stageCompiler) read(l int, to *Block) error {
	a, ok := t.act[l]
	if !ok {
		a, ok = t.leaving[l]
	}
	if !ok {
		return fmt.Errorf("the output of layer %d is not stored", l)
	}
	if a.item == none {
		*to = Block{In: InStageInput, Item: a.branch}
		return nil
	}
	t.refs = append(t.refs, ref{to, a.item})
	it := &t.Items[a.item]
	if _, leaves := t.leaving[l]; leaves {
		it.Last = max(it.Last, t.ends())
	} else {
		it.Last = t.ends()
	}
	return nil
}

// store opens the block that a forward of layer l writes; ā_l takes the place of a plain a_l. Error: *executor.UnusedPrefetchError.
func (t *stageCompiler) store(l int, bytes int64, saved bool, to *Block) error {
	item := t.open(bytes, to)
	if t.now == t.turn-1 {
		t.Result = item
	}
	if old, ok := t.act[l]; ok && (old.saved || !saved) {
		t.close(item) // a redundant result
		return nil
	}
	old, ok := t.act[l]
	t.drop(l)
	t.act[l] = storedActivation{item: item, saved: saved}
	if ok && old.item != none && t.Items[old.item].Last < t.Items[old.item].First {
		return &executor.UnusedPrefetchError{Prefetch: t.Time.Order[t.Items[old.item].First], Index: t.now, Op: t.seq[t.now]}
	}
	return nil
}

func (t *stageCompiler) backward(l int, inputs []int, out *Op) error {
	a, stored := t.act[l]
	if !stored {
		a = t.leaving[l] // to the host, since the op before
	}
	if !a.saved {
		return fmt.Errorf("layer %d was not saved", l)
	}
	if err := t.read(l, &out.Output); err != nil {
		return err
	}
	switch {
	case l < t.st.Last:
		t.refs = append(t.refs, ref{&out.GradOutput, t.grad[l]})
		t.close(t.grad[l])
	case l < len(t.layers):
		out.GradOutput.In = InOutputGradient
	}
	for k, i := range inputs {
		_, to := out.OfBranch(k)
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
func (t *stageCompiler) openGradient(i int, to *Block) {
	switch {
	case t.IsInput(i): // which nobody reads
		t.close(t.open(t.InputBytes, to))
	case i < t.st.First:
		to.In = InInputGradient
	default:
		t.grad[i] = t.open(t.layers[i-1].GradientBytes, to)
	}
}

// second records the second half of a layer's backward. The saved sets of a minibatch stay until its end, as the plan
// counts them; so do gradients that the second half reads.
func (t *stageCompiler) second(l int, first *Op) error {
	p, at := t.layers[l-1], t.st.Last-l
	w := &t.params[at]
	*w = Op{Layer: l, Number: t.half + at + 1, At: t.half + at, Until: t.half + at, Program: &p.BackParams, Gradients: p.BackParams.Uses(models.Grads)}
	if err := t.read(l-1, &w.Input); err != nil {
		return err
	}
	if err := t.read(l, &w.Output); err != nil {
		return err
	}
	for _, item := range []int{t.act[l].item, t.act[l-1].item} {
		if item != none {
			t.Items[item].Last = t.half + len(t.params) - 1
		}
	}
	if n := p.BackParams.Scratch; n > 0 {
		item := &t.Items[t.open(n, &w.Scratch)]
		item.First, item.Last = t.half+at, t.half+at
	}
	if p.KeptBytes > 0 {
		item := t.open(p.KeptBytes, &first.Kept)
		t.refs = append(t.refs, ref{&w.Kept, item})
		t.Items[item].Last = t.half + at
	}
	if !p.BackParams.Uses(models.GradOutput) {
		return nil
	}
	if l == t.st.Last {
		w.GradOutput.In = InOutputGradient
		return nil
	}
	t.refs = append(t.refs, ref{&w.GradOutput, t.grad[l]})
	t.Items[t.grad[l]].Last = t.half + at
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

func (t *stageCompiler) open(bytes int64, to *Block) int {
	t.Items = append(t.Items, pack.Item{Bytes: kernels.Align(bytes), First: t.starts(), Last: len(t.seq) - 1})
	t.refs = append(t.refs, ref{to, len(t.Items) - 1})
	return len(t.Items) - 1
}

func (t *stageCompiler) close(item int) { t.Items[item].Last = t.ends() }

// Task returns the moments at which those of a task begin and end.
func (t *StageOps) Task(kind pipeline.Kind) (begin, end int) {
	switch kind {
	case pipeline.F:
		return 0, t.Cut
	case pipeline.B:
		return t.Cut, t.half
	}
	return t.half, t.Moments
}

// TaskAt returns the task of a moment.
func (t *StageOps) TaskAt(moment int) pipeline.Kind {
	switch {
	case moment < t.Cut:
		return pipeline.F
	case moment < t.half:
		return pipeline.B
	}
	return pipeline.W
}

// Stays reports whether an item outlives its task. The output of the stage does: it may be on its way to another device.
func (t *StageOps) Stays(item int) bool {
	it := &t.Items[item]
	return t.TaskAt(it.First) != t.TaskAt(it.Last) || item == t.Result
}

// Writes reports whether a task writes gradients of parameters.
func (t *StageOps) Writes(kind pipeline.Kind) bool {
	return slices.ContainsFunc(t.Tasks[kind], func(o Op) bool { return o.Gradients })
}

// Late reports whether the second half of a stage's backward reads δ of the stage's output.
func Late(layers []*models.Programs, st pipeline.Stage, split bool) bool {
	return split && st.Last < len(layers) && layers[st.Last-1].BackParams.Uses(models.GradOutput)
}

// Those returns the items that begin at the moments from begin to end and stay, or do not, and which they are.
func (t *StageOps) Those(begin, end int, stay bool) (items []pack.Item, index []int) {
	for i, it := range t.Items {
		if it.First >= begin && it.First < end && t.Stays(i) == stay {
			items, index = append(items, it), append(index, i)
		}
	}
	return items, index
}

// none marks the absence of an index.
const none = -1
