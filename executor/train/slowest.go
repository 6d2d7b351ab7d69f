package train

import (
	"cmp"
	"fmt"
	"slices"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/stats"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// SlowTask is a task that takes longer than the plan says, beside what all tasks do: whoever waits for it is late.
type SlowTask struct {
	Device int    `json:"device"`
	Name   string `json:"device_name"`
	Task   string `json:"task"` // kind and stage
	// Planned and Measured are its times, seconds; Measured the median.
	Planned  float64 `json:"planned_s"`
	Measured float64 `json:"measured_s"`
	// Factor is by how much it is slower than the tasks of all devices are in the median, each against the plan.
	Factor float64 `json:"factor"`
}

// slow is the factor from which a task is worth a word: times of one kind differ by less between devices that are alike.
const slow = 1.5

// slowest returns the task that costs most time beyond the middle task's slowdown against the plan; nil when none is slow.
// Communications are none: they end when their receiver is ready.
func slowest(p *JobPlan, ran []pipe.Timing) *SlowTask {
	planned, measured := p.taskCosts(), map[taskOf][]float64{}
	for _, t := range ran {
		if x := (taskOf{t.Device, t.Stage, t.Kind}); planned[x] > 0 {
			measured[x] = append(measured[x], t.End-t.Start)
		}
	}
	var all []*SlowTask
	for x, took := range measured {
		all = append(all, &SlowTask{
			Device: x.device, Task: fmt.Sprintf("%v%d", x.kind, x.stage), Planned: planned[x], Measured: stats.Median(took),
		})
	}
	if len(all) < 2 {
		return nil
	}
	var factors []float64 // by which tasks are slower than the plan says
	for _, t := range all {
		factors = append(factors, t.Measured/t.Planned)
	}
	usual := stats.Median(factors)
	for i, t := range all {
		t.Factor = factors[i] / usual
	}
	worst := slices.MaxFunc(all, func(a, b *SlowTask) int {
		return cmp.Or(cmp.Compare(a.Measured-usual*a.Planned, b.Measured-usual*b.Planned), -cmp.Compare(a.Device, b.Device), -cmp.Compare(a.Task, b.Task))
	})
	if worst.Factor < slow {
		return nil
	}
	return worst
}

// taskOf is a task that computes, of all microbatches of a device.
type taskOf struct {
	device, stage int
	kind          pipeline.Kind
}

// taskCosts returns the times of a plan's tasks by their costs, in seconds: of tasks that share processors the mean of their simulated times.
func (p *JobPlan) taskCosts() map[taskOf]float64 {
	all, count := map[taskOf]float64{}, map[taskOf]float64{}
	spans, err := p.taskSpans()
	if err != nil {
		return nil // it would not have run
	}
	for _, s := range spans {
		if s.Task >= len(p.Tasks) {
			continue // a message between replicas
		}
		if t := p.Tasks[s.Task]; !t.Kind.Communication() {
			x := taskOf{t.Device, t.Stage, t.Kind}
			count[x]++
			all[x] += (s.End - s.Start - all[x]) / count[x]
		}
	}
	return all
}

// taskSpans returns when tasks run: in the plan, or simulated where they share processors.
func (p *JobPlan) taskSpans() ([]pipeline.Span, error) {
	if p.Costs.Platform.OpsAtOnce == 0 {
		return pipeline.Planned(p.Costs.Chain, p.Costs.Platform, p.Plan, 1)
	}
	o, err := p.simulate(p.Costs.Chain)
	if err != nil {
		return nil, err
	}
	return o.Spans, nil
}

// simulate plays the plan with the costs of a chain.
func (p *JobPlan) simulate(c *chain.Chain) (*pipeline.Outcome, error) {
	return pipeline.Simulate(c, p.Costs.Platform, p.Plan, pipeline.Noise{})
}
