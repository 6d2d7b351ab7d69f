package pipeline_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// threeReplicas is a stage of three layers, of which the second has no weights, on three devices with a microbatch each:
//
//	device 0, 1, 2  FFFBBBBBB
//	link 0-1             RR  RGGG         R, G: reduces and gathers of layer 3 (2 s), of layer 1 (1 s)
//	link 1-2               RRGG RG
func threeReplicas() pipelinetest.Case {
	c := &chain.Chain{Name: "three", InputBytes: 1, Layers: []chain.Layer{layer(1, 2, 1, 4), layer(1, 2, 1, 0), layer(1, 2, 1, 8)}}
	p := &pipeline.Plan{Chain: "three", Versions: pipeline.Flush, Microbatches: 3, Stages: []pipeline.Stage{{First: 1, Last: 3, Devices: []int{0, 1, 2}}}}
	for d := range 3 {
		p.Tasks = append(p.Tasks, pipeline.Task{Kind: F, Device: d, Shift: d}, pipeline.Task{Kind: B, Device: d, Start: 3, Shift: d})
	}
	message := func(kind pipeline.SynchronizationKind, bucket [2]int, from, to int, start float64) {
		p.Synchronization = append(p.Synchronization, pipeline.Synchronization{Kind: kind, First: bucket[0], Last: bucket[1], From: from, To: to, Start: start, Shift: 2})
	}
	last, first := [2]int{3, 3}, [2]int{1, 2}
	message(pipeline.Reduce, last, 0, 1, 5)
	message(pipeline.Reduce, last, 1, 2, 7)
	message(pipeline.Gather, last, 2, 1, 9)
	message(pipeline.Gather, last, 1, 0, 11)
	message(pipeline.Reduce, first, 0, 1, 9)
	message(pipeline.Reduce, first, 1, 2, 11)
	message(pipeline.Gather, first, 2, 1, 12)
	message(pipeline.Gather, first, 1, 0, 13)
	return pipelinetest.Case{Chain: c, Platform: pipeline.NewPlatform(3, pipeline.NoLimit, 4), Plan: p}
}

// The plan's time is that of its last message, a gradient leaves as soon as it is made, and a run keeps to it.
func TestReplicasAreAddedUp(t *testing.T) {
	t.Parallel()
	k := threeReplicas()
	r, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
	if err != nil {
		t.Fatal(err)
	}
	if want := []pipeline.Replicated{{Replicas: 3, Parts: 1, Buckets: 2, Behind: 5}}; r.Makespan != 14 || !equal(r.Replicated, want) {
		t.Errorf("makespan %g, %+v", r.Makespan, r.Replicated)
	}
	if o := simulate(t, k, pipeline.Noise{}); o.Makespan != 14 {
		t.Errorf("simulated: %g", o.Makespan)
	}
	timed, err := pipeline.Timed(k.Chain, k.Platform, k.Plan)
	if err != nil || !slices.EqualFunc(timed.Synchronization, k.Plan.Synchronization, sameTime) {
		t.Errorf("timed: %v, %v", timed, err)
	}
	emitted, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := pipeline.Check(k.Chain, k.Platform, emitted); err != nil || r.Makespan != 14 {
		t.Errorf("emitted: %+v, %v", r, err)
	}
	k.Plan.Synchronization = nil
	if r, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil || r.Makespan != 9 || !equal(r.Replicated, []pipeline.Replicated{{Replicas: 3, Parts: 1}}) {
		t.Errorf("without messages: %+v, %v", r, err)
	}
}

func sameTime(a, b pipeline.Synchronization) bool {
	return a.String() == b.String() && near(a.Start, b.Start)
}

// A broken sum is refused for the right reason, which names the message, its field and what to do.
func TestPlantedSums(t *testing.T) {
	t.Parallel()
	message := func(i int, change func(m *pipeline.Synchronization)) func(*pipelinetest.Case) {
		return func(k *pipelinetest.Case) { change(&k.Plan.Synchronization[i]) }
	}
	without := func(i int) func(*pipelinetest.Case) {
		return func(k *pipelinetest.Case) { k.Plan.Synchronization = slices.Delete(k.Plan.Synchronization, i, i+1) }
	}
	for _, x := range []struct {
		rule   pipeline.Rule
		reason string
		change func(*pipelinetest.Case)
	}{
		{pipeline.RuleSynchronization, "no such kind", message(0, func(m *pipeline.Synchronization) { m.Kind = 7 })},
		{pipeline.RuleSynchronization, `synchronization 0, reduce1[3-3] 0-1(2): field "stage" is 1: stages with weights on several devices that work are [0]`, message(0, func(m *pipeline.Synchronization) { m.Stage = 1 })},
		{pipeline.RuleSynchronization, `"first_layer" and "last_layer" are 3 and 4: the stage has layers 1 to 3`, message(0, func(m *pipeline.Synchronization) { m.Last = 4 })},
		{pipeline.RuleSynchronization, "layers 2 to 2 have no weights", message(4, func(m *pipeline.Synchronization) { m.First, m.Last = 2, 2 })},
		{pipeline.RuleSynchronization, `field "shift" is 1: a round of the stage is 3 of them and ends with 2`, message(1, func(m *pipeline.Synchronization) { m.Shift = 1 })},
		{pipeline.RuleSynchronization, "microbatches are 0 to 2", message(1, func(m *pipeline.Synchronization) { m.Shift = 3 })},
		{pipeline.RuleSynchronization, "starts at -1 s, before 0", message(1, func(m *pipeline.Synchronization) { m.Start = -1 })},
		{pipeline.RuleSynchronization, `field "from" is 5: for the stage work devices [0 1 2]`, message(1, func(m *pipeline.Synchronization) { m.From = 5 })},
		{pipeline.RuleSynchronization, `field "to" is 7`, message(1, func(m *pipeline.Synchronization) { m.To = 7 })},
		{pipeline.RuleSynchronization, `"from" and "to" are both 1`, message(1, func(m *pipeline.Synchronization) { m.To = 1 })},
		{pipeline.RuleSynchronization, `field "to" is 2: sums pass devices [0 1 2] in this order`, message(0, func(m *pipeline.Synchronization) { m.To = 2 })},
		{pipeline.RuleSynchronization, "the last of devices [0 1 2] has the sum already", message(3, func(m *pipeline.Synchronization) { m.To, m.From = 2, 0 })},
		{pipeline.RuleSynchronization, "no link joins devices 0 and 1", func(k *pipelinetest.Case) { k.Platform.Pairs = map[[2]int]float64{{0, 1}: 0} }},
		{pipeline.RuleSynchronization, "a second one for microbatch 2, after synchronization 0", message(1, func(m *pipeline.Synchronization) { m.From, m.To = 0, 1 })},
		{pipeline.RuleSynchronization, "layers 3 to 3 are in two buckets that overlap", func(k *pipelinetest.Case) {
			for i := 4; i < 8; i++ {
				k.Plan.Synchronization[i].Last = 3
			}
		}},
		{pipeline.RuleSynchronization, "layer 1 (layer) is in no bucket", func(k *pipelinetest.Case) { k.Plan.Synchronization = k.Plan.Synchronization[:4] }},
		{pipeline.RuleSynchronization, "no reduce of layers 3 to 3 goes from device 1 to device 2: give all messages of all rounds of stages with replicas, or none", without(1)},
		{pipeline.RuleSynchronization, "no gather of layers 3 to 3 goes from a device that has the sum to device 1", without(2)},
		{pipeline.RuleSynchronization, "the sum never comes to device 1, from where it is sent", message(2, func(m *pipeline.Synchronization) { m.From = 0 })},
		{pipeline.RuleDependency, "synchronization 0, reduce0[3-3] 0-1(2) starts at 4 s for microbatch 2: it waits for task 1, B0(0), which has made these gradients at 5 s", message(0, func(m *pipeline.Synchronization) { m.Start = 4 })},
		{pipeline.RuleDependency, "it waits for task 5, B0(2), which ends at 9.5 s", func(k *pipelinetest.Case) {
			k.Plan.Tasks[5].Start = 3.5
			k.Plan.Synchronization[5].Start, k.Plan.Synchronization[1].Start = 9, 7
			k.Plan.Synchronization[4].Start, k.Plan.Synchronization[0].Start = 8, 5
		}},
		{pipeline.RuleDependency, "synchronization 2, gather0[3-3] 2-1(2) starts at 8.5 s for microbatch 2: it waits for synchronization 1, reduce0[3-3] 1-2(2), which ends at 9 s", message(2, func(m *pipeline.Synchronization) { m.Start = 8.5 })},
		{pipeline.RuleDependency, "it waits for synchronization 2, gather0[3-3] 2-1(2), which ends at 11 s", message(3, func(m *pipeline.Synchronization) { m.Start = 10.5 })},
		{pipeline.RuleResource, "link 0-1: synchronization 3, gather0[3-3] 1-0(2) starts at 11 s, before synchronization 4, reduce0[1-2] 0-1(2) ends at 11.5 s", func(k *pipelinetest.Case) {
			for i, start := range map[int]float64{4: 10.5, 5: 11.5, 6: 12.5, 7: 13.5} {
				k.Plan.Synchronization[i].Start = start
			}
		}},
	} {
		k := threeReplicas()
		x.change(&k)
		_, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		var invalid *pipeline.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%q: %v", x.reason, err)
			continue
		}
		if v := invalid.Violations[0]; v.Rule != x.rule || !slices.ContainsFunc(invalid.Violations, func(v pipeline.Violation) bool { return strings.Contains(v.Reason, x.reason) }) {
			t.Errorf("want %s %q, got %s %v", x.rule, x.reason, v.Rule, invalid.Violations)
		}
	}
}

// Gathers may go any way from devices that have the sum: straight from the last one to all.
func TestGathersGoAnyWay(t *testing.T) {
	t.Parallel()
	k := threeReplicas()
	for i := range k.Plan.Synchronization {
		if m := &k.Plan.Synchronization[i]; m.Kind == pipeline.Gather {
			m.From = 2
		}
	}
	if _, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil {
		t.Error(err)
	}
}

// A message that comes before what it waits for on its link blocks it for ever.
func TestDeadlockOfSums(t *testing.T) {
	t.Parallel()
	k := threeReplicas()
	k.Plan.Synchronization[2].Start = 6 // the sum comes back before it has gone
	_, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{})
	var deadlock *pipeline.DeadlockError
	if want := []string{"gather0[3-3] 2-1(2)", "reduce0[3-3] 1-2(2)"}; !errors.As(err, &deadlock) || !equal(deadlock.Cycle, want) {
		t.Errorf("%v, want a cycle of %q", err, want)
	}
}

// A minibatch that starts before the sums of a round have arrived misses the round's update. If the links have no time for the sums, the
// period is stretched. With four replicas, each link carries 8 bytes up and 8 back for every four minibatches.
func TestMissedSynchronization(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		bandwidth, period float64
		missed            [2]int
	}{{pipeline.Free(), 4, [2]int{0, 0}}, {100, 4, [2]int{1, 1}}, {8, 4, [2]int{2, 2}}, {2, 8, [2]int{3, 3}}} {
		k := turns(0)
		k.Chain.Layers[0].WeightBytes, k.Platform.Bandwidth = 8, x.bandwidth
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pipeline.Check(k.Chain, k.Platform, plan)
		if err != nil {
			t.Fatal(err)
		}
		if !near(r.Period, x.period) || !equal(r.Missed, [][2]int{x.missed}) {
			t.Errorf("%g bytes/s: a period of %g s, %v updates missed, behind %+v", x.bandwidth, r.Period, r.Missed, r.Replicated)
		}
	}
}
