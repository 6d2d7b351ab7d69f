//go:build cuda && linux && amd64

package executor_test

import (
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
)

// On a GPU too backwards in halves train to the bits of whole ones, in every type, in a graph and call by call.
func TestGPUTrainsInHalves(t *testing.T) {
	needGPU(t)
	halves := func(w *executor.Workload) (schedule.Sequence, executor.Sim) {
		w.Layers = slices.Clone(w.Layers)
		for i, p := range w.Layers {
			q := *p
			q.Back = p.Halves()
			w.Layers[i] = &q
		}
		return w.StoreAll(), executor.Sim{}
	}
	for _, d := range []kernels.DType{kernels.Float32, kernels.BFloat16, kernels.TF32} {
		m, err := models.New("tiny", models.Config{Batch: 2, Image: 16, Classes: 5, DType: d})
		must(t, err)
		want := trained(t, m, "cuda:0", nil, executor.Options{})
		for _, opt := range []executor.Options{{}, {NoGraph: true, Audit: true}} {
			got := trained(t, m, "cuda:0", halves, opt)
			if at := firstDifference(got.state, want.state); at != "" || got.peak != got.predicted || len(want.state) < 40 {
				t.Errorf("%v: %s differs, of %d tensors; peak %d, predicted %d", d, at, len(want.state), got.peak, got.predicted)
			}
		}
	}
}
