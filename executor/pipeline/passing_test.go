package pipeline

import (
	"fmt"
	"testing"

	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// passingIn returns a plan whose replicas divide the sums of gradients, with each stage in up to so many.
func passingIn(t testing.TB, c Costs, plan *pipeline.Plan, parts int) *pipeline.Plan {
	t.Helper()
	p := *plan.WithStages(c.Chain, parts)
	p.Zero = pipeline.ZeroGradients
	out, err := pipeline.Synchronize(c.Chain, c.Platform, &p)
	must(t, err)
	_, err = pipeline.Check(c.Chain, c.Platform, out)
	must(t, err)
	return out
}

func TestTry(t *testing.T) {
	m := plainModel(t)
	w := workload(t, m)
	w.Optimizer = kernels.Adam{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
	w = workload(t, m)
	for _, devices := range []int{2, 4} {
		for _, rounds := range []int{1, 3} {
			for _, parts := range []int{1, 2, 100} {
				t.Run(fmt.Sprint(devices, rounds, parts), func(t *testing.T) {
					c := costs(w, devices, 3)
					p := passingIn(t, c, dataParallel(c, rounds*devices), parts)
					n := 3 * p.Repeats()
					e, got := trained(t, w, c, p, n, host.Config{Chaos: 4})
					got.Tensors = tensors(t, e)
					t.Log(len(p.Stages), len(e.drivers[0].buffers.turns), len(e.drivers[0].buffers.spans))
					same(t, reference(t, m, p, newInstants(t, c, p).expected(e.layout, n), n), got)
				})
			}
		}
	}
}
