package executor

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// Observation is one thing that an op left in memory. Two runs of the same model on the same batch leave the same
// bytes under the same layer and What, whatever their sequences.
type Observation struct {
	Index int // of the op in the sequence
	Op    schedule.Op
	Layer string
	What  string // "output", "gradient of the input", "gradient of conv1.weight", "statistic bn1.running_mean", "random state"
	Bytes []byte // valid during the call
}

// observer shows what every op leaves to Options.Observe.
type observer struct {
	*Executor
	mem runtime.Inspector
	see []byte // what is shown
}

func newObserver(e *Executor) (*observer, error) {
	mem, ok := e.dev.(runtime.Inspector)
	if !ok {
		return nil, ErrNotInspectable
	}
	return &observer{Executor: e, mem: mem}, nil
}

// after shows what op i left, which has run; transfers leave nothing new.
func (o *observer) after(i int) error {
	op, blocks := o.step.layout.seq[i], o.step.layout.ops[i]
	if op.Kind.Transfer() {
		return nil
	}
	layer := o.Model.Layers[op.Layer-1]
	see := func(what string, s runtime.Span) error {
		o.see = slices.Grow(o.see[:0], int(s.Bytes))[:s.Bytes]
		if err := o.mem.Peek(s, o.see); err != nil {
			return err
		}
		o.opt.Observe(Observation{i, op, layer.Name, what, o.see})
		return nil
	}
	if err := see("random state", o.static.scalars.Part(0, kernels.ScalarsBytes)); err != nil {
		return err
	}
	if op.Kind != schedule.Backward {
		if err := see("output", o.step.span(blocks.output).Part(0, layer.Desc(layer.Output()).Bytes())); err != nil {
			return err
		}
	} else if o.Model.InputGradient || !o.Model.Wiring().Begins(op.Layer) {
		for k := range 1 + len(blocks.joined) {
			if err := see("gradient of the input", o.step.span(blocks.end(k).gradInput).Part(0, layer.Desc(models.InputOf(k)).Bytes())); err != nil {
				return err
			}
		}
	}
	return o.parameters(op, see)
}

// parameters shows the statistics that a forward moved, or the gradients that a backward made.
func (o *observer) parameters(op schedule.Op, see func(string, runtime.Span) error) error {
	st := &o.static.layers[op.Layer-1]
	for _, q := range o.Model.Layers[op.Layer-1].Params() {
		var err error
		switch backward := op.Kind == schedule.Backward; {
		case backward && q.Trained:
			err = see(fmt.Sprintf("gradient of %s", q.Name), st.grads.Part(q.Grad.Offset, q.Desc.Bytes()))
		case !backward && !q.Trained:
			err = see(fmt.Sprintf("statistic %s", q.Name), o.static.value(op.Layer, q))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
