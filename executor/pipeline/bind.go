package pipeline

import (
	"fmt"
	"slices"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/stageops"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// key tells prepared ops apart. Blocks differ by where they begin.
type key struct {
	program                                                              *models.Program
	input, output, gradOutput, gradInput, scratch, kept, scalars, labels int64
	slot, sum, row, portals                                              int
	weights, tied, gradients, wide, tiedGradients                        int64
	first, add                                                           bool
}

func keyOf(o *stageops.Op, f *frame) key {
	return key{
		o.Program, f.input.Offset, f.output.Offset, f.gradOutput.Offset, f.gradInput.Offset, f.scratch.Offset, f.kept.Offset,
		f.scalars.Offset, f.labels.Offset, f.slot, f.sum, f.row, f.portals, f.weights.Offset, f.tied.Offset, f.gradients.Offset, f.wide.Offset, f.tiedGradients.Offset, o.First, f.add,
	}
}

// binder prepares what a device launches, each thing once: a run chooses between few places, so after a dry run nothing
// is left to prepare.
type binder struct {
	lib       kernels.Library
	onHost    kernels.Updater // of a cyclic plan that updates on the host; else nil
	optimizer kernels.Update
	device    int
	ops       map[key][]table.Prepared
	updates   map[updateKey]table.Prepared
	guards    map[updateKey][2]table.Prepared
	sums      map[sumKey]table.Prepared
	folds     map[fold]int  // of the places of portals
	number    int           // of the latest launch
	uses      map[int]opUse // by number of a launch of an op, as long as tables are made
}

// opUse is a step of an op, and where the op works.
type opUse struct {
	opTemplate
	frame    *frame
	operands []int64 // of the frame
}

// opTemplate is a step of an op, wherever that works.
type opTemplate struct {
	stage *localStage
	op    *stageops.Op
	step  int
}

type updateKey struct {
	stage     *localStage
	slot, sum int
}

func newBinder(device int, lib kernels.Library, optimizer kernels.Update) *binder {
	return &binder{device: device, lib: lib, optimizer: optimizer, ops: map[key][]table.Prepared{}, updates: map[updateKey]table.Prepared{}, guards: map[updateKey][2]table.Prepared{}, sums: map[sumKey]table.Prepared{}, folds: map[fold]int{}, uses: map[int]opUse{}}
}

// ready numbers a launch that is prepared.
func (b *binder) ready(l runtime.Launch, accesses []hazard.Access) table.Prepared {
	b.number++
	return table.Prepared{Launch: l, ID: b.number, Accesses: accesses}
}

// call prepares a call.
func (b *binder) call(c kernels.Call, o kernels.Operands) (table.Prepared, error) {
	launch, err := b.lib.Prepare(c, o)
	return b.ready(launch, hazard.Uses(b.device, c.Uses(o, o.Workspace.Bytes))), err
}

// op returns the launches of an op.
func (b *binder) op(s *localStage, o *stageops.Op, f *frame) ([]table.Prepared, error) {
	k := keyOf(o, f)
	if list, ok := b.ops[k]; ok {
		return list, nil
	}
	list := make([]table.Prepared, 0, len(o.Program.Steps))
	for _, step := range o.Program.Steps {
		call := step.Call
		if f.add {
			call = step.Accumulating()
		}
		call.UpdateStats = call.Train && o.First
		call.Weight = s.weightType(o, &call, step.Refs)
		operands := step.Refs.Operands(f.scalars, func(ref models.Ref) runtime.Span { return s.resolve(o, f, ref) })
		s.redirect(&call, &operands, f.row)
		launch, err := b.call(call, operands)
		if err != nil {
			return nil, fmt.Errorf("layer %d, op %s: %w", o.Layer, step.Name, err)
		}
		list = append(list, launch)
	}
	b.ops[k] = list
	b.noteUse(s, o, *f, list)
	return list, nil
}

// noteUse notes what the launches of an op are for, as long as tables are made.
func (b *binder) noteUse(s *localStage, o *stageops.Op, f frame, list []table.Prepared) {
	if b.uses == nil {
		return
	}
	f.skips, f.deltas = slices.Clone(f.skips), slices.Clone(f.deltas)
	operands := f.operands()
	for i, l := range list {
		b.uses[l.ID] = opUse{opTemplate{s, o, i}, &f, operands}
	}
}

// Use implements OpLaunches.
func (b *binder) Use(id int) (template any, operands []int64, isOp bool) {
	u, isOp := b.uses[id]
	return u.opTemplate, u.operands, isOp
}

// Again implements OpLaunches.
func (b *binder) Again(id int, operands []int64) (table.Prepared, error) {
	use := b.uses[id]
	f := *use.frame
	f.skips, f.deltas = slices.Clone(f.skips), slices.Clone(f.deltas)
	f.move(operands)
	f.portals = b.portals(&f)
	list, err := b.op(use.stage, use.op, &f)
	if err != nil {
		return table.Prepared{}, err
	}
	return list[use.step], nil
}

// operands lists what tells frames of one op apart.
func (f *frame) operands() []int64 {
	all := []int64{f.input.Offset, f.output.Offset, f.gradOutput.Offset, f.gradInput.Offset, f.scratch.Offset, f.kept.Offset, f.scalars.Offset, f.labels.Offset, int64(f.slot), int64(f.sum), int64(f.row), 0}
	if f.add {
		all[len(all)-1] = 1
	}
	for i := range f.skips {
		all = append(all, f.skips[i].span.Offset, f.skips[i].target.Offset)
	}
	for i := range f.deltas {
		all = append(all, f.deltas[i].span.Offset)
	}
	return all
}

// move makes a frame one of other operands of the same op.
func (f *frame) move(operands []int64) {
	take := func() (x int64) {
		x, operands = operands[0], operands[1:]
		return x
	}
	for _, span := range []*runtime.Span{&f.input, &f.output, &f.gradOutput, &f.gradInput, &f.scratch, &f.kept, &f.scalars, &f.labels} {
		span.Offset = take()
	}
	f.slot, f.sum, f.row, f.add = int(take()), int(take()), int(take()), take() == 1
	for i := range f.skips {
		f.skips[i].span.Offset, f.skips[i].target.Offset = take(), take()
	}
	for i := range f.deltas {
		f.deltas[i].span.Offset = take()
	}
}

// resolve returns the span of a block of an op, or of a piece of it.
func (s *localStage) resolve(o *stageops.Op, f *frame, ref models.Ref) runtime.Span {
	l := &s.layers[o.Layer-s.spec.First]
	var of runtime.Span
	switch ref.Block {
	case models.Input:
		if of = f.input; ref.Branch > 0 {
			of = f.skips[ref.Branch-1].span
		}
	case models.Output:
		of = f.output
	case models.GradOutput:
		if of = f.gradOutput; ref.Branch > 0 {
			of = f.deltas[ref.Branch-1].span
		}
	case models.GradInput:
		if of = f.gradInput; ref.Branch > 0 {
			of = f.skips[ref.Branch-1].target
		}
	case models.Scratch:
		of = f.scratch
	case models.Kept:
		of = f.kept
	case models.Params:
		if s.cyclic != nil {
			return s.cyclicValue(l, f, ref)
		}
		return s.value(l, f.slot, ref)
	case models.Grads:
		if s.cyclic != nil {
			return s.cyclicGradient(l, f, ref)
		}
		return s.gradient(l, f.sum, ref)
	case models.Labels:
		of = f.labels
	case models.Scalars:
		of = f.scalars
	}
	if ref.Offset+ref.Bytes > of.Bytes {
		panic(fmt.Sprintf("BUG: an op of layer %d refers to bytes %d to %d of block %d, which has %d", o.Layer, ref.Offset, ref.Offset+ref.Bytes, ref.Block, of.Bytes))
	}
	return of.Part(ref.Offset, ref.Bytes)
}

// updated is where an update of a stage works: in a copy of its weights and in a sum of its gradients, or in what the host has of both.
type updated struct {
	weights, gradients, scalars, workspace runtime.Span
	slot, sum                              int // of weights and gradients, which are not the host's
	onHost                                 bool
}

// updateOperands returns the operands of the update of a layer's own parameters, or of the parts of them that the device keeps the state of.
func (b *binder) updateOperands(s *localStage, l *stageLayer, in updated) (all []kernels.UpdateOperands) {
	for _, q := range l.params {
		if !q.Trained {
			continue
		}
		at, sumAt := l.at+q.Grad.Offset, l.sumAt+q.Grad.Offset
		for _, p := range s.shard.pieces(sumAt, q.Desc.Bytes()) {
			o := kernels.UpdateOperands{Elements: p.bytes / kernels.Float32.Size(), Scalars: in.scalars, Workspace: in.workspace, Earlier: l.earlier}
			if in.onHost {
				o.Param, o.Grad = s.part(in.weights, at, p), s.part(in.gradients, at, p)
			} else {
				o.Param, o.Grad = s.weightOf(in.slot, at, p), s.sumOf(in.sum, sumAt, p)
			}
			for k := range kernels.StatesOf(b.optimizer, q.Matrix) {
				o.States = append(o.States, s.state(k, l, q, p))
			}
			all = append(all, q.Updates(b.optimizer, o)...)
		}
	}
	return all
}

// updateOnHost returns the launch that updates a layer's own parameters in host memory; nothing where nothing is trained.
func (b *binder) updateOnHost(s *localStage, l *stageLayer) (u table.Prepared, err error) {
	if all := b.updateOperands(s, l, updated{weights: s.host.weights, gradients: s.host.gradients, scalars: s.host.scalars, workspace: s.host.workspace, onHost: true}); len(all) > 0 {
		u, err = b.changeBy(b.onHost, b.optimizer, all...)
	}
	return u, err
}

// update returns the launch that updates the weights in a slot by the gradients in one of theirs; nothing where nothing is trained.
func (b *binder) update(s *localStage, slot, sum int) (table.Prepared, error) {
	k := updateKey{s, slot, sum}
	if launch, ok := b.updates[k]; ok {
		return launch, nil
	}
	var all []kernels.UpdateOperands
	for i := range s.layers {
		all = append(all, b.updateOperands(s, &s.layers[i], updated{slot: slot, sum: sum, scalars: s.scalars[sum], workspace: s.workspace})...)
	}
	var u table.Prepared
	var err error
	if len(all) > 0 {
		u, err = b.change(b.optimizer, all...)
	}
	b.updates[k] = u
	return u, err
}

// lookups returns the launches that make numbers of the images of all branches.
func (b *binder) lookups(l kernels.Lookup, table runtime.Span, from, to []runtime.Span) (all []table.Prepared, err error) {
	for k := range from {
		o := kernels.LookupOperands{X: from[k], Table: table, Y: to[k].Part(0, l.Elements*kernels.Float32.Size())}
		launch, err := b.lib.PrepareLookup(l, o)
		if err != nil {
			return nil, err
		}
		all = append(all, b.ready(launch, hazard.Uses(b.device, o.Uses(l))))
	}
	return all, nil
}

// change prepares an update by a rule.
func (b *binder) change(rule kernels.Update, all ...kernels.UpdateOperands) (table.Prepared, error) {
	return b.changeBy(b.lib, rule, all...)
}

// changeBy prepares an update by a rule, made by a library or by what updates host memory.
func (b *binder) changeBy(by kernels.Updater, rule kernels.Update, all ...kernels.UpdateOperands) (table.Prepared, error) {
	launch, err := by.PrepareUpdate(rule, all...)
	var uses []kernels.Use
	for _, o := range all {
		uses = append(uses, o.Uses()...)
	}
	return b.ready(launch, hazard.Uses(b.device, uses)), err
}

// cyclicValue returns where an op of a cyclic plan has a parameter of a layer.
func (s *localStage) cyclicValue(l *stageLayer, f *frame, ref models.Ref) runtime.Span {
	if at, ok := l.buffers[ref.Offset]; ok {
		return s.buffers.Part(at, ref.Bytes)
	}
	x, offset, tied := s.owner(l, ref)
	if tied {
		return x.weight(f.tied, offset, ref.Bytes)
	}
	return x.weight(f.weights, offset, ref.Bytes)
}

// owner returns which layer of a cyclic plan has a weight, at which offset of the Params block.
func (s *localStage) owner(l *stageLayer, ref models.Ref) (x *layerState, offset int64, tied bool) {
	if q, ok := l.tied[ref.Offset]; ok {
		return &s.cyclic.layers[q.Of.Layer-1], q.Of.Value.Offset, true
	}
	return &s.cyclic.layers[l.number-1], ref.Offset, false
}

// weightType returns the type in which a step of an op has its weight.
func (s *localStage) weightType(o *stageops.Op, c *kernels.Call, r models.Refs) kernels.DType {
	if s.cyclic == nil || len(r.Params) == 0 || !c.RoundsWeight() {
		return kernels.Float32
	}
	if x, offset, _ := s.owner(&s.layers[o.Layer-s.spec.First], r.Params[0]); x.rounds(offset) {
		return kernels.BFloat16
	}
	return kernels.Float32
}

// cyclicGradient returns where an op of a cyclic plan leaves the gradient of a parameter, its own or one that is
// another layer's.
func (s *localStage) cyclicGradient(l *stageLayer, f *frame, ref models.Ref) runtime.Span {
	if ref.Offset < l.own {
		x := &s.cyclic.layers[l.number-1]
		if at, wide := x.offsets.wide[ref.Offset]; wide {
			return f.wide.Part(at, ref.Bytes)
		}
		return f.gradients.Part(x.offsets.gradients[ref.Offset], ref.Bytes)
	}
	return f.tiedGradients.Part(ref.Offset-l.own, ref.Bytes)
}

// portals returns a number for the places of what goes through portals.
func (b *binder) portals(f *frame) (number int) {
	for i := range f.skips {
		number = b.fold(b.fold(number, f.skips[i].span.Offset), f.skips[i].target.Offset)
	}
	for i := range f.deltas {
		number = b.fold(number, f.deltas[i].span.Offset)
	}
	return number
}

// redirect lets a BatchNorm that would move its running statistics write its own into the rows of a microbatch.
func (s *localStage) redirect(c *kernels.Call, o *kernels.Operands, row int) {
	op, norm := c.Op.(kernels.BatchNorm)
	if !norm || op.Frozen || !c.UpdateStats || s.deferred.microbatches == 0 {
		return
	}
	m, rows := s.moments(*c, *o)
	for i := range int64(2) {
		o.Params[2+i] = rows.Part((2*int64(row)+i)*m.Row(), o.Params[2+i].Bytes)
	}
	op.Momentum = 1
	c.Op = op
}

// moments returns the moments of a BatchNorm, and where its rows lie: as far behind each other as the buffers of all
// BatchNorms before it would.
func (s *localStage) moments(c kernels.Call, o kernels.Operands) (m kernels.Moments, rows runtime.Span) {
	x := c.In[0]
	channels := x.Shape[len(x.Shape)-1]
	m = kernels.Moments{
		Momentum: c.Op.(kernels.BatchNorm).Momentum, Batches: s.deferred.microbatches,
		Rows: x.Elements() / int64(channels), Channels: channels,
	}
	return m, s.deferred.rows.Part(s.deferred.bytes(o.Params[2].Offset-s.buffers.Offset), m.Bytes())
}

// sumKey tells sums apart.
type sumKey struct{ to, from, bytes int64 }

// fold returns a number for places, of which those before have one, and one more; the same for the same.
func (b *binder) fold(places int, at int64) int {
	k := fold{places, at}
	n, known := b.folds[k]
	if !known {
		n = len(b.folds) + 1
		b.folds[k] = n
	}
	return n
}
