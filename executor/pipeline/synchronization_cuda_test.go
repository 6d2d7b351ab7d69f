//go:build cuda && linux && amd64

package pipeline

import (
	"testing"

	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
)

// Virtual GPUs, too, add up the gradients of replicas by the plan's messages, with the bits of gradient accumulation.
func TestGPUsSynchronize(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m := plainModel(t)
	on := gpus(t, 1)[0]
	w, err := Compile(m, on.Library, optimizer)
	must(t, err)
	for _, versions := range []pipeline.Versions{pipeline.Flush, pipeline.Stash, pipeline.DoubleBuffered, pipeline.Latest} {
		for _, buckets := range []int{1, 2, 100} {
			c := costs(w, 3, 2)
			plan := dataParallel(c, 6)
			if versions != pipeline.Flush {
				c, plan = replicated(t, w, versions)
			}
			plan = summing(t, c, plan, buckets)
			n := 2 * groupOf(t, w, c, plan)
			e, got := trainedOn(t, gpus(t, 3), w, c, plan, n, Options{})
			got.Tensors = tensors(t, e)
			p := newInstants(t, c, plan).expected(e.layout, n)
			same(t, referenceOn(t, gpus(t, 1)[0], m, plan, p, n, p.Rate(rate)), got)
		}
	}
}
