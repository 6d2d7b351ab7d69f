package executor

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// sumTwins adds the gradients that twins have made of shared parameters, in the order of the layers. Each branch has made
// its own, in memory of its own: a sum of floats depends on its order, and which branch goes back first is the plan's
// choice.
func (e *Executor) sumTwins() error {
	for l, twin := range e.Model.Layers {
		if twin.Twin == 0 {
			continue
		}
		for _, q := range e.Model.Layers[twin.Twin-1].Params() {
			bytes := q.Desc.Bytes()
			sum := e.static.layers[twin.Twin-1].grads.Part(q.Grad.Offset, bytes)
			more := e.static.layers[l].grads.Part(q.Grad.Offset, bytes)
			call := kernels.Call{Op: kernels.Add{}, In: []kernels.Desc{q.Desc, q.Desc}, Train: true}
			o := kernels.Operands{X: []runtime.Span{sum, more}, Y: sum, Scalars: e.static.scalars}
			launch, err := e.lib.Prepare(call, o)
			if err != nil {
				return fmt.Errorf("sum of the gradients of %s: %w", q.Name, err)
			}
			e.update(launch, useOf("sum of the gradients of "+q.Name, call.Uses(o, 0)))
		}
	}
	return nil
}
