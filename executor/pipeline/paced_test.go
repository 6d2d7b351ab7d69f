package pipeline

import (
	"fmt"
	"hash/fnv"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/measure"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// paced is a library whose ops, and updates, compute nothing. An op takes a time of its own: from 0.1 to 0.8 ms. An update takes 20 ns for
// each element.
type paced struct{ kernels.Library }

func (p paced) Prepare(c kernels.Call, _ kernels.Operands) (runtime.Launch, error) {
	if _, sums := c.Op.(kernels.Add); sums && c.Pass == kernels.Forward {
		return host.Pause("sum", 0), nil
	}
	h := fnv.New32()
	fmt.Fprintf(h, "%T %v %v", c.Op, c.Pass, c.In)
	return host.Pause("op", 100*time.Microsecond*time.Duration(1+h.Sum32()%8)), nil
}

func (p paced) PrepareUpdate(_ kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	elements := int64(0)
	for _, o := range all {
		elements += o.Elements
	}
	return host.Pause("update", time.Duration(20*elements)), nil
}

// pacedTargets are devices with links of a bandwidth on a fake clock, and libraries that only take time.
func pacedTargets(t testing.TB, n int, bandwidth float64) []executor.Target {
	config := host.Config{Bandwidth: 10e9, PeerBandwidth: bandwidth, FakeClock: true, Memory: int64(n) << 31, HostMemory: int64(n) << 31}
	if bandwidth == pipeline.Free() {
		config.PeerBandwidth = 0
	}
	devices, err := host.Split(config, n)
	must(t, err)
	on := make([]executor.Target, n)
	for i, d := range devices {
		lib, err := cpu.New(d, cpu.Options{Threads: 1})
		must(t, err)
		on[i] = executor.Target{Device: d, Library: paced{lib}}
	}
	return on
}

// pacedProfile measures a workload there.
func pacedProfile(t *testing.T, w *Workload) (c *chain.Chain) {
	synctest.Test(t, func(t *testing.T) {
		feed, opt := feedOf(w.Model), measure.ProfileOptions{Warmup: 1, Repeats: 1, Halves: true}
		load := func(b measure.Batch) error { feed.batch(0, b.Images, b.Labels); return nil }
		var err error
		c, err = measure.Profile(t.Context(), w, func() (executor.Target, error) { return pacedTargets(t, 1, 0)[0], nil }, 0, load, opt)
		must(t, err)
	})
	return c
}

// pacedStep trains groups of a plan with a flush there, and returns how long the last one took, in seconds.
func pacedStep(t *testing.T, w *Workload, costs Costs, plan *pipeline.Plan) (seconds float64) {
	synctest.Test(t, func(t *testing.T) {
		on := pacedTargets(t, costs.Platform.Devices, costs.Platform.Bandwidth)
		for _, x := range on {
			t.Cleanup(func() { must(t, x.Device.Close()) })
		}
		e, err := New(w, on, costs, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate, Timed: &Timed{}})
		must(t, err)
		for range 3 {
			must(t, e.Run(t.Context(), plan.Repeats()))
		}
		ran, err := e.Timings()
		must(t, err)
		for _, x := range ran {
			seconds = max(seconds, x.End)
		}
	})
	return seconds
}

// Steps of plans with a flush take the simulated time on links of any bandwidth: no task, message or update waits for anything that the
// simulation does not know. Updates of divided weights differ by more, since their messages do not wait for all of them. Shared weights do,
// since plans count their whole layers. The statistics of BatchNorm that replicas exchange are not in plans.
func TestPipelinesRunAsSimulated(t *testing.T) {
	type row struct {
		sample
		most float64 // of the gap
	}
	zoo := []row{{sample{"gpt2-4-64-untied", models.Config{Batch: 2, Image: 12, Classes: 50}}, 5e-4}, {tiedGPT, 3e-3}, {quickZoo[0], 0.035}}
	if testing.Short() {
		zoo = zoo[:1]
	}
	ran := 0
	for _, z := range zoo {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workload(t, m)
		c := pacedProfile(t, w)
		for _, bandwidth := range []float64{pipeline.Free(), 100e6, 5e6} {
			for _, devices := range []int{2, 4} {
				p := pipeline.NewPlatform(devices, pipeline.NoLimit, bandwidth)
				p.Duplex = true
				for _, s := range planner.Pipelines() {
					if s.Type != pipeline.Flushing {
						continue
					}
					plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Microbatches: 8}})
					must(t, err)
					o, err := pipeline.Simulate(c, p, plan, pipeline.Noise{})
					must(t, err)
					want, most := o.Makespan+pipeline.UpdateSeconds(c, p, plan), z.most
					if plan.Zero == pipeline.ZeroShards {
						most = max(most, 5e-3)
					}
					got := pacedStep(t, w, Costs{c, p}, plan)
					if ran++; math.Abs(got/want-1) > most {
						t.Errorf("%s, %s on %d at %g bytes/s: %.3f ms, simulated %.3f ms: %+.2f %%", z.name, s.Name, devices, bandwidth, 1e3*got, 1e3*want, 100*(got/want-1))
					}
				}
			}
		}
	}
	t.Logf("%d plans", ran)
}
