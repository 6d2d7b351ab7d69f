package pipelinetest

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// layer is one layer with all its blocks, which nothing shares, and its launches.
type layer struct {
	name   string
	blocks [models.Scalars + 1]runtime.Span
	params []*parameter

	tied []*parameter // parameters that are another layer's, with a gradient of their own

	forward []runtime.Launch // what Programs.Save says; running statistics move
	predict []runtime.Launch // what Programs.Eval says
	writing []runtime.Launch // what Programs.Back says: the gradients of the parameters are written
	adding  []runtime.Launch // likewise, but added to what is there

	inputs []*passage // several where the layer joins branches
	after  *passage   // by which the output is read; nil of the loss
}

// passage brings an activation to a layer, and its gradient back.
type passage struct {
	from            *layer // nil where it is the images of a branch
	branch          int    // of the images
	input, gradient runtime.Span
}

// parameter is a weight or a buffer of a layer.
type parameter struct {
	models.Parameter
	of          *parameter // that this one is, of another layer; nil of a layer's own
	start       []float32  // what a run begins with
	value, grad runtime.Span
	states      []runtime.Span
	update      []runtime.Launch
}

func (p *parameter) elements() int { return int(p.Desc.Elements()) }

// at returns the memory of a block.
func (l *layer) at(b models.Block) runtime.Span { return l.blocks[b] }

// binder gives the layers memory and prepares their launches.
type binder struct {
	*trainer
	programs  []*models.Programs
	layers    []*layer
	workspace runtime.Span // of every call, whatever place the layer's program has for it
}

func newBinder(r *trainer, programs []*models.Programs) *binder {
	b := &binder{trainer: r, programs: programs}
	r.shared[models.Labels] = r.take(r.Model.Labels.Bytes())
	r.shared[models.Scalars] = r.take(kernels.ScalarsBytes)
	for _, bytes := range []int64{r.Model.Input.Bytes(), r.Model.Labels.Bytes(), kernels.ScalarsBytes} {
		r.passes(bytes)
	}
	return b
}

// layer makes layer number l, the next one.
func (b *binder) layer(l int) *layer {
	m, p := b.Model.Layers[l-1], b.programs[l-1]
	y := &layer{name: m.Name, blocks: b.shared}
	for k, a := range b.Model.Wiring().Reads(l) {
		y.inputs = append(y.inputs, b.passage(a, m.Desc(models.InputOf(k))))
	}
	y.blocks[models.Output] = b.take(p.SavedBytes)
	y.blocks[models.GradOutput] = b.take(p.GradientBytes)
	y.blocks[models.Scratch] = b.take(max(p.Save.Scratch, p.Back.Scratch, p.Eval.Scratch))
	y.blocks[models.Params] = b.take(p.ParamBytes)
	y.blocks[models.Grads] = b.take(p.GradBytes)
	for _, q := range m.Params() {
		y.params = append(y.params, b.parameter(y, q))
	}
	for _, q := range m.Tied() {
		y.tied = append(y.tied, b.share(y, q))
	}
	b.layers = append(b.layers, y)
	return y
}

// passage makes the passage of an activation, of a description where it is read.
func (b *binder) passage(activation int, d kernels.Desc) *passage {
	p := &passage{input: b.take(d.Storage()), gradient: b.take(d.Storage())}
	p.input.Bytes, p.gradient.Bytes = d.Bytes(), d.Bytes()
	if w := b.Model.Wiring(); w.IsInput(activation) {
		for p.branch = 0; w.Input(p.branch) != activation; {
			p.branch++
		}
		return p
	}
	p.from = b.layers[activation-1]
	p.from.after = p
	return p
}

// share makes a parameter that is another layer's.
func (b *binder) share(l *layer, q models.Parameter) *parameter {
	owner := b.layers[q.Of.Layer-1]
	p := &parameter{Parameter: q}
	for _, of := range owner.params {
		if of.Value.Offset == q.Of.Value.Offset {
			p.of, p.value = of, of.value
		}
	}
	if q.Trained {
		p.grad = l.at(models.Grads).Part(q.Grad.Offset, q.Desc.Bytes())
	}
	return p
}

func (b *binder) parameter(l *layer, q models.Parameter) *parameter {
	bytes := q.Desc.Bytes()
	p := &parameter{Parameter: q, value: l.at(models.Params).Part(q.Value.Offset, bytes)}
	p.start = make([]float32, p.elements())
	models.Init(q, b.Seed, p.start)
	b.passes(bytes)
	if q.Trained {
		p.grad = l.at(models.Grads).Part(q.Grad.Offset, bytes)
		for range kernels.StatesOf(b.Optimizer, q.Matrix) {
			p.states = append(p.states, b.take(bytes))
		}
	}
	return p
}

// size finds the largest workspace. It must be known before the memory is reserved.
func (b *binder) size() error {
	var most int64
	for _, p := range b.programs {
		for _, s := range slices.Concat(p.Save.Steps, p.Back.Steps, p.Eval.Steps) {
			for _, add := range []bool{false, true} {
				n, err := b.Library.Workspace(call(s, add))
				if err != nil {
					return err
				}
				most = max(most, n)
			}
		}
	}
	for _, l := range b.Model.Layers {
		for _, q := range l.Params() {
			for _, matrix := range q.Matrices() {
				n, err := b.Library.UpdateWorkspace(b.Optimizer, matrix)
				if err != nil {
					return err
				}
				most = max(most, n)
			}
		}
	}
	b.workspace = b.take(most)
	return nil
}

// call returns the call of a step as a sequential program makes it: every forward is the only one of its minibatch.
func call(s models.Step, add bool) kernels.Call {
	c := s.Call
	c.UpdateStats = c.Train && c.Pass == kernels.Forward
	for _, ref := range s.Refs.DParams {
		c.AddParams = c.AddParams || add && ref.Bytes > 0
	}
	return c
}

// bind prepares all launches.
func (b *binder) bind() (err error) {
	for i, l := range b.layers {
		p := b.programs[i]
		if l.forward, err = b.prepare(l, &p.Save, false); err != nil {
			return err
		}
		if i < len(b.layers)-1 {
			if l.predict, err = b.prepare(l, &p.Eval, false); err != nil {
				return err
			}
		}
		if l.writing, err = b.prepare(l, &p.Back, false); err != nil {
			return err
		}
		if l.adding, err = b.prepare(l, &p.Back, true); err != nil {
			return err
		}
		if err := b.updates(l); err != nil {
			return err
		}
	}
	return nil
}

func (b *binder) prepare(l *layer, p *models.Program, add bool) ([]runtime.Launch, error) {
	var all []runtime.Launch
	for _, s := range p.Steps {
		o, err := b.operands(l, s.Refs)
		if err != nil {
			return nil, fmt.Errorf("layer %s, op %s: %w", l.name, s.Name, err)
		}
		launch, err := b.Library.Prepare(call(s, add), o)
		if err != nil {
			return nil, fmt.Errorf("layer %s, op %s: %w", l.name, s.Name, err)
		}
		all = append(all, launch)
	}
	return all, nil
}

// operands finds the memory that a step's references mean.
func (b *binder) operands(l *layer, r models.Refs) (kernels.Operands, error) {
	var bad error
	one := func(ref models.Ref) runtime.Span {
		if ref.Bytes == 0 {
			return runtime.Span{}
		}
		block := l.at(ref.Block)
		switch ref.Block {
		case models.Input:
			block = l.inputs[ref.Branch].input
		case models.GradInput:
			block = l.inputs[ref.Branch].gradient
		case models.Params:
			for _, q := range l.tied {
				if q.Value.Offset == ref.Offset {
					return q.value
				}
			}
		}
		if ref.Offset+ref.Bytes > block.Bytes {
			bad = fmt.Errorf("BUG: %+v is not within a block of %d bytes", ref, block.Bytes)
		}
		return block.Part(ref.Offset, ref.Bytes)
	}
	list := func(refs []models.Ref) (spans []runtime.Span) {
		for _, ref := range refs {
			spans = append(spans, one(ref))
		}
		return spans
	}
	o := kernels.Operands{
		X: list(r.X), Y: one(r.Y), DX: list(r.DX), DY: one(r.DY), Saved: list(r.Saved),
		Params: list(r.Params), DParams: list(r.DParams), Workspace: b.workspace, Scalars: b.shared[models.Scalars],
	}
	return o, bad
}

// updates prepares the optimizer's update of every weight of a layer.
func (b *binder) updates(l *layer) error {
	for _, p := range l.params {
		if !p.Trained {
			continue
		}
		launch, err := b.Library.PrepareUpdate(b.Optimizer, p.Updates(b.Optimizer, kernels.UpdateOperands{
			Elements: p.Desc.Elements(), Workspace: b.workspace, Param: p.value, Grad: p.grad, States: p.states, Scalars: b.shared[models.Scalars],
		})...)
		if err != nil {
			return fmt.Errorf("update of %s: %w", p.Name, err)
		}
		p.update = []runtime.Launch{launch}
	}
	return nil
}
