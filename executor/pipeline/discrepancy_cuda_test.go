//go:build cuda && linux && amd64

package pipeline

import (
	"testing"

	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/host"
)

// PipeMare's corrections on virtual GPUs are those on CPUs, but for rounding, and each time the same.
func TestGPUsCorrectForDelays(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	const devices, n = 3, 8
	m := plainModel(t)
	opt := Options{PipeMare: &PipeMare{Anneal: 5, Decay: 0.3}}
	w := workload(t, m)
	c := costs(w, devices, 3)
	plan := planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Latest})
	e, want := trainedWith(t, w, c, plan, n, host.Config{}, opt)
	want.Tensors = tensors(t, e)
	e, without := trainedWith(t, w, c, plan, n, host.Config{}, Options{PipeMare: &PipeMare{Anneal: 5}})
	without.Tensors = tensors(t, e)
	on := gpus(t, devices)
	w, err := Compile(m, on[0].Library, optimizer)
	must(t, err)
	c = costs(w, devices, 3)
	e, got := trainedOn(t, on, w, c, plan, n, opt)
	got.Tensors = tensors(t, e)
	if off, far := distance(want, got), distance(without, got); !(off < 1e-4) || !(far > 10*off) {
		t.Errorf("weights are %g from the CPU's, %g from those without T2", off, far)
	}
	e, again := trainedOn(t, gpus(t, devices), w, c, plan, n, opt)
	again.Tensors = tensors(t, e)
	same(t, got, again)
}
