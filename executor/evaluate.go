package executor

import (
	"math"
	"slices"

	"plimsoll/models"
	"plimsoll/planner/schedule"
)

// evalProgram is the program of an evaluation's ops.
func evalProgram(p *models.Programs, _ schedule.Kind) *models.Program { return &p.Eval }

// layoutForward lays out a forward through the given layers that saves nothing, one activation at a time; choose
// says what each layer runs.
func (w *Workload) layoutForward(layers int, choose program, limit int64) (*bound, error) {
	chosen := make([]*models.Programs, layers)
	seq := make(schedule.Sequence, layers)
	for i := range chosen {
		copied := *w.Layers[i]
		copied.Forget = *choose(w.Layers[i], schedule.ForwardDiscard)
		chosen[i] = &copied
		seq[i] = schedule.Op{Kind: schedule.ForwardDiscard, Layer: i + 1}
	}
	t, err := record(w.Model.Wiring(), chosen, w.InputBytes(), seq, inOrder(layers))
	if err != nil {
		return nil, err
	}
	b := newBound(t, w.StaticBytes())
	if b.extent > limit {
		return nil, &LayoutError{Limit: limit, Peak: b.peak, Extent: b.extent}
	}
	return b, nil
}

// layoutEval lays out an evaluation: every layer but the loss.
func (w *Workload) layoutEval(limit int64) (*bound, error) {
	return w.layoutForward(len(w.Layers)-1, evalProgram, limit)
}

// Predict runs the model on the images in Images, in evaluation mode, and fills logits: float32, N,Classes; of tokens N,T,Classes.
func (e *Executor) Predict(logits []float32) error {
	if e.stopped {
		return ErrStopped
	}
	if err := e.feed(e.eval); err != nil {
		return err
	}
	if err := e.put(e.evalScript.list); err != nil {
		return err
	}
	last := len(e.eval.layout.seq) - 1
	return e.activation(e.eval.span(e.eval.layout.ops[last].output), e.Model.DType(), logits)
}

// feed brings the images to where a forward reads its input.
func (e *Executor) feed(b *bound) error {
	if e.StagedBytes() > 0 {
		return e.take(b)
	}
	for _, u := range e.images(b) {
		if err := e.compute.Copy(u.dst, e.batch(u.src)); err != nil {
			return err
		}
	}
	return nil
}

// FirstNotFinite runs the training forward of the latest batch once more, with the weights as they are now and without
// side effects, and returns the name of the first layer whose output has an element that is not finite; "" if there is
// none: then only the gradients were not. For diagnosis after a step whose loss or norm was not finite; it allocates.
func (e *Executor) FirstNotFinite() (string, error) {
	b, err := e.layoutForward(len(e.Layers), trainingProgram, e.opt.Limit)
	if err != nil {
		return "", err
	}
	clear(b.layout.first) // BatchNorm's statistics stay
	if err := e.prepare(b, e.lib, trainingProgram); err != nil {
		return "", err
	}
	if err := e.feed(b); err != nil {
		return "", err
	}
	for i := range b.layout.seq {
		finite, err := e.finiteOutput(b, i)
		if err != nil || !finite {
			return e.Model.Layers[i].Name, err
		}
	}
	return "", nil
}

// finiteOutput runs op i of a forward and looks at its output.
func (e *Executor) finiteOutput(b *bound, i int) (bool, error) {
	if err := e.bring(b, i); err != nil {
		return false, err
	}
	for _, c := range b.calls[b.start[i]:b.start[i+1]] {
		if err := e.compute.Launch(c.launch); err != nil {
			return false, err
		}
	}
	layer := e.Model.Layers[i]
	out := make([]float32, layer.Desc(layer.Output()).Elements())
	if err := e.activation(b.span(b.layout.ops[i].output), layer.Desc(layer.Output()).DType, out); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(out, func(v float32) bool { return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) }), nil
}
