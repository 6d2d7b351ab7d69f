package pipeline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// alone returns a plan whose stages are all on one device, which works through their tasks in the order of the plan.
func alone(plan *pipeline.Plan) *pipeline.Plan {
	one := *plan
	one.Platform, one.Stages, one.Tasks, one.Synchronization = nil, slices.Clone(plan.Stages), nil, nil
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
func observed(o *order.Order, n int) (forward, backward pipelinetest.Versions) {
	type at struct{ stage, minibatch int }
	entered, returned, done := map[at]int{}, map[at]int{}, map[int]int{}
	for d := range o.Instructions {
		_ = o.Instances(d, n, func(v order.Instance) error {
			switch v.Kind {
			case pipeline.F:
				entered[at{v.Stage, v.Minibatch}] = done[v.Stage]
			case pipeline.B:
				returned[at{v.Stage, v.Minibatch}] = done[v.Stage]
			}
			if o.Last(v.Instruction) {
				done[v.Stage]++
			}
			return nil
		})
	}
	return func(s, m int) int { return entered[at{s, m}] }, func(s, m int) int { return returned[at{s, m}] }
}

// sample is a model of the zoo at a size that trains in moments. In asynchronous training every BatchNorm needs a few values of
// each channel, or the gradients grow beyond all numbers.
type sample struct {
	name   string
	config models.Config
}

var (
	smallUNet = sample{"unet-1-4", models.Config{Batch: 2, Image: 32, Classes: 5}}
	quickZoo  = []sample{{"resnet20", models.Config{Batch: 2, Image: 16, Classes: 5}}, smallUNet}
)

// bed is where a zoo is trained.
type bed struct {
	compiling kernels.Library
	open      func(t testing.TB, n int) []executor.Target
}

// Every strategy's plan trains models of the zoo with the bits that it must. With a flush, a plan has the bits of its own tasks on one
// device. Without a flush, a plan has the bits of the sequential program of its weight versions.
// Only this test finds a new strategy with plans that train other bits than one device or the sequential program.
func TestEveryStrategyTrainsTheZoo(t *testing.T) {
	t.Parallel()
	on := bed{targets(t, 1, host.Config{})[0].Library, func(t testing.TB, n int) []executor.Target { return targets(t, n, host.Config{}) }}
	if os.Getenv("PLIMSOLL_ZOO") == "" {
		on.train(t, quickZoo, []int{3})
		return
	}
	on.train(t, []sample{
		smallUNet, {"densenet121", models.Config{Batch: 4, Image: 64, Classes: 5}}, {"resnet50", models.Config{Batch: 4, Image: 64, Classes: 5}},
	}, []int{2, 4})
}

// comparison is a row of the table of what was compared.
type comparison struct {
	model, strategy              string
	devices, stages, minibatches int
	with                         string // what the plan's bits must equal; or why there is nothing to compare
	equal                        bool
}

func (c *comparison) String() string {
	equal := map[bool]string{true: "yes", false: "-"}[c.equal]
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %s | %s |", c.model, c.strategy, c.devices, c.stages, c.minibatches, c.with, equal)
}

// train trains every model along the plan of every strategy for every number of devices, and ends with a table of what was
// compared.
func (b bed) train(t *testing.T, zoo []sample, counts []int) {
	table := []string{"", "| model | strategy | devices | stages | minibatches | compared with | equal |", "|---|---|---:|---:|---:|---|---|"}
	compared := 0
	for _, devices := range counts {
		for _, z := range zoo {
			m, err := models.New(z.name, z.config)
			must(t, err)
			w, err := Compile(m, b.compiling, optimizer)
			must(t, err)
			for _, s := range planner.Pipelines() {
				row := &comparison{model: z.name, strategy: s.Name, devices: devices}
				t.Run(fmt.Sprintf("%s/%s/%d", z.name, s.Name, devices), func(t *testing.T) {
					defer func() {
						t.Log(row)
						table = append(table, row.String())
					}()
					c := costs(w, devices, 4)
					c.Platform = c.Platform.WithMemory(pipeline.NoLimit)
					plan, err := planOf(s, c)
					if err != nil {
						row.with = "no plan: " + err.Error()
						t.Skip(err) // no solver, or too few layers
					}
					b.check(t, m, w, c, plan, row)
					row.equal = true
					compared++
				})
			}
		}
	}
	t.Log(strings.Join(table, "\n"))
	if few := 17 * len(zoo) * len(counts); compared < few && !selected() {
		t.Errorf("%d plans were compared, want %d", compared, few)
	}
}

// selected says whether -run chooses among subtests.
func selected() bool { return strings.Contains(flag.Lookup("test.run").Value.String(), "/") }

// planOf returns a strategy's plan with as few microbatches as it takes. Of replicas only the double buffered weights are known.
func planOf(s pipeline.Strategy, c Costs) (*pipeline.Plan, error) {
	o := pipeline.Options{Microbatches: c.Platform.Devices, Versions: versionsOf(s), TimeLimit: 10 * time.Second}
	solve := func() (*pipeline.Plan, error) {
		plan, err := s.Solve(context.Background(), pipeline.Request{Chain: c.Chain, Platform: c.Platform, Options: o})
		if late := (*pipeline.UnfinishedError)(nil); errors.As(err, &late) && late.Best != nil {
			return late.Best, nil
		}
		return plan, err
	}
	plan, err := solve()
	if err != nil {
		o.Microbatches *= 2
		plan, err = solve()
	}
	if err == nil && replicates(plan) && !plan.IsFlush() {
		o.Versions = pipeline.DoubleBuffered
		return solve()
	}
	return plan, err
}

func replicates(plan *pipeline.Plan) bool {
	return slices.ContainsFunc(plan.Stages, func(s pipeline.Stage) bool { return len(s.Devices) > 1 })
}

func versionsOf(s pipeline.Strategy) pipeline.Versions {
	if s.Type == pipeline.Flushing || s.Name == "ampnet" || s.Name == "pipemare" {
		return ""
	}
	return pipeline.Stash
}

// check runs a plan and compares it with what it must equal.
func (b bed) check(t *testing.T, m *models.Model, w *Workload, c Costs, plan *pipeline.Plan, row *comparison) {
	t.Helper()
	group := groupOf(t, w, c, plan)
	n := 2 * group
	if !plan.IsFlush() {
		n = group * max(4, (c.Platform.Devices+1+group)/group) // until the pipeline is full, and some more
	}
	row.stages, row.minibatches = len(plan.Stages), n
	at := rate
	if plan.Versions == pipeline.Latest {
		at = gently
	}
	e, out := trainedOn(t, b.open(t, c.Platform.Devices), w, c, plan, n, Options{Rate: at})
	out.Tensors = tensors(t, e)
	if plan.IsFlush() && !replicates(plan) {
		row.with = "the same tasks on one device"
		single := Costs{Chain: c.Chain, Platform: pipeline.NewPlatform(1, pipeline.NoLimit, 1)}
		one, want := trainedOn(t, b.open(t, 1), w, single, alone(plan), n, Options{})
		want.Tensors = tensors(t, one)
		same(t, want, out)
		return
	}
	p := truth(e, plan, n)
	row.with = "sequential program: " + p.Name
	want := referenceOn(t, b.open(t, 1)[0], m, plan, p, n, p.Rate(at))
	if replicates(plan) {
		row.with += " of replicas, without buffers" // which are the first replica's
		want, out = withoutBuffers(want), withoutBuffers(out)
	}
	same(t, want, out)
}

// gently is the learning rate for latest weights: a backward whose weights are far from those of its forward, behind BatchNorms of
// few values, grows beyond all numbers.
func gently(update int) float32 { return rate(update) / 100 }

// truth returns the sequential program of a plan.
func truth(e *Executor, plan *pipeline.Plan, n int) (p pipelinetest.Program) {
	switch plan.Versions {
	case pipeline.Flush:
		p = pipelinetest.Flush(e.Group())
	case pipeline.DoubleBuffered:
		p = pipelinetest.DoubleBuffered(e.Group(), slices.Repeat([]int{1}, len(plan.Stages)))
	default:
		forward, backward := observed(e.order, n)
		p = pipelinetest.Delayed(string(plan.Versions), forward)
		if plan.Versions == pipeline.Latest {
			p.Backward = backward
		}
	}
	if replicates(plan) {
		p.Replica = replicas(e, plan)
	}
	return p
}

// withoutBuffers returns an outcome without BatchNorm's running statistics.
func withoutBuffers(o *pipelinetest.Outcome) *pipelinetest.Outcome {
	some := *o
	some.Tensors = slices.DeleteFunc(slices.Clone(o.Tensors), func(x pipelinetest.Tensor) bool { return x.Role == "buffer" })
	return &some
}
