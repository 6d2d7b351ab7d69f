//go:build cuda && linux && amd64

package pipeline

import (
	"math"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/host"
)

// Deferred statistics of virtual GPUs are those of one, bit for bit, and those of a CPU but for rounding.
func TestGPUsDeferStatistics(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	const microbatches = 4
	m := testModel(t)
	one := gpus(t, 1)
	w, err := Compile(m, one[0].Library, optimizer)
	must(t, err)
	var want []pipelinetest.Tensor
	for _, x := range []struct {
		name    string
		devices int
	}{{"1f1b-flush", 1}, {"1f1b-flush", 3}, {"chimera", 2}} {
		on := one
		if want != nil {
			on = gpus(t, x.devices)
		}
		c := costs(w, x.devices, 1)
		e, out := trainedOn(t, on, w, c, planFor(t, x.name, c, pipeline.Options{Microbatches: microbatches}), microbatches, Options{DeferredBatchNorm: true})
		out.Tensors = tensors(t, e)
		if want == nil {
			want = buffers(out)
		}
		if d := pipelinetest.FirstDifference(want, buffers(out)); d != "" {
			t.Errorf("%s on %d: %s", x.name, x.devices, d)
		}
	}
	onCPU := workload(t, m)
	c := costs(onCPU, 1, 1)
	_, out := deferredRun(t, onCPU, c, planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: microbatches}), microbatches, host.Config{})
	for _, x := range want {
		for i, v := range out.Tensor(x.Role, x.Name) {
			if math.Abs(float64(v-x.Values[i])) > 1e-5*(1+math.Abs(float64(v))) {
				t.Fatalf("%s[%d] is %v on a GPU, %v on the CPU", x.Name, i, x.Values[i], v)
			}
		}
	}
}
