package pipeline

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// alone returns a plan whose stages are all on one device, which works through their tasks in the order of the plan.
func alone(plan *pipeline.Plan) *pipeline.Plan {
	one := *plan
	one.Platform, one.Stages, one.Tasks = nil, slices.Clone(plan.Stages), nil
	for s := range one.Stages {
		one.Stages[s].Devices, one.Stages[s].Ops, one.Stages[s].LastOps = []int{0}, nil, nil
	}
	for _, t := range plan.Tasks {
		if !t.Kind.Communication() {
			t.Device = 0
			one.Tasks = append(one.Tasks, t)
		}
	}
	return &one
}

// observed returns the versions that minibatches see when a device's latest weights count: how many minibatches have had
// their last task in the stage before.
func observed(o *order, n int) (forward, backward pipelinetest.Versions) {
	type at struct{ stage, minibatch int }
	entered, returned, done := map[at]int{}, map[at]int{}, map[int]int{}
	for d := range o.turns {
		_ = o.visits(d, n, func(v visit) error {
			switch v.kind {
			case pipeline.F:
				entered[at{v.stage, v.minibatch}] = done[v.stage]
			case pipeline.B:
				returned[at{v.stage, v.minibatch}] = done[v.stage]
			}
			if o.last(v.turn) {
				done[v.stage]++
			}
			return nil
		}, func() error { return nil })
	}
	return func(s, m int) int { return entered[at{s, m}] }, func(s, m int) int { return returned[at{s, m}] }
}

// Every strategy's plan trains models of the zoo with the bits that it must: those of its own tasks on one device when it
// flushes, those of the sequential program of its weight versions when it does not.
func TestEveryStrategyTrainsTheZoo(t *testing.T) {
	slow := os.Getenv("PLIMSOLL_ZOO") != ""
	counts := []int{3}
	if slow {
		counts = []int{2, 4}
	}
	ran, all := 0, zoo(slow)
	for _, z := range all {
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workload(t, m)
		for _, s := range planner.Pipelines() {
			for _, devices := range counts {
				t.Run(fmt.Sprintf("%s/%s/%d", z.name, s.Name, devices), func(t *testing.T) {
					c := costs(w, devices, 4)
					c.Platform = c.Platform.WithMemory(pipeline.NoLimit)
					plan, err := s.Solve(context.Background(), pipeline.Request{Chain: c.Chain, Platform: c.Platform, Options: pipeline.Options{
						Microbatches: 2 * devices, Versions: versionsOf(s),
					}})
					if err != nil {
						t.Skip(err) // no solver, or an odd number of devices
					}
					checkBits(t, m, w, c, plan, func(n int) []executor.Target { return targets(t, n, host.Config{}) })
					ran++
				})
			}
		}
	}
	if ran < 20*len(all) {
		t.Errorf("%d plans ran", ran)
	}
}

// sample is a model of the zoo at a size that trains in moments.
type sample struct {
	name   string
	config models.Config
}

func zoo(slow bool) []sample {
	small := []sample{{"resnet20", models.Config{Batch: 2, Image: 16, Classes: 5}}, {"unet-1-4", models.Config{Batch: 2, Image: 32, Classes: 5}}}
	if !slow {
		return small
	}
	return []sample{
		{"resnet50", models.Config{Batch: 4, Image: 64, Classes: 5}}, {"densenet121", models.Config{Batch: 4, Image: 64, Classes: 5}}, small[1],
	}
}

func versionsOf(s pipeline.Strategy) pipeline.Versions {
	if s.Type == pipeline.Flushing || s.Name == "ampnet" || s.Name == "pipemare" {
		return ""
	}
	return pipeline.Stash
}

// checkBits runs a plan and compares it with what it must equal.
func checkBits(t *testing.T, m *models.Model, w *Workload, c Costs, plan *pipeline.Plan, open func(n int) []executor.Target) {
	t.Helper()
	n := 2 * groupOf(t, w, c, plan)
	if !plan.IsFlush() {
		n = 6 * max(1, n/2)
	}
	e, out := trainedOn(t, open(c.Platform.Devices), w, c, plan, n, Options{})
	out.Tensors = tensors(t, e)
	for _, st := range plan.Stages {
		if len(st.Devices) > 1 {
			return // of replicas only the weights can be compared, where there is no BatchNorm: other tests do
		}
	}
	if plan.IsFlush() {
		single := Costs{Chain: c.Chain, Platform: pipeline.NewPlatform(1, pipeline.NoLimit, 1)}
		one, want := trainedOn(t, open(1), w, single, alone(plan), n, Options{})
		want.Tensors = tensors(t, one)
		same(t, want, out)
		return
	}
	p := pipelinetest.DoubleBuffered(e.Group(), slices.Repeat([]int{1}, len(plan.Stages)))
	if plan.Versions == pipeline.Stash || plan.Versions == pipeline.Latest {
		forward, backward := observed(e.order, n)
		p = pipelinetest.Delayed("observed", forward)
		if plan.Versions == pipeline.Latest {
			p.Backward = backward
		}
	}
	same(t, referenceOn(t, open(1)[0], m, plan, p, n, func(_, u int) float32 { return rate(u) }), out)
}
