//go:build cuda && linux && amd64

package pipeline

import (
	"fmt"
	"testing"

	"plimsoll/executor"
	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
)

// Virtual GPUs of several processes train the bits of one process that has them all, their messages staged in page-locked memory.
func TestProcessesWithGPUsAreOneProcess(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	open := func(n int) []executor.Target { return gpus(t, n) }
	w, err := Compile(plainModel(t), open(1)[0].Library, optimizer)
	must(t, err)
	for _, c := range []struct {
		strategy string
		process  []int
		o        pipeline.Options
		opt      Options
	}{
		{"1f1b-flush", []int{0, 1, 2}, pipeline.Options{Microbatches: 4}, Options{}},
		{"zb-h1", []int{0, 0, 1, 1}, pipeline.Options{Microbatches: 4}, Options{MaxNorm: 1}},
		{"pipedream", []int{0, 1, 2}, pipeline.Options{Versions: pipeline.DoubleBuffered}, Options{}},
		{"contiguous", []int{0, 1, 0}, pipeline.Options{Versions: pipeline.Stash}, Options{}},
	} {
		t.Run(fmt.Sprintf("%s/%v", c.strategy, c.process), func(t *testing.T) {
			costs := costs(w, len(c.process), 3)
			plan := planFor(t, c.strategy, costs, c.o)
			n := groupOf(t, w, costs, plan) * 2
			one := newWorld(t, w, costs, plan, make([]int, len(c.process)), open, c.opt)
			want := one.trained(n)
			x := newWorld(t, w, costs, plan, c.process, open, c.opt)
			same(t, want, x.trained(n))
			x.sentAsPlanned(costs, plan, 2*n)
		})
	}
}
