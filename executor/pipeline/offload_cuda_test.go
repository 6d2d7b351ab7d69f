//go:build cuda && linux && amd64

package pipeline

import (
	"fmt"
	"testing"

	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
)

// On virtual GPUs stages that offload give the bits of stages that do not, over one link for both directions and over two.
func TestGPUsOffload(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m := testModel(t)
	w, err := Compile(m, gpus(t, 1)[0].Library, optimizer)
	must(t, err)
	moved := map[bool]int{}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := costs(w, 2+int(seed)%2, seed)
			c, plan := offloading(t, c, planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash}), seed)
			moved[c.Platform.Duplex] += transfers(plan)
			const n = 8
			e, want := trainedOn(t, gpus(t, c.Platform.Devices), w, c, staying(plan), n, Options{})
			want.Tensors = tensors(t, e)
			e, got := trainedOn(t, gpus(t, c.Platform.Devices), w, c, plan, n, Options{})
			got.Tensors = tensors(t, e)
			same(t, want, got)
		})
	}
	if moved[false] == 0 || moved[true] == 0 {
		t.Errorf("transfers by duplex: %v", moved)
	}
}
