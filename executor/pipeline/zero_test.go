package pipeline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// wideModel has tensors of several partial sums of the norm.
func wideModel(t testing.TB) *models.Model {
	t.Helper()
	b := models.NewBuilder("wide", kernels.F32(4, 8, 8, 3), 5)
	for i, channels := range []int{24, 80, 48} {
		name := fmt.Sprintf("layer%d", i+1)
		b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value {
			return g.ReLU("relu", g.Conv("conv", x, channels, 3, 1))
		})
	}
	b.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), 5)
	})
	m, err := b.Model()
	must(t, err)
	return m
}

// sharing returns a plan whose replicas divide the optimizer's state, and the same one undivided.
func sharing(t testing.TB, c Costs, plan *pipeline.Plan) (divided, whole *pipeline.Plan) {
	t.Helper()
	of := func(z pipeline.Zero) *pipeline.Plan {
		p := *plan
		p.Zero = z
		out, err := pipeline.Synchronize(c.Chain, c.Platform, &p)
		must(t, err)
		return out
	}
	return of(pipeline.ZeroShards), of(pipeline.ZeroNothing)
}

// inParts returns a divided plan whose replicas divide the sums of gradients alone.
func inParts(t testing.TB, c Costs, divided *pipeline.Plan) *pipeline.Plan {
	t.Helper()
	whole := *divided
	whole.Zero = pipeline.ZeroNothing
	out, err := pipeline.Timed(c.Chain, c.Platform, &whole)
	must(t, err)
	_, err = pipeline.Check(c.Chain, c.Platform, out)
	must(t, err)
	return out
}

// sharedPlans are plans with a flush and replicas.
func sharedPlans(t testing.TB, c Costs) map[string]*pipeline.Plan {
	t.Helper()
	n := c.Platform.Devices
	all := map[string]*pipeline.Plan{"data": dataParallel(c, 2*n), "joint-flush": planFor(t, "joint-flush", c, pipeline.Options{Microbatches: 2 * n})}
	if n%2 == 0 && n <= len(c.Chain.Layers) {
		all["chimera"] = planFor(t, "chimera", c, pipeline.Options{Microbatches: n})
	}
	return all
}

// A divided run is the undivided one to the last bit, whatever the model, the optimizer and the plan: losses, norms, weights and
// states, clipped or not. And each device has its part of the state alone, unless sums alone are divided.
// Only this test finds that dividing the optimizer's state among replicas changes a norm or a deferred statistic.
func TestZeroIsTheUndividedRun(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*models.Model{"norm": testModel(t), "wide": wideModel(t)} {
		for _, rule := range []kernels.Update{kernels.SGD{Momentum: 0.9, WeightDecay: 1e-3}, kernels.Adam{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}} {
			w := *workload(t, m)
			w.Optimizer = rule
			for _, devices := range []int{2, 3, 4, 8} {
				if testing.Short() && (devices != 4 || name == "wide" && rule.Kind() == "sgd") {
					continue
				}
				c := costs(&w, devices, 3)
				if devices == 2 {
					c.Platform.Bandwidth = pipeline.Free() // all messages at one instant
				}
				for plan, p := range sharedPlans(t, c) {
					t.Run(fmt.Sprintf("%s/%T/%d/%s", name, rule, devices, plan), func(t *testing.T) {
						divided, whole := sharing(t, c, p)
						for _, opt := range []Options{{}, {MaxNorm: 0.05}, {DeferredBatchNorm: true}} {
							steps := 3
							want, out := guarded(t, targets(t, devices, host.Config{}), &w, c, whole, steps, opt)
							must(t, want.Run(t.Context(), steps*p.Repeats()))
							out.Tensors = tensors(t, want)
							for _, parts := range []*pipeline.Plan{divided, inParts(t, c, divided)} {
								got, shared := guarded(t, targets(t, devices, host.Config{Chaos: 3}), &w, c, parts, steps, opt)
								must(t, got.Run(t.Context(), steps*p.Repeats()))
								shared.Tensors = tensors(t, got)
								if d := out.FirstDifference(shared.Outcome); d != "" || !slices.Equal(out.Norms, shared.Norms) {
									t.Fatalf("%s; norms %v, undivided %v", d, shared.Norms, out.Norms)
								}
								if parts.Zero != pipeline.ZeroNothing {
									got.sharesStates(t, want)
									got.joinsPartialSums(t)
								}
							}
						}
					})
				}
			}
		}
	}
}

// relayed lets some new weights come by way of replicas that have them.
func relayed(t *testing.T, r *rand.Rand, c Costs, plan *pipeline.Plan) *pipeline.Plan {
	t.Helper()
	out := *plan
	out.Synchronization = slices.Clone(plan.Synchronization)
	for i := range out.Synchronization {
		m := &out.Synchronization[i]
		line := plan.Line(m.Stage)
		if m.Kind != pipeline.Gather || len(line) < 3 || r.IntN(2) == 0 {
			continue
		}
		owner := m.From
		for m.From == owner || m.From == m.To {
			m.From = line[r.IntN(len(line))]
		}
		m.Start = plan.Predicted.Makespan + 1e6 + float64(slices.Index(line, m.To)) // behind all that come straight
		if slices.Index(line, m.From) > slices.Index(line, m.To) {
			m.From, m.Start = owner, plan.Synchronization[i].Start
		}
	}
	timed, err := pipeline.Timed(c.Chain, c.Platform, &out)
	must(t, err)
	_, err = pipeline.Check(c.Chain, c.Platform, timed)
	must(t, err)
	return timed
}

// Random plans, whose stages need not have the same replicas, are divided to the last bit, however weights come to who has not
// made them.
func TestRandomPlansAreDivided(t *testing.T) {
	t.Parallel()
	w := workload(t, wideModel(t))
	r := rand.New(rand.NewPCG(16, 1))
	ran, relays, plans := 0, 0, 60
	if testing.Short() {
		plans = 15
	}
	for seed := uint64(0); ran < plans; seed++ {
		c, plan := randomPlan(w, seed, 1)
		if seed%8 == 0 { // seldom all of several replicas work
			c = costs(w, 3+int(seed/8)%2, seed)
			plan = dataParallel(c, 8)
		}
		if !plan.IsFlush() || !hasReplicas(plan) {
			continue
		}
		divided, whole := sharing(t, c, plan)
		if divided.Synchronization == nil {
			continue
		}
		ran++
		by := relayed(t, r, c, divided)
		for i, m := range by.Synchronization {
			if m.From != divided.Synchronization[i].From {
				relays++
			}
		}
		n := 2 * plan.Repeats()
		e, want := trained(t, w, c, whole, n, host.Config{})
		want.Tensors = tensors(t, e)
		for _, p := range []*pipeline.Plan{divided, by, inParts(t, c, divided), inParts(t, c, by)} {
			e, got := trained(t, w, c, p, n, host.Config{Chaos: seed})
			got.Tensors = tensors(t, e)
			if d := want.FirstDifference(got); d != "" {
				t.Fatalf("seed %d: %s", seed, d)
			}
		}
	}
	t.Logf("%d plans, %d messages by way of others", ran, relays)
	if relays < plans/5 {
		t.Errorf("%d messages by way of others", relays)
	}
}

// sharesStates checks that the replicas of each stage have its optimizer's state once together, and weights all.
func (e *Executor) sharesStates(t *testing.T, whole *Executor) {
	t.Helper()
	for s := range e.order.Plan.Stages {
		var once, sum int64
		for _, d := range e.drivers {
			if d.stages[s] == nil {
				continue
			}
			for _, st := range d.stages[s].states {
				sum += st.Bytes
			}
			once = 0
			for _, st := range whole.driver(d.Number).stages[s].states {
				once += st.Bytes
			}
		}
		if sum != once {
			t.Errorf("stage %d: replicas have %d bytes of states together, undivided each has %d", s, sum, once)
		}
	}
}

// joinsPartialSums checks that a copy moves the partial sums of all of a part, of however many tensors.
func (e *Executor) joinsPartialSums(t *testing.T) {
	t.Helper()
	for s, x := range e.squares {
		for d, places := range x.parts {
			if parts := len(e.shardOf(s, d).places); len(places) > parts {
				t.Errorf("stage %d, device %d: partial sums of %d parts lie in %d places: %v", s, d, parts, len(places), places)
			}
		}
	}
}

// A divided run is gradient accumulation on one device.
// Among short tests, only this test finds a sum that is wrong when eight replicas divide the optimizer's state.
func TestZeroIsGradientAccumulation(t *testing.T) {
	t.Parallel()
	m := plainModel(t)
	w := workload(t, m)
	all := []int{2, 4, 8}
	if testing.Short() {
		all = all[1:2]
	}
	for _, devices := range all {
		c := costs(w, devices, 2)
		for name, p := range sharedPlans(t, c) {
			t.Run(fmt.Sprintf("%s/%d", name, devices), func(t *testing.T) {
				divided, _ := sharing(t, c, p)
				n := 3 * p.Repeats()
				e, got := trained(t, w, c, divided, n, host.Config{Chaos: 4})
				got.Tensors = tensors(t, e)
				same(t, reference(t, m, divided, newInstants(t, c, divided).expected(e.layout, n), n), got)
			})
		}
	}
}

// The memory of every device is the undivided plan's, less the states of others, with the blocks in which gradients and partial sums
// arrive. An audit of a step finds the planned peak to the byte.
func TestMemoryOfZero(t *testing.T) {
	t.Parallel()
	w := *workload(t, wideModel(t))
	w.Optimizer = kernels.Adam{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
	for _, devices := range []int{2, 4, 8} {
		c := costs(&w, devices, 3)
		divided, whole := sharing(t, c, dataParallel(c, 2*devices))
		e, _ := guarded(t, targets(t, devices, host.Config{}), &w, c, divided, 1, Options{Audit: true})
		undivided, err := Needs(&w, c, whole, Options{})
		must(t, err)
		needs, err := Needs(&w, c, divided, Options{})
		must(t, err)
		for _, a := range e.Audited() {
			d := e.driver(a.Device)
			own, all, blocks := d.stages[0].shard.bytes, d.stages[0].weights[0].Bytes, int64(0)
			for _, l := range e.channels {
				if l.to == a.Device && (l.kind == pipeline.Reducing || strings.HasPrefix(l.what, "the norm")) {
					for _, b := range l.blocks {
						blocks += kernels.Align(b.Bytes)
					}
				}
			}
			if m := needs[a.Device]; a.PeakBytes != m.Peak || m.Static >= undivided[a.Device].Static {
				t.Errorf("%d devices: audited %+v, planned %+v, undivided %+v", devices, a, m, undivided[a.Device])
			}
			if most := all/int64(devices) + guardBytes*int64(len(d.stages[0].sums.Buckets)/devices); own > most { // both ends of a part move by half as much
				t.Errorf("%d devices: device %d keeps the states of %d of %d bytes, more than %d", devices, a.Device, own, all, most)
			}
			t.Logf("%d devices: device %d keeps the states of %d of %d bytes, %d bytes for what arrives; peak %d, undivided %d", devices, a.Device, own, all, blocks, a.PeakBytes, undivided[a.Device].Peak)
		}
		parts := inParts(t, c, divided)
		e, _ = guarded(t, targets(t, devices, host.Config{}), &w, c, parts, 1, Options{Audit: true})
		needs, err = Needs(&w, c, parts, Options{})
		must(t, err)
		for _, a := range e.Audited() {
			if m := needs[a.Device]; a.PeakBytes != m.Peak || e.driver(a.Device).stages[0].shard != nil {
				t.Errorf("%d devices, sums in parts: audited %+v, planned %+v", devices, a, m)
			}
		}
	}
}

// After each segment, a divided run saves the same state as an undivided run. Either run goes on from the other's state.
func TestZeroCheckpoints(t *testing.T) {
	t.Parallel()
	w := workload(t, wideModel(t))
	c := costs(w, 4, 3)
	for name, p := range sharedPlans(t, c) {
		t.Run(name, func(t *testing.T) {
			divided, whole := sharing(t, c, p)
			savesLike(t, w, c, whole, divided)
		})
	}
}

// Replicas in different processes divide the state, too, and train the bits of one process.
// Only this test finds a part of a divided state that goes to the wrong process, or is summed in another order there.
func TestZeroBetweenProcesses(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	r := rand.New(rand.NewPCG(3, 5))
	for _, devices := range []int{2, 4} {
		for _, duplex := range []bool{false, true} {
			costs := costs(w, devices, 3)
			costs.Platform.Duplex = duplex
			for name, p := range sharedPlans(t, costs) {
				divided, _ := sharing(t, costs, p)
				n := 2 * p.Repeats()
				want := newWorld(t, w, costs, divided, make([]int, devices), cpus(t, host.Config{}), Options{}).trained(n)
				for _, plan := range []*pipeline.Plan{divided, inParts(t, costs, divided)} {
					for i, process := range divisions(devices, r) {
						t.Run(fmt.Sprintf("%s/%v/%d/%v", name, duplex, plan.Zero, process), func(t *testing.T) {
							same(t, want, newWorld(t, w, costs, plan, process, cpus(t, host.Config{Chaos: uint64(i)}), Options{}).trained(n))
						})
					}
				}
			}
		}
	}
}

// A norm that is not finite leaves all weights and states as they are, on all devices.
func TestZeroSkips(t *testing.T) {
	t.Parallel()
	w := workload(t, wideModel(t))
	c := costs(w, 4, 3)
	divided, _ := sharing(t, c, dataParallel(c, 8))
	e, run := guarded(t, targets(t, 4, host.Config{}), w, c, divided, 2, Options{})
	must(t, e.Run(t.Context(), 8))
	before := tensors(t, e)
	x := e.tensors.all[slices.IndexFunc(e.tensors.all, func(p placed) bool { return p.Role == "weight" })]
	good := make([]float32, x.Desc.Elements())
	must(t, e.Read(x.Tensor, good))
	bad := slices.Clone(good)
	bad[0] = float32(math.Inf(1))
	must(t, e.Write(x.Tensor, bad))
	must(t, e.Run(t.Context(), 8))
	must(t, e.Write(x.Tensor, good))
	if d := pipelinetest.FirstDifference(before, tensors(t, e)); d != "" || !run.skipped[1] || run.skipped[0] {
		t.Errorf("%s, skipped %v", d, run.skipped)
	}
}
