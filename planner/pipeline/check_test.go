package pipeline_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// random returns a random case whose plan keeps the rules.
func random(rnd *rand.Rand) pipelinetest.Case {
	c := pipelinetest.Chain(rnd, 1+rnd.IntN(6), rnd.IntN(2) == 0)
	p := pipelinetest.Platform(rnd, 1+rnd.IntN(4))
	return pipelinetest.Case{Chain: c, Platform: p, Plan: pipelinetest.Plan(rnd, c, p)}
}

// copied returns a case that can be changed without changing the original.
func copied(k pipelinetest.Case) pipelinetest.Case {
	c, pf, p := *k.Chain, *k.Platform, *k.Plan
	c.Layers = slices.Clone(c.Layers)
	pf.Memory = slices.Clone(pf.Memory)
	p.Stages, p.Tasks, p.WeightCopies = slices.Clone(p.Stages), slices.Clone(p.Tasks), slices.Clone(p.WeightCopies)
	return pipelinetest.Case{Chain: &c, Platform: &pf, Plan: &p}
}

// changes lists edits that make a plan another one, most often a broken one.
var changes = []func(rnd *rand.Rand, k *pipelinetest.Case){
	func(rnd *rand.Rand, k *pipelinetest.Case) { task(rnd, k).Start += float64(rnd.IntN(5)-2) * 0.5 },
	func(rnd *rand.Rand, k *pipelinetest.Case) { task(rnd, k).Start = rnd.Float64() * 10 },
	func(rnd *rand.Rand, k *pipelinetest.Case) { task(rnd, k).Start += 1e-10 },
	func(rnd *rand.Rand, k *pipelinetest.Case) { task(rnd, k).Shift += rnd.IntN(3) - 1 },
	func(rnd *rand.Rand, k *pipelinetest.Case) { task(rnd, k).Shift -= k.Plan.Repeats() },
	func(rnd *rand.Rand, k *pipelinetest.Case) { task(rnd, k).Stage += rnd.IntN(3) - 1 },
	func(rnd *rand.Rand, k *pipelinetest.Case) { task(rnd, k).Device = rnd.IntN(4) },
	func(rnd *rand.Rand, k *pipelinetest.Case) { task(rnd, k).Kind = 1 + pipeline.Kind(rnd.IntN(5)) },
	func(rnd *rand.Rand, k *pipelinetest.Case) { x := rnd.Float64(); task(rnd, k).Duration = &x },
	func(rnd *rand.Rand, k *pipelinetest.Case) { k.Plan.Tasks = append(k.Plan.Tasks, *task(rnd, k)) },
	func(rnd *rand.Rand, k *pipelinetest.Case) {
		i := rnd.IntN(len(k.Plan.Tasks))
		k.Plan.Tasks = slices.Delete(k.Plan.Tasks, i, i+1)
	},
	func(rnd *rand.Rand, k *pipelinetest.Case) {
		x, y := task(rnd, k), task(rnd, k)
		x.Start, y.Start = y.Start, x.Start
	},
	func(rnd *rand.Rand, k *pipelinetest.Case) {
		r, _ := pipeline.Check(k.Chain, k.Platform, k.Plan)
		d := rnd.IntN(k.Platform.Devices)
		k.Platform.Memory[d] = max(r.PerDevicePeak[d]+int64(rnd.IntN(2))-1, 0)
	},
	func(rnd *rand.Rand, k *pipelinetest.Case) { k.Platform.Duplex = !k.Platform.Duplex },
	func(rnd *rand.Rand, k *pipelinetest.Case) { k.Platform.NoBuffers = !k.Platform.NoBuffers },
	func(rnd *rand.Rand, k *pipelinetest.Case) {
		k.Platform.Bandwidth = []float64{pipeline.Free(), 1.5}[rnd.IntN(2)]
	},
	func(rnd *rand.Rand, k *pipelinetest.Case) {
		layer := rnd.IntN(k.Chain.Len())
		k.Chain.Layers[layer].ForwardS += 0.25
	},
	func(rnd *rand.Rand, k *pipelinetest.Case) {
		k.Chain.Layers[rnd.IntN(k.Chain.Len())].BackwardWeightS = nil
	},
	func(rnd *rand.Rand, k *pipelinetest.Case) { k.Chain.Layers[rnd.IntN(k.Chain.Len())].OutputBytes = 0 },
	func(rnd *rand.Rand, k *pipelinetest.Case) { stage(rnd, k).Last++ },
	func(rnd *rand.Rand, k *pipelinetest.Case) { stage(rnd, k).Devices = []int{rnd.IntN(4)} },
	func(rnd *rand.Rand, k *pipelinetest.Case) { stage(rnd, k).Devices = []int{0, 0} },
	func(rnd *rand.Rand, k *pipelinetest.Case) { k.Plan.Period *= 0.9 },
	func(rnd *rand.Rand, k *pipelinetest.Case) { k.Plan.Period += 0.5 },
	func(rnd *rand.Rand, k *pipelinetest.Case) {
		k.Plan.Microbatches, k.Plan.MinibatchesPerPeriod = rnd.IntN(4), 1+rnd.IntN(3)
	},
	func(rnd *rand.Rand, k *pipelinetest.Case) { k.Plan.Versions = pipeline.AllVersions()[rnd.IntN(5)] },
	func(rnd *rand.Rand, k *pipelinetest.Case) { k.Plan.WeightCopies = make([]float64, rnd.IntN(4)) },
	func(rnd *rand.Rand, k *pipelinetest.Case) { k.Plan.Stages = k.Plan.Stages[:len(k.Plan.Stages)-1] },
	func(rnd *rand.Rand, k *pipelinetest.Case) {
		r, _ := pipeline.Check(k.Chain, k.Platform, k.Plan)
		k.Plan.PerDevicePeak = slices.Clone(r.PerDevicePeak)
		k.Plan.PerDevicePeak[0] += int64(rnd.IntN(2))
		k.Plan.Predicted.Makespan = r.Makespan + float64(rnd.IntN(2))
	},
	func(rnd *rand.Rand, k *pipelinetest.Case) {
		for i := range k.Plan.Tasks {
			k.Plan.Tasks[i].Shift -= 7 * k.Plan.Repeats()
		}
	},
}

func task(rnd *rand.Rand, k *pipelinetest.Case) *pipeline.Task {
	return &k.Plan.Tasks[rnd.IntN(len(k.Plan.Tasks))]
}

func stage(rnd *rand.Rand, k *pipelinetest.Case) *pipeline.Stage {
	return &k.Plan.Stages[rnd.IntN(len(k.Plan.Stages))]
}

// Random plans, and each changed in every way, are judged as the independent checker judges them.
func TestBothJudgesAgree(t *testing.T) {
	t.Parallel()
	plans := many(150, 30)
	rnd := rand.New(rand.NewPCG(7, 1))
	var cases []pipelinetest.Case
	flush := 0
	for range plans {
		k := random(rnd)
		if _, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil {
			t.Fatalf("the random plan is refused: %v", err)
		}
		if k.Plan.IsFlush() {
			flush++
		}
		cases = append(cases, k)
		for _, change := range changes {
			changed := copied(k)
			change(rnd, &changed)
			if writable(changed) {
				cases = append(cases, changed)
			}
		}
	}
	valid := pipelinetest.Agree(t, cases)
	if len(cases) < 28*plans || valid < len(cases)/5 || valid > len(cases)/2 || flush < plans/4 || flush > 3*plans/4 {
		t.Errorf("%d cases, %d valid, %d of %d plans flush: the cases are not what they should be", len(cases), valid, flush, plans)
	}
}

// writable: the reader of files refuses what the independent checker would have to guess.
func writable(k pipelinetest.Case) bool {
	return k.Platform.Validate() == nil && k.Chain.Validate() == nil && !math.IsNaN(k.Plan.Period) && len(k.Plan.Stages) > 0
}
