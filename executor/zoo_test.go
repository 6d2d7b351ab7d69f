package executor

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

// Plans of every strategy with transfers, and plans of rotor with transfers at random places, on networks as they are
// used: the bits of store-all, at the predicted peak, with delays.
func TestTransfersOfRealModels(t *testing.T) {
	t.Parallel()
	ran, moved := 0, 0
	zoo := []zooModel{{"resnet20", []int64{65, 85}}, {"densenet121", []int64{65}}, {"unet-1-4", []int64{65, 85}}, {"amoebanet-3-8", []int64{85}}}
	if testing.Short() {
		zoo = zoo[:1]
	}
	for k, z := range zoo {
		name := z.name
		m, err := models.New(name, models.Config{Batch: 2, Image: 32, Classes: 5})
		must(t, err)
		r := newRig(t, m, host.Config{Memory: 1 << 30, HostMemory: 1 << 30}, nil)
		want := train(t, r.executor(t, r.StoreAll(), Options{Seed: 7, Limit: 1 << 29}), 1)
		for _, x := range zooCases(t, r.Workload, z.percents, uint64(k)) {
			r := newRig(t, m, host.Config{Memory: 1 << 30, HostMemory: 1 << 30, Chaos: uint64(ran + 1)}, nil)
			opt := Options{Seed: 7, Limit: x.limit, Sim: x.sim, Audit: true}
			e := r.executor(t, x.seq, opt)
			if d := firstDifference(want, train(t, e, 1)); d != "" {
				t.Errorf("%s, %v: %s differs from store-all's", name, x.seq, d)
			}
			if want := r.StaticBytes() + x.Peak; e.result.PeakBytes != want || e.result.ExtentBytes > x.limit {
				t.Errorf("%s, %v: peak %d, predicted %d; extent %d of %d", name, x.seq, e.result.PeakBytes, want, e.result.ExtentBytes, x.limit)
			}
			ran++
			moved += count(transfers(x.seq))
		}
	}
	t.Logf("%d plans ran, %d with transfers", ran, moved)
	if moved < 6+len(zoo) {
		t.Errorf("only %d plans with transfers ran", moved)
	}
}

// zooModel is a model and the limits of its cases, in percent of what the step of store-all takes.
type zooModel struct {
	name     string
	percents []int64
}

// zooCase is a sequence with the arena that it gets.
type zooCase struct {
	randomCase
	limit int64
}

func zooCases(t *testing.T, w *Workload, percents []int64, seed uint64) (cases []zooCase) {
	t.Helper()
	c := costs(w.Chain())
	c.Bandwidth = float64(c.Saved(2))
	all, err := w.PeakBytes(w.StoreAll())
	must(t, err)
	rnd := rand.New(rand.NewPCG(seed, 3))
	for _, s := range planner.Sequences() {
		if !slices.Contains([]string{"rotor", "offload-greedy", "offload-dynprog", "autoswap", "pofo"}, s.Name) {
			continue // others take long, or make the same sequences
		}
		for _, percent := range percents {
			limit := w.StaticBytes() + (all-w.StaticBytes())*percent/100
			plan, err := Plan(t.Context(), w, c, s, limit, strategy.Options{})
			if small := (*TooSmallError)(nil); errors.As(err, &small) {
				continue
			}
			must(t, err)
			if !transfers(plan.Sequence()) {
				plan.Stages[0].Ops = sprinkle(rnd, c, plan.Sequence(), 30)
				limit += limit / 4
				plan.Platform.Memory[0] = schedule.NoLimit
			}
			sim := Following(c, plan)
			sim.Limits.Memory = min(sim.Limits.Memory, limit-w.StaticBytes())
			res, err := schedule.Simulate(c, plan.Sequence(), sim.Limits)
			must(t, err)
			if at, err := w.Layout(plan.Sequence(), limit, sim); errors.As(err, new(*UnusedPrefetchError)) || at.Extent > limit {
				continue
			}
			cases = append(cases, zooCase{randomCase{plan.Sequence(), sim, res}, limit})
		}
	}
	return cases
}

// A model whose weights outweigh its activations, of blocks with branches: the bits of store-all under a plan that
// recomputes and one that offloads, each within its limit at the predicted peak.
func TestWideModel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("24 million parameters")
	}
	config := host.Config{Memory: 1 << 30, HostMemory: 1 << 30}
	m, err := models.New("inception_v3", models.Config{Batch: 4, Image: 75, Classes: 5})
	must(t, err)
	r := newRig(t, m, config, nil)
	want := train(t, r.executor(t, r.StoreAll(), Options{Seed: 7, Limit: 1 << 30}), 1)
	all, err := r.PeakBytes(r.StoreAll())
	must(t, err)
	for _, name := range []string{"rotor", "offload-greedy"} {
		s, err := planner.Lookup(name)
		must(t, err)
		c := costs(r.Chain())
		c.Bandwidth = float64(c.Saved(2))
		limit := r.StaticBytes() + (all-r.StaticBytes())*85/100
		plan, err := Plan(t.Context(), r.Workload, c, s, limit, strategy.Options{})
		must(t, err)
		sim := Following(c, plan)
		res, err := schedule.Simulate(c, plan.Sequence(), sim.Limits)
		must(t, err)
		r := newRig(t, m, config, nil)
		e := r.executor(t, plan.Sequence(), Options{Seed: 7, Limit: limit, Sim: sim, Audit: true})
		if d := firstDifference(want, train(t, e, 1)); d != "" {
			t.Errorf("%s, %v: %s differs from store-all's", name, plan.Sequence(), d)
		}
		if want := r.StaticBytes() + res.Peak; e.result.PeakBytes != want || e.result.PeakBytes >= all || e.result.ExtentBytes > limit {
			t.Errorf("%s: peak %d, predicted %d, of store-all %d; extent %d of %d", name, e.result.PeakBytes, want, all, e.result.ExtentBytes, limit)
		}
	}
}
