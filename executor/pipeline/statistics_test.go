package pipeline

import (
	"fmt"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// flushPlans calls do with plans whose stages have replicas: of strategies, and random ones with minibatches in the order of their numbers.
// In some of them replicas divide the optimizer's state, or add gradients up at times that the plan gives.
func flushPlans(t *testing.T, w *Workload, random int, do func(name string, c Costs, plan *pipeline.Plan)) {
	t.Helper()
	for _, devices := range []int{2, 4} {
		c := costs(w, devices, 3)
		for _, m := range []int{devices, 2 * devices} {
			divided, whole := sharing(t, c, dataParallel(c, m))
			do(fmt.Sprintf("data/%d", m), c, whole)
			do(fmt.Sprintf("zero/%d", m), c, divided)
			for _, strategy := range []string{"joint-flush", "chimera"} {
				do(fmt.Sprintf("%s/%d", strategy, m), c, planFor(t, strategy, c, pipeline.Options{Microbatches: m}))
			}
		}
	}
	for seed := uint64(0); random > 0; seed++ {
		c, plan := randomPlan(w, seed, 1)
		if !plan.IsFlush() || !hasReplicas(plan) {
			continue
		}
		if seed%2 == 1 {
			plan = summing(t, c, plan, 1+int(seed/2)%4)
		}
		e := &layout{Workload: w}
		must(t, e.layOut(c, plan, c.Platform.Devices))
		if newInstants(t, c, plan).ascending(e, e.group) {
			random--
			do(fmt.Sprintf("random/%d", seed), c, plan)
		}
	}
}

// TestReplicasHaveTheStatisticsOfAccumulation checks that the running statistics of BatchNorms, after a step of a plan with a flush and
// replicas, are the bits of accumulation on one device, on every replica.
// Only this test finds running statistics of replicas that miss a microbatch or take them in another order.
func TestReplicasHaveTheStatisticsOfAccumulation(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	single, plans := costs(w, 1, 1), 0
	flushPlans(t, w, 12, func(name string, c Costs, plan *pipeline.Plan) {
		n := plan.Repeats()
		e, _ := trained(t, w, c, plan, n, host.Config{Chaos: 3})
		after := &pipelinetest.Outcome{Tensors: tensors(t, e)}
		alone, _ := trained(t, w, single, planFor(t, "1f1b-flush", single, pipeline.Options{Microbatches: n}), n, host.Config{})
		want := &pipelinetest.Outcome{Tensors: tensors(t, alone)}
		if d := pipelinetest.FirstDifference(buffers(want), buffers(after)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		replicasAgree(t, e)
		plans++
	})
	if plans != 28 {
		t.Errorf("%d plans, want 28", plans)
	}
}
