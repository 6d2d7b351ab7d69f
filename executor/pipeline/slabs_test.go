package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"

	"plimsoll/executor/internal/order"

	"plimsoll/executor/internal/stageops"

	"pgregory.net/rapid"
)

// judged returns the planner's report on a plan.
func judged(t rapid.TB, c Costs, plan *pipeline.Plan) *pipeline.Report {
	t.Helper()
	r, err := pipeline.Check(c.Chain, c.Platform, plan)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tensor identifies a result that one op leaves for another: a_l, δ_l or the results that a first half keeps of a layer, of a minibatch, or
// its batch.
type tensor struct {
	what             string
	layer, minibatch int
}

// replay follows what lies in the memory of one device while its tasks run, by where ops read and write alone.
type replay struct {
	d     *driver
	holds map[runtime.Span]tensor
	reads int
}

// write puts a tensor into a block; whatever it overlaps is gone.
func (y *replay) write(at runtime.Span, x tensor) {
	if at.Bytes == 0 {
		return
	}
	for s := range y.holds {
		if s.Overlaps(at) {
			delete(y.holds, s)
		}
	}
	y.holds[at] = x
}

// finds reports whether a tensor lies whole in a block.
func (y *replay) finds(at runtime.Span, x tensor) error {
	y.reads++
	if at.Bytes > 0 && y.holds[at] != x {
		return fmt.Errorf("%v is not at %v, there is %v", x, at, y.holds[at])
	}
	return nil
}

// use is a tensor in a block.
type use struct {
	at runtime.Span
	tensor
}

// uses returns the tensors that an op of a task reads and writes in slabs and in the task's own memory.
func (y *replay) uses(t *localStage, v order.Instance, o *stageops.Op) (reads, writes []use) {
	sb := &t.slabs[v.Minibatch%t.repeats]
	on := func(b *stageops.Block, what string, layer int) use {
		return use{span(b, sb, &frame{input: y.entry(t, v.Minibatch)}), tensor{what, layer, v.Minibatch}}
	}
	p := y.d.lay.Layers[o.Layer-1]
	input, output := on(&o.Input, "a", o.Layer-1), on(&o.Output, "a", o.Layer)
	writes = []use{on(&o.Scratch, "scratch", o.Layer)}
	reads = []use{input, {sb.scalars, tensor{"scalars", 0, v.Minibatch}}}
	if sb.labels.Bytes > 0 {
		reads = append(reads, use{sb.labels, tensor{"labels", 0, v.Minibatch}})
	}
	switch o.Program {
	case &p.Save, &p.Forget:
		return reads, append(writes, output)
	case &p.BackParams:
		return append(reads, output, on(&o.GradOutput, "δ", o.Layer), on(&o.Kept, "kept", o.Layer)), writes
	}
	return append(reads, output, on(&o.GradOutput, "δ", o.Layer)), append(writes, on(&o.GradInput, "δ", o.Layer-1), on(&o.Kept, "kept", o.Layer))
}

// entry returns where the input of a stage lies when it is in a slab.
func (y *replay) entry(t *localStage, minibatch int) runtime.Span {
	if t.stage == 0 {
		return t.slabs[minibatch%t.repeats].images[0]
	}
	if before := y.d.stages[t.stage-1]; before != nil && y.d.lay.order.OnDevice(t.stage-1, minibatch, t.device) {
		return before.slabs[minibatch%t.repeats].items[before.opsOf(minibatch).Out.Item]
	}
	return runtime.Span{}
}

// task runs a task: every op finds what it reads, also when it has written.
func (y *replay) task(v order.Instance) error {
	t := y.d.stages[v.Stage]
	if sb := &t.slabs[v.Minibatch%t.repeats]; v.Kind == pipeline.F {
		y.write(sb.scalars, tensor{"scalars", 0, v.Minibatch})
		y.write(sb.labels, tensor{"labels", 0, v.Minibatch})
		if v.Stage == 0 {
			y.write(sb.images[0], tensor{"a", 0, v.Minibatch})
		}
	}
	list := t.opsOf(v.Minibatch).Tasks[v.Kind]
	for i := range list {
		reads, writes := y.uses(t, v, &list[i])
		for _, r := range reads {
			if err := y.finds(r.at, r.tensor); err != nil {
				return fmt.Errorf("%v of minibatch %d, op %d before: %w", v.Instruction, v.Minibatch, i, err)
			}
		}
		for _, w := range writes {
			y.write(w.at, w.tensor)
			if end := y.d.lay.memory[t.device].Extent; w.at.End() > end {
				return fmt.Errorf("%v of minibatch %d, op %d writes %v, the arena has %d bytes", v.Instruction, v.Minibatch, i, w.at, end)
			}
		}
		for _, r := range append(reads, writes...) {
			if err := y.finds(r.at, r.tensor); err != nil {
				return fmt.Errorf("%v of minibatch %d, op %d behind: %w", v.Instruction, v.Minibatch, i, err)
			}
		}
	}
	return nil
}

// drawn is a random model, compiled.
func drawn(t testing.TB, r *rand.Rand) *Workload {
	b := models.NewBuilder("drawn", kernels.F32(1+r.IntN(3), 8, 8, 3), 5)
	channels := 3
	for i := range 4 + r.IntN(6) {
		name := fmt.Sprintf("layer%d", i+1)
		wide, stride := 4*(1+r.IntN(5)), 1+r.IntN(5)/4
		b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value {
			y := g.Conv("conv1", x, wide, 3, stride)
			for k := range r.IntN(3) {
				y = g.Conv(fmt.Sprintf("more%d", k), g.ReLU(fmt.Sprintf("relu%d", k), y), wide, 3, 1)
			}
			if wide == channels && stride == 1 {
				y = g.Add("add", y, x)
			}
			return g.ReLU("last", y)
		})
		channels = wide
	}
	b.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), 5)
	})
	m, err := b.Model()
	must(t, err)
	return workload(t, m)
}

// drawnPlan is a random plan with a flush: of any strategy, and of those with a stage for each device with random ops.
func drawnPlan(t testing.TB, w *Workload, r *rand.Rand) (Costs, *pipeline.Plan) {
	t.Helper()
	c := costs(w, 1+r.IntN(4), r.Uint64())
	c.Platform = c.Platform.WithMemory(pipeline.NoLimit)
	var flushing []pipeline.Strategy
	for _, s := range planner.Pipelines() {
		if s.Type == pipeline.Flushing {
			flushing = append(flushing, s)
		}
	}
	for {
		s := flushing[r.IntN(len(flushing))]
		micros := 2 * (1 + r.IntN(5))
		plan, err := s.Solve(context.Background(), pipeline.Request{Chain: c.Chain, Platform: c.Platform, Options: pipeline.Options{Microbatches: micros}})
		if err != nil {
			continue // an odd number of devices, or fewer layers than stages
		}
		if whole := !slices.Contains(plan.Split(), true) && !plan.HasOps(); whole && len(plan.Synchronization) == 0 && r.IntN(2) == 0 {
			return withOps(c, plan, r)
		}
		return c, plan
	}
}

// withOps gives most stages random ops, the last microbatch others, and the tasks times that these take, in their order.
func withOps(c Costs, plan *pipeline.Plan, r *rand.Rand) (Costs, *pipeline.Plan) {
	own := *plan
	own.Stages = slices.Clone(plan.Stages)
	for s := range own.Stages {
		if r.IntN(4) == 0 {
			continue
		}
		own.Stages[s].Ops = again(own.Stages[s], r)
		if r.IntN(2) == 0 {
			own.Stages[s].LastOps = again(own.Stages[s], r)
		}
	}
	// A backward takes up to three times as long as without ops, and all tasks have room for that.
	own.Tasks = slices.Clone(plan.Tasks)
	for i := range own.Tasks {
		own.Tasks[i].Start *= 3
	}
	return c, &own
}

// In any plan with a flush every op finds each operand whole, where the op before has written it. Nothing ends behind the arena, and no two
// pieces of memory that live together overlap.
func TestNothingLiveOverlaps(t *testing.T) {
	t.Parallel()
	reads, own := 0, 0
	check := func(rt rapid.TB, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := drawn(t, r)
		c, plan := drawnPlan(t, w, r)
		reads += replayed(rt, w, c, plan)
		single := Costs{c.Chain, pipeline.NewPlatform(1, pipeline.NoLimit, 1)}
		reads += replayed(rt, w, single, alone(plan))
		if len(plan.Stages[0].Ops) > 0 {
			own++
		}
	}
	for seed := range uint64(40) {
		check(t, seed)
	}
	if reads < 1000 || own == 0 {
		t.Errorf("%d reads, %d plans with ops", reads, own)
	}
	rapid.Check(t, func(rt *rapid.T) { check(rt, rapid.Uint64().Draw(rt, "seed")) })
}

// replayed replays two steps of a plan on all devices and returns how many reads it has seen.
func replayed(t rapid.TB, w *Workload, c Costs, plan *pipeline.Plan) (reads int) {
	t.Helper()
	e := &layout{Workload: w}
	if err := e.layOut(c, plan, c.Platform.Devices); err != nil {
		t.Fatal(err)
	}
	for _, d := range e.drivers {
		y := &replay{d: d, holds: map[runtime.Span]tensor{}}
		err := e.order.Instances(d.Number, 2*plan.Microbatches, func(v order.Instance) error {
			switch {
			case v.Kind == pipeline.Update: // of a minibatch that may be on another device: an update may follow
				t := d.stages[v.Stage]
				last := v.Minibatch - v.Minibatch%t.repeats + d.step.lastOf(t)
				if v.Minibatch < last {
					return nil
				}
				return y.finds(t.scalars[0], tensor{"scalars", 0, last})
			case !v.Computes():
				return nil
			}
			return y.task(v)
		})
		if err != nil {
			t.Fatalf("%s on device %d: %v", plan.Strategy, d.Number, err)
		}
		reads += y.reads
	}
	return reads
}

// The second half of a backward reads the output of the stage before it on its device, whose own backward may have ended.
func TestAnOutputOutlivesTheBackward(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		w := drawn(t, rand.New(rand.NewPCG(seed, 6)))
		c := costs(w, 2, seed)
		for i := range c.Chain.Layers {
			l, half := &c.Chain.Layers[i], 1e-3
			l.ForwardS, l.BackwardS, l.BackwardInputS, l.BackwardWeightS = half, 2*half, &half, &half
		}
		plan := alone(planFor(t, "zb-h1", c, pipeline.Options{Microbatches: 4}))
		late := plan.Tasks
		plan.Tasks = nil
		for _, x := range late { // the first stage has no second half, and time for a whole backward
			if x.Start *= 3; x.Kind != pipeline.W || x.Stage > 0 {
				plan.Tasks = append(plan.Tasks, x)
			}
		}
		replayed(t, w, Costs{c.Chain, pipeline.NewPlatform(1, pipeline.NoLimit, 1)}, plan)
	}
}

// Random plans with a flush, recomputing or not, give the bits of the same tasks on one device.
func TestDrawnPlansKeepTheBits(t *testing.T) {
	t.Parallel()
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 5))
		w := drawn(t, r)
		c, plan := drawnPlan(t, w, r)
		e, out := trained(t, w, c, plan, 2*plan.Microbatches, host.Config{Chaos: seed})
		out.Tensors = tensors(t, e)
		one, want := trained(t, w, Costs{c.Chain, pipeline.NewPlatform(1, pipeline.NoLimit, 1)}, alone(plan), 2*plan.Microbatches, host.Config{})
		want.Tensors = tensors(t, one)
		if d := want.FirstDifference(out); d != "" {
			t.Errorf("seed %d, %s: %s", seed, plan.Strategy, d)
		}
	}
}

// On the fullest device, live memory is as large as the planner's count, or little larger. The surplus is labels, and outputs and δ on
// their way if the plan has several at one time. Where stages have ops, live memory includes the memory that tasks work in; where they have
// none, the planner leaves it out. The arena is as large as the live memory, or little larger.
func TestArenasAreCloseToThePlannersCount(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		strategy     string
		memory       float64 // of what 1f1b* needs; 0: no limit
		count, waste float64 // at most so many times what the planner counts, and what lives at one time
	}{
		{"gpipe", 0, 1.05, 1.01}, {"1f1b-flush", 0, 1.05, 1.01}, {"interleaved", 0, 1.05, 1.05}, {"zb-h1", 0, 1.05, 1.01}, {"v-min", 0, 1.05, 1.10},
		{"gpipe-checkpoint", 0, 1.10, 1.01}, {"1f1b-recompute", 0.7, 1.20, 1.03}, {"interleaved", 0.7, 1.20, 1.05}, {"looped-bfs", 0.7, 1.20, 1.05},
		{"1f1b*", 0, 1.05, 1.01}, {"loadline", 0.7, 1.05, 1.03},
	} {
		var most [2]float64
		for _, z := range append(slices.Clone(quickZoo), sample{"resnet20", models.Config{Batch: 8, Image: 32, Classes: 10}}) {
			m, err := models.New(z.name, z.config)
			must(t, err)
			w := workload(t, m)
			for _, devices := range []int{1, 2, 4} {
				c := counted(w, devices)
				if x.memory > 0 {
					free := planFor(t, "1f1b*", c, pipeline.Options{Accounting: pipeline.Saved})
					c.Platform = c.Platform.WithMemory(int64(x.memory * float64(slices.Max(free.PerDevicePeak))))
				}
				s, err := planner.LookupPipeline(x.strategy)
				must(t, err)
				plan, err := s.Solve(t.Context(), pipeline.Request{Chain: c.Chain, Platform: c.Platform, Options: pipeline.Options{Microbatches: 2 * devices, Accounting: pipeline.Saved}})
				if err != nil {
					continue // no plan in so little memory
				}
				report, needs := judged(t, c, plan), needed(t, w, c, plan)
				var lives, planned int64
				for d, n := range needs {
					bytes := n.Peak - n.Static
					if !recomputes(plan, d) {
						bytes -= n.Working
					}
					lives, planned = max(lives, bytes), max(planned, report.PerDevicePeak[d]-report.PerDeviceWeights[d])
					most[1] = max(most[1], float64(n.Extent)/float64(n.Peak))
				}
				most[0] = max(most[0], float64(lives)/float64(planned))
			}
		}
		t.Logf("%-17s %.3f of the planner's count, arena %.3f of the peak", x.strategy, most[0], most[1])
		if most[0] == 0 || most[0] > x.count || most[1] > x.waste {
			t.Errorf("%s: devices hold %.3f times what the planner counts, want %.3f; arenas have %.3f times that, want %.3f", x.strategy, most[0], x.count, most[1], x.waste)
		}
	}
}

// recomputes reports whether a stage of a device has ops.
func recomputes(plan *pipeline.Plan, device int) bool {
	return slices.ContainsFunc(plan.Stages, func(st pipeline.Stage) bool { return len(st.Ops) > 0 && slices.Contains(st.Devices, device) })
}

// counted gives a workload's chain times in proportion to its sizes.
func counted(w *Workload, devices int) Costs {
	c := w.Chain()
	for i := range c.Layers {
		l := &c.Layers[i]
		half := 1e-6 + float64(l.SavedBytes)/1e11
		l.ForwardS, l.BackwardS, l.BackwardInputS, l.BackwardWeightS = half, 2*half, &half, &half
	}
	return Costs{c, pipeline.NewPlatform(devices, pipeline.NoLimit, 12e9)}
}

// needed returns the memory that a plan needs on each device.
func needed(t testing.TB, w *Workload, c Costs, plan *pipeline.Plan) []Memory {
	t.Helper()
	needs, err := Needs(w, c, plan, Options{})
	must(t, err)
	return needs
}
