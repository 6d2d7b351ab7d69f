package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// bothWays is a plan whose stages offload, with portals, and the workload for it.
type bothWays struct {
	carried, straight *pipeline.Plan // the same with skips that are carried; nil where there is no such plan
	costs             Costs
	workload          *Workload // of the straight one
}

// offloadingStraight returns a plan of one kind, some of whose stages recompute and offload, with the portals of its stages.
func offloadingStraight(t testing.TB, w *Workload, lib kernels.Library, devices int, o pipeline.Options, seed uint64) (x bothWays) {
	t.Helper()
	c := costs(w, devices, seed)
	slower := *c.Chain // time for each layer to run again
	slower.Layers = slices.Clone(slower.Layers)
	for i := range slower.Layers {
		slower.Layers[i].BackwardS += slower.Layers[i].ForwardS
	}
	plan := planFor(t, "1f1b*", Costs{Chain: &slower, Platform: c.Platform}, o)
	x.costs, x.carried = offloading(t, c, plan, seed)
	x.costs.Platform.Host *= 4
	portals := Portals(w.Model, x.carried.Stages)
	if len(portals) == 0 {
		return x
	}
	straight, err := pipeline.WithPortals(x.costs.Chain, x.costs.Platform, x.carried, portals, pipeline.Return(seed%2))
	if errors.Is(err, pipeline.ErrNoRoom) {
		return x
	}
	must(t, err)
	x.straight = straight
	x.workload, err = Straight(w, lib, straight)
	must(t, err)
	return x
}

// Stages that offload train the weights of the sequential reference on one device when skips go past them, too.
// Only this test finds a wrong weight version of vertical_sync that recomputing and offloading stages share.
func TestPortalsOfStagesThatOffload(t *testing.T) {
	t.Parallel()
	m := skipping(t)
	w, lib, moved := workload(t, m), onlyLibrary(t), 0
	for seed := range uint64(8) {
		versions := asynchronous[seed%4]
		t.Run(fmt.Sprintf("%d/%s", seed, versions), func(t *testing.T) {
			x := offloadingStraight(t, w, lib, 3+int(seed)%2, pipeline.Options{Versions: versions, WeightCopies: []float64{6}}, seed)
			if x.straight == nil {
				t.Skip("no portals, or no room for them")
			}
			moved += transfers(x.straight)
			group := groupOf(t, x.workload, x.costs, x.straight)
			var want *pipelinetest.Outcome
			if versions == pipeline.Latest { // what is recomputed has newer weights: no reference does that
				var e *Executor
				e, want = trained(t, w, x.costs, staying(x.carried), 10*group, host.Config{})
				want.Tensors = tensors(t, e)
			} else {
				want = reference(t, m, x.straight, program(versions, delays(t, x.costs, x.straight), group), 10*group)
			}
			for chaos := range uint64(2) {
				e, got := trained(t, x.workload, x.costs, x.straight, 10*group, host.Config{Chaos: chaos})
				got.Tensors = tensors(t, e)
				same(t, want, got)
			}
		})
	}
	if moved < 30 {
		t.Errorf("only %d transfers in all plans", moved)
	}
}

// Any model, cut anywhere, is trained to the same bits when its stages offload and its skips go straight.
// Only this test finds a wrong portal of an offloading stage for skips that several layers read, hand on or add up.
func TestPortalsOfAnyModelThatOffloads(t *testing.T) {
	t.Parallel()
	lib, straights, moved := onlyLibrary(t), 0, 0
	models := 40
	if testing.Short() {
		models = 20
	}
	for seed := range uint64(models) {
		r := rand.New(rand.NewPCG(seed, 14))
		m, err := (&wiring{Rand: r, width: 1 + r.IntN(3)}).model(4 + r.IntN(5))
		must(t, err)
		w := workload(t, m)
		const devices = 4
		o := pipeline.Options{Stages: stagesCutAnywhere(r, len(m.Layers), devices), Versions: []pipeline.Versions{pipeline.Stash, pipeline.DoubleBuffered, pipeline.Latest}[r.IntN(3)]}
		x := offloadingStraight(t, w, lib, devices, o, seed)
		if x.straight == nil {
			continue
		}
		straights, moved = straights+1, moved+transfers(x.straight)
		n := 8 * groupOf(t, x.workload, x.costs, x.straight)
		e, want := trained(t, w, x.costs, staying(x.carried), n, host.Config{})
		want.Tensors = tensors(t, e)
		f, got := trained(t, x.workload, x.costs, x.straight, n, host.Config{Chaos: seed})
		got.Tensors = tensors(t, f)
		if d := want.FirstDifference(got); d != "" {
			t.Fatalf("seed %d, %v: %s", seed, x.straight.Portals, d)
		}
	}
	t.Logf("%d models have portals, %d transfers", straights, moved)
	if straights < models*3/8 || moved < models*5/2 {
		t.Errorf("%d models have portals, %d transfers", straights, moved)
	}
}

// Messages to several devices and transfers of one stage are ordered with every access to their memory. A missing wait of a ring would be
// seen.
// Only this test finds a wait between portals and transfers that the proof counts on and the running ring leaves out.
func TestEventsOrderPortalsAndTransfers(t *testing.T) {
	t.Parallel()
	w, lib := workload(t, skipping(t)), onlyLibrary(t)
	tried, dropped, seen := 0, 0, 0
	r := rand.New(rand.NewPCG(1, 16))
	for seed := range uint64(4) {
		x := offloadingStraight(t, w, lib, 3+int(seed)%2, pipeline.Options{Versions: pipeline.Stash}, seed)
		if x.straight == nil {
			continue
		}
		tried++
		if racesWithout(t, x.workload, lib, x.costs, x.straight, func(*Executor, *history) {}) {
			t.Errorf("seed %d: something has no order", seed)
		}
		for range 5 {
			if racesWithout(t, x.workload, lib, x.costs, x.straight, func(e *Executor, _ *history) { dropOne(e, r) }) {
				seen++
			}
			dropped++
		}
	}
	t.Logf("%d of %d missing waits are seen in %d plans", seen, dropped, tried)
	if tried < 3 || seen < dropped*2/5 {
		t.Errorf("%d of %d missing waits are seen in %d plans", seen, dropped, tried)
	}
}

// A step waits for both links to which what it overwrites was sent: each is a stream of its own.
func TestStepsWaitForEveryLink(t *testing.T) {
	t.Parallel()
	const first, second = links, links + 1
	block := []memoryAccess{{span: runtime.Span{Bytes: 1}, write: false}}
	accessed := [][][]memoryAccess{{block}, {block}, {{{span: runtime.Span{Bytes: 1}, write: true}}}}
	h := newDependencies(int(second) + 1)
	h.add(stepRef{0, 0}, first, accessed, false)
	h.add(stepRef{1, 0}, second, accessed, false)
	if waits := h.add(stepRef{2, 0}, onCompute, accessed, false); !slices.Equal(waits, []stepRef{{0, 0}, {1, 0}}) {
		t.Errorf("what overwrites waits for %v", waits)
	}
}

// With portals and transfers, every device writes up to the last byte of its stated need, and none beyond. The bytes in flight are no more
// than the judge counts. If skips pass a stage, the judge counts fewer bytes than when they are carried.
func TestMemoryOfPortalsAndTransfers(t *testing.T) {
	t.Parallel()
	w, lib, passed := workload(t, skipping(t)), onlyLibrary(t), 0
	for seed := range uint64(8) {
		x := offloadingStraight(t, w, lib, 3+int(seed)%2, pipeline.Options{Versions: pipeline.Stash}, seed)
		if x.straight == nil {
			continue
		}
		touches(t, x.workload, x.costs, x.straight, 12)
		needs, err := Needs(x.workload, x.costs, x.straight, Options{})
		must(t, err)
		for s, st := range x.straight.Stages {
			if !slices.ContainsFunc(x.straight.Portals, func(p pipeline.Portal) bool { return p.From < s && s < p.To }) {
				continue
			}
			d := st.Devices[0]
			before, after := heldOn(t, x.costs, x.carried, d), heldOn(t, x.costs, x.straight, d)
			if after >= before {
				t.Errorf("seed %d, stage %d: %d bytes are counted with portals, %d without", seed, s, after, before)
			}
			// Blocks are aligned, and each minibatch has its scalars.
			slack := int64(x.straight.Stages[s].Len()+2) * 8 * 2 * (ringScalars + 4*kernels.Alignment)
			if got := needs[d].InFlight; got > after+slack {
				t.Errorf("seed %d, stage %d: %d bytes in flight, counted are %d", seed, s, got, after)
			}
			passed++
		}
	}
	if passed < 6 {
		t.Errorf("skips pass %d stages", passed)
	}
}

// heldOn returns the bytes that the judge counts for the minibatches of a device.
func heldOn(t *testing.T, c Costs, plan *pipeline.Plan, d int) int64 {
	t.Helper()
	report, err := pipeline.Check(c.Chain, c.Platform, plan)
	must(t, err)
	return report.PerDevicePeak[d] - report.PerDeviceWeights[d] - report.PerDeviceBuffers[d]
}

// stagesCutAnywhere returns stages of so many layers, each on a device of its own.
func stagesCutAnywhere(r *rand.Rand, layers, devices int) (all []pipeline.Stage) {
	cuts := r.Perm(layers - 1)[:devices-1]
	slices.Sort(cuts)
	first := 1
	for s, last := range append(cuts, layers-1) {
		all = append(all, pipeline.Stage{First: first, Last: last + 1, Devices: []int{s}})
		first = last + 2
	}
	return all
}
