package executor

import (
	"errors"
	"math"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// stateSlice is a slice of the optimizer's state on its way through the arena: into a slot of the window, updated there, and
// back.
type stateSlice struct {
	slot     int
	at, host []runtime.Span // per state tensor, in the arena and in host memory
	update   runtime.Launch // nil where the slice has no parameters
	use      use
}

// stateSlices are all of a step, in order, and what belongs to them.
type stateSlices struct {
	list   []stateSlice
	atOnce map[int]atOnce // with weights, by the position of a backward

	arrived, updated, left [stateSlots]int  // events of the slots of the state's window
	loaded, free           [weightSlots]int // and of those of the weights
	stored, returned       int              // weights are back; everything is

	kernels, waits [][2]int // when timed: events between which the update's kernels ran, and compute waited for state
}

// atOnce is the update behind one backward: list[from:to], when the guard has measured the layer's gradients.
type atOnce struct {
	guard    runtime.Launch
	use      use
	from, to int
}

// prepareStateSlices prepares the updates slice by slice: all at the end of the step, or each layer's behind its backward.
func (e *Executor) prepareStateSlices() error {
	h := &e.static.hostState
	if h.mode == OffloadOptimizer {
		if err := errors.Join(e.sumTied(), e.prepareGuard()); err != nil {
			return err
		}
		return e.prepareSlices(none, 0, h.region)
	}
	e.pass.atOnce = map[int]atOnce{}
	for p, op := range e.step.layout.seq {
		if bytes := e.Layers[op.Layer-1].GradBytes; op.Kind == schedule.Backward && bytes > 0 {
			if err := e.prepareAtOnce(p, op.Layer, kernels.Align(bytes)); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareAtOnce prepares the update behind the backward at p, of bytes of gradients.
func (e *Executor) prepareAtOnce(p, layer int, bytes int64) (err error) {
	x := atOnce{from: len(e.pass.list)}
	if x.guard, x.use, err = e.prepareLayerGuard(layer); err != nil {
		return err
	}
	if err := e.prepareSlices(p, e.static.hostState.at[layer-1], bytes); err != nil {
		return err
	}
	x.to = len(e.pass.list)
	e.pass.atOnce[p] = x
	return nil
}

// prepareSlices prepares the update of a part of the regions, behind op p or at the end.
func (e *Executor) prepareSlices(p int, at, bytes int64) error {
	h := &e.static.hostState
	for _, c := range h.cut(at, bytes) {
		x := stateSlice{slot: len(e.pass.list) % stateSlots}
		for k, region := range h.states {
			x.at = append(x.at, h.window[x.slot][k].Part(0, c.bytes))
			x.host = append(x.host, region.Part(c.at, c.bytes))
		}
		if err := e.prepareSlice(&x, p, c); err != nil {
			return err
		}
		e.pass.list = append(e.pass.list, x)
	}
	return nil
}

// prepareSlice prepares the update of the parameters, or parts of them, whose state is in a slice.
func (e *Executor) prepareSlice(x *stateSlice, p int, c piece) (err error) {
	var all []kernels.UpdateOperands
	for l, layer := range e.Model.Layers {
		for _, q := range layer.Params() {
			at := e.static.hostState.at[l] + q.Grad.Offset
			from, to := max(at, c.at), min(at+q.Desc.Bytes(), c.at+c.bytes)
			if q.Trained && from < to {
				all = append(all, q.Updates(e.Optimizer, e.sliceUpdate(x, p, l+1, q, from-at, to-from, from-c.at))...)
			}
		}
	}
	x.update, x.use, err = e.updateAll(all)
	return err
}

// sliceUpdate updates bytes of a parameter from offset on, whose state begins at within the slice.
func (e *Executor) sliceUpdate(x *stateSlice, p, layer int, q models.Parameter, offset, bytes, within int64) kernels.UpdateOperands {
	slot := none
	if p != none {
		slot = e.step.fetches.slot[p]
	}
	o := kernels.UpdateOperands{
		Elements: bytes / kernels.Float32.Size(),
		Param:    e.static.operand(layer, slot, q.Value).Part(offset, bytes),
		Grad:     e.static.layers[layer-1].grads.Part(q.Grad.Offset+offset, bytes),
		Scalars:  e.static.scalars, Workspace: e.static.workspace,
		Earlier: e.earlier(layer),
	}
	for k := range kernels.StatesOf(e.Optimizer, q.Matrix) {
		o.States = append(o.States, x.at[k].Part(within, bytes))
	}
	return o
}

// prepareLayerGuard measures the norm of one layer's gradients behind its backward. From the first layer on whose
// gradients are not finite, in the order of the backwards, nothing is updated.
func (e *Executor) prepareLayerGuard(layer int) (runtime.Launch, use, error) {
	o := kernels.GuardOperands{
		Norm: e.static.result.Part(layerNormAt(layer), normBytes), Scalars: e.static.scalars,
	}
	partials := int64(0)
	for _, q := range e.Model.Layers[layer-1].Params() {
		if q.Trained {
			o.Grads = append(o.Grads, e.static.layers[layer-1].grads.Part(q.Grad.Offset, q.Desc.Bytes()))
			partials += 8 * kernels.GuardPartials(q.Desc.Elements())
		}
	}
	o.Partials = e.static.partials.Part(0, partials)
	guard, err := e.lib.PrepareGuard(kernels.Guard{}, o)
	return guard, useOf("guard", o.Uses()), err
}

// layerNormAt is where a step's result holds the norm of the gradients of a layer, from 1, when each has one.
func layerNormAt(layer int) int64 { return normAt + int64(layer-1)*kernels.Alignment }

// norm returns the norm of all gradients together. Put together from those of the layers it is rounded twice.
func (e *Executor) norm(values []float32) float64 {
	if e.Offloading() != OffloadWeights {
		return float64(values[normAt/4])
	}
	squares := 0.0
	for l, p := range e.Layers {
		if n := float64(values[layerNormAt(l+1)/4]); p.GradBytes > 0 {
			squares += n * n
		}
	}
	return float64(float32(math.Sqrt(squares)))
}
