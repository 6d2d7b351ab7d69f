package pipeline

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// A run allocates when it begins and when it ends; a minibatch allocates nothing.
// Only this test finds an allocation in a steady minibatch of several devices.
func TestMinibatchesAllocateNothing(t *testing.T) {
	// Serial: it counts allocations.
	w := workload(t, testModel(t))
	for _, name := range []string{"1f1b*", "zb-h1", "1f1b* that offloads"} {
		c := costs(w, 3, 1)
		strategy, _, swaps := strings.Cut(name, " ")
		plan := planFor(t, strategy, c, pipeline.Options{Microbatches: 4})
		if swaps {
			c, plan = offloading(t, c, plan, 1)
		}
		e, _ := trained(t, w, c, plan, 8*groupOf(t, w, c, plan), host.Config{})
		e.opt.Done, e.opt.Feed = nil, still{}
		mallocs := func(n int) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			must(t, e.Run(context.Background(), n))
			runtime.ReadMemStats(&after)
			return after.Mallocs - before.Mallocs
		}
		g := e.Group()
		mallocs(40 * g)
		short, long := mallocs(40*g), mallocs(400*g)
		if per := (float64(long) - float64(short)) / float64(360*g); per > 0.25 { // the runtime itself allocates now and then
			t.Errorf("%s: %.2f allocations for each minibatch (%d in a short run, %d in a long one)", name, per, short, long)
		}
	}
}

// still is a feed that leaves the buffers as they are.
type still struct{}

func (still) Images(int, []float32) error { return nil }
func (still) Labels(int, []int32) error   { return nil }
