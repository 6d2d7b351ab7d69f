package pipeline

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/measure"
	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// paced is a library whose ops, and updates, compute nothing. An op takes a time of its own: from 0.1 to 0.8 ms. An update takes some
// nanoseconds for each element.
type paced struct {
	kernels.Library
	update time.Duration
}

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
	return host.Pause("update", p.update*time.Duration(elements)), nil
}

// pacedTargets are devices with links of a bandwidth on a fake clock, and libraries that only take time.
func pacedTargets(t testing.TB, n int, bandwidth float64, update time.Duration) []executor.Target {
	config := host.Config{Bandwidth: 10e9, PeerBandwidth: bandwidth, FakeClock: true}
	if bandwidth == pipeline.Free() {
		config.PeerBandwidth = 0
	}
	on := openTargets(t, n, config)
	for i := range on {
		on[i].Library = paced{on[i].Library, update}
	}
	return on
}

// pacedProfile measures a workload there.
func pacedProfile(t *testing.T, w *Workload, update time.Duration) (c *chain.Chain) {
	synctest.Test(t, func(t *testing.T) {
		feed, opt := feedOf(w.Model), measure.ProfileOptions{Warmup: 1, Repeats: 1, Halves: true}
		load := func(b measure.Batch) error { feed.batch(0, b.Images, b.Labels); return nil }
		var err error
		c, err = measure.Profile(t.Context(), w, func() (executor.Target, error) { return pacedTargets(t, 1, 0, update)[0], nil }, 0, load, opt)
		must(t, err)
	})
	return c
}

// pacedRuns trains runs of a plan there, each of so many minibatches, and returns when the tasks of the last one ran.
func pacedRuns(t *testing.T, w *Workload, costs Costs, plan *pipeline.Plan, update time.Duration, runs ...int) (ran []Timing) {
	synctest.Test(t, func(t *testing.T) {
		on := pacedTargets(t, costs.Platform.Devices, costs.Platform.Bandwidth, update)
		for _, x := range on {
			t.Cleanup(func() { must(t, x.Device.Close()) })
		}
		e, err := New(w, on, costs, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate, Timed: &Timed{}})
		must(t, err)
		for _, n := range runs {
			must(t, e.Run(t.Context(), n))
		}
		ran, err = e.Timings()
		must(t, err)
	})
	return ran
}

// pacedStep returns how long a step of a plan with a flush takes there, in seconds.
func pacedStep(t *testing.T, w *Workload, costs Costs, plan *pipeline.Plan, update time.Duration) (seconds float64) {
	n := plan.Repeats()
	for _, x := range pacedRuns(t, w, costs, plan, update, n, n, n) {
		seconds = max(seconds, x.End)
	}
	return seconds
}

// pacedMinibatch returns how long a minibatch of a plan without a flush takes there, in the steady state, in seconds.
func pacedMinibatch(t *testing.T, w *Workload, costs Costs, plan *pipeline.Plan) float64 {
	const periods = 12
	n := plan.Repeats()
	ends := make([]float64, 3*periods*n) // of the backward of stage 0, by minibatch
	for _, x := range pacedRuns(t, w, costs, plan, 0, len(ends)) {
		if x.Kind == pipeline.B && x.Stage == 0 && x.Op == 0 {
			ends[x.Minibatch] = x.End
		}
	}
	return (ends[2*periods*n-1] - ends[periods*n-1]) / float64(periods*n)
}

// pacedPlans calls do with plans of all strategies of a kind for devices with links of several bandwidths.
func pacedPlans(t *testing.T, c *chain.Chain, flushing bool, do func(name string, plan *pipeline.Plan, p *pipeline.Platform)) {
	for _, bandwidth := range []float64{pipeline.Free(), 100e6, 5e6} {
		for _, devices := range []int{2, 4} {
			p := pipeline.NewPlatform(devices, pipeline.NoLimit, bandwidth)
			p.Duplex = true
			for _, s := range planner.Pipelines() {
				if (s.Type == pipeline.Flushing) != flushing {
					continue
				}
				plan, err := planOf(s, Costs{c, p})
				if err != nil {
					t.Logf("%s on %d devices: %v", s.Name, devices, err)
					continue
				}
				do(fmt.Sprintf("%s on %d devices at %g bytes/s", s.Name, devices, bandwidth), plan, p)
			}
		}
	}
}

// Steps of plans with a flush take the simulated time on links of any bandwidth: no task, message or update waits for anything that the
// simulation does not know. Updates of divided weights differ by more, since their messages do not wait for all of them. Shared weights do,
// since plans count their whole layers. The statistics of BatchNorm that replicas exchange are not in plans.
func TestPipelinesRunAsSimulated(t *testing.T) {
	type row struct {
		sample
		most float64 // of the gap
	}
	zoo := []row{{sample{"gpt2-4-64-untied", models.Config{Batch: 2, Image: 12, Classes: 50}}, 1e-3}, {tiedGPT, 5e-3}, {quickZoo[0], 0.035}}
	if testing.Short() {
		zoo = zoo[:1]
	}
	for _, z := range zoo {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workload(t, m)
		const update = 20 * time.Nanosecond
		c := pacedProfile(t, w, update)
		var gaps []float64
		run := func(name string, plan *pipeline.Plan, p *pipeline.Platform) {
			o, err := pipeline.Simulate(c, p, plan, pipeline.Noise{})
			must(t, err)
			want, most := o.Makespan+pipeline.UpdateSeconds(c, p, plan), z.most
			if slices.ContainsFunc(plan.Synchronization, func(m pipeline.Synchronization) bool { return m.Part > 0 }) {
				most = max(most, 5e-3)
			}
			got := pacedStep(t, w, Costs{c, p}, plan, update)
			gaps = append(gaps, math.Abs(got/want-1))
			if gaps[len(gaps)-1] > most {
				t.Errorf("%s, %s: %.3f ms, simulated %.3f ms: %+.2f %%", z.name, name, 1e3*got, 1e3*want, 100*(got/want-1))
			}
		}
		pacedPlans(t, c, true, func(name string, plan *pipeline.Plan, p *pipeline.Platform) {
			if plan.Zero == pipeline.ZeroShards {
				run(name+", sums in parts alone", inParts(t, Costs{c, p}, plan), p)
			}
			run(name, plan, p)
		})
		t.Logf("%s: %d plans, gaps of %.3f %% in the middle, %.3f %% at worst", z.name, len(gaps), 100*stats.Median(gaps), 100*slices.Max(gaps))
	}
}

// hostPaced takes time for updates in host memory, one after the other.
type hostPaced struct {
	kernels.Updater
	update time.Duration // of an element
	turn   chan struct{}
}

func (p hostPaced) PrepareUpdate(_ kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	elements := int64(0)
	for _, o := range all {
		elements += o.Elements
	}
	return host.Func{Name: "host update", Do: func() error {
		p.turn <- struct{}{}
		time.Sleep(p.update * time.Duration(elements))
		<-p.turn
		return nil
	}}, nil
}

// Updates on the host take the simulated time, whether copies take longer or the host does, over links of one direction or of two.
func TestHostStateRunsAsSimulated(t *testing.T) {
	m, err := models.New("gpt2-4-64-untied", models.Config{Batch: 2, Image: 12, Classes: 50})
	must(t, err)
	w := workload(t, m)
	c := pacedProfile(t, w, 0)
	for _, update := range []time.Duration{2 * time.Nanosecond, 20 * time.Nanosecond, 40 * time.Nanosecond, 80 * time.Nanosecond} {
		for i := range c.Layers {
			seconds := update.Seconds() * float64(c.SummedWeights(i+1)/4)
			c.Layers[i].Update.HostS = &seconds
		}
		for _, duplex := range []bool{false, true} {
			p := pipeline.NewPlatform(2, pipeline.NoLimit, 100e6)
			p.Duplex, p.Host = duplex, 100e6
			for _, name := range []string{"joint-flush", "1f1b-flush", "interleaved", "looped-bfs", "chimera"} {
				plan := onHostState(planFor(t, name, Costs{c, p}, pipeline.Options{Microbatches: 4, Accounting: pipeline.Saved}))
				o, err := pipeline.Simulate(c, p, plan, pipeline.Noise{})
				must(t, err)
				want, n, got := o.Makespan+pipeline.UpdateSeconds(c, p, plan), plan.Repeats(), 0.0
				synctest.Test(t, func(t *testing.T) {
					config := host.Config{Bandwidth: p.Host, PeerBandwidth: p.Bandwidth, FakeClock: true}
					on, turn := openTargets(t, 2, config), make(chan struct{}, 1)
					for i := range on {
						on[i].Library, on[i].Host = paced{on[i].Library, 0}, hostPaced{nil, update, turn}
						t.Cleanup(func() { must(t, on[i].Device.Close()) })
					}
					e, err := New(w, on, Costs{c, p}, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate, Timed: &Timed{}})
					must(t, err)
					for range 3 {
						must(t, e.Run(t.Context(), n))
					}
					ran, err := e.Timings()
					must(t, err)
					for _, x := range ran {
						got = max(got, x.End)
					}
				})
				t.Logf("%s, duplex %v, %v an element: %.3f ms, simulated %.3f ms, %.3f ms of it updates: %+.2f %%", name, duplex, update, 1e3*got, 1e3*want, 1e3*pipeline.UpdateSeconds(c, p, plan), 100*(got/want-1))
				if math.Abs(got/want-1) > 0.01 {
					t.Errorf("%s, duplex %v: %.3f ms, simulated %.3f ms", name, duplex, 1e3*got, 1e3*want)
				}
			}
		}
	}
}

// So do minibatches of plans without a flush. Plans leave out their updates, which take no time here.
func TestPipelinesWithoutAFlushRunAsSimulated(t *testing.T) {
	m, err := models.New("gpt2-4-64-untied", models.Config{Batch: 2, Image: 12, Classes: 50})
	must(t, err)
	w := workload(t, m)
	c := pacedProfile(t, w, 0)
	var gaps []float64
	pacedPlans(t, c, false, func(name string, plan *pipeline.Plan, p *pipeline.Platform) {
		o, err := pipeline.Simulate(c, p, plan, pipeline.Noise{})
		must(t, err)
		got := pacedMinibatch(t, w, Costs{c, p}, plan)
		gaps = append(gaps, math.Abs(got/o.PerMinibatch-1))
		if gaps[len(gaps)-1] > 1e-4 {
			t.Errorf("%s: %.3f ms, simulated %.3f ms: %+.2f %%", name, 1e3*got, 1e3*o.PerMinibatch, 100*(got/o.PerMinibatch-1))
		}
	})
	t.Logf("%d plans, gaps of %.3f %% in the middle, %.3f %% at worst", len(gaps), 100*stats.Median(gaps), 100*slices.Max(gaps))
}
