package executor

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// sumTied adds the gradients that layers have made of parameters that are those of others, in the order of the layers. Each layer has
// made its own, in memory of its own: a sum of floats depends on its order, and which branch goes back first, and which parts of a
// step lie between two backwards, is the plan's choice.
func (e *Executor) sumTied() error {
	for l, layer := range e.Model.Layers {
		for _, q := range layer.Tied() {
			bytes := q.Desc.Bytes()
			sum := e.static.layers[q.Of.Layer-1].grads.Part(q.Of.Grad.Offset, bytes)
			more := e.static.layers[l].grads.Part(q.Grad.Offset, bytes)
			call := kernels.Call{Op: kernels.Add{}, In: []kernels.Desc{q.Desc, q.Desc}, Train: true}
			o := kernels.Operands{X: []runtime.Span{sum, more}, Y: sum, Scalars: e.static.scalars}
			launch, err := e.lib.Prepare(call, o)
			if err != nil {
				return fmt.Errorf("sum of the gradients of %s: %w", q.Of.Name, err)
			}
			e.update(launch, useOf("sum of the gradients of "+q.Of.Name, call.Uses(o, 0)))
		}
	}
	return nil
}
