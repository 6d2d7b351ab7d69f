package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/devices"
)

// sums is the order in which the stages of a plan with a flush add up the gradients of a step's microbatches: sums of floats
// differ with their order.
type sums string

const (
	noSums     sums = ""           // not the same in all stages, or shared by devices
	ascending  sums = "1f1b-flush" // also the strategy that adds up so on one device
	descending sums = "gpipe"
)

// sumsOf returns the order of a plan. Forwards must be in ascending order in every stage: BatchNorm's running statistics
// follow them.
func sumsOf(p *pipeline.Plan) sums {
	if !p.IsFlush() {
		return noSums
	}
	found, split := noSums, p.Split()
	for s, st := range p.Stages {
		last := pipeline.B
		if split[s] {
			last = pipeline.W
		}
		back := microbatches(p, last, s)
		order := noSums
		switch {
		case len(st.Devices) > 1 || !slices.IsSorted(microbatches(p, pipeline.F, s)):
		case slices.IsSorted(back):
			order = ascending
		case slices.IsSortedFunc(back, func(a, b int) int { return b - a }):
			order = descending
		}
		if order == noSums || s > 0 && order != found {
			return noSums
		}
		found = order
	}
	return found
}

// microbatches lists the microbatches of a stage's tasks of a kind, by their start.
func microbatches(p *pipeline.Plan, kind pipeline.Kind, stage int) (all []int) {
	var tasks []pipeline.Task
	for _, t := range p.Tasks {
		if t.Kind == kind && t.Stage == stage {
			tasks = append(tasks, t)
		}
	}
	slices.SortStableFunc(tasks, func(a, b pipeline.Task) int { return cmp.Compare(a.Start, b.Start) })
	for _, t := range tasks {
		all = append(all, t.Shift)
	}
	return all
}

// left is the result of a run. It has no gradients: between the steps they mean nothing.
func left(x *pipe.Executor) (train.Digests, error) { return train.DigestsOf(x, "gradient") }

// difference names the first tensor that does not hold what it holds on one device, "" when there is none.
func difference(got, want train.Digests, tensors []executor.Tensor) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d tensors, one device has %d", len(got), len(want))
	}
	if t := got.First(want, tensors); t != nil {
		return fmt.Sprintf("%s of %s", t.Role, t.Name)
	}
	return ""
}

// references are the results of runs on one device, made when they are first asked for.
type references struct {
	fleet *Fleet
	from  *Case
	feed  *album
	runs  map[sums]train.Digests
}

func newReferences(f *Fleet, c *Case) (*references, error) {
	feed, err := newAlbum(c.Job)
	return &references{fleet: f, from: c, feed: feed, runs: map[sums]train.Digests{}}, err
}

// compare says whether a row's run left what one device does.
func (k *references) compare(ctx context.Context, row *Row, x *pipe.Executor) error {
	order := sumsOf(row.pipe.Plan)
	if order == noSums {
		return nil
	}
	want, err := k.get(ctx, order)
	if err != nil {
		return fmt.Errorf("%s on one device: %w", order, err)
	}
	got, err := left(x)
	if err != nil {
		return err
	}
	row.Difference = difference(got, want, x.Tensors())
	same := row.Difference == ""
	row.Identical = &same
	return nil
}

// get returns the result of the steps on one device.
func (k *references) get(ctx context.Context, order sums) (found train.Digests, err error) {
	if found, ok := k.runs[order]; ok {
		return found, nil
	}
	j := k.from.Job
	s, err := planner.LookupPipeline(string(order))
	if err != nil {
		return nil, err
	}
	p, err := j.PlanPipe(ctx, k.from.Chain, train.PipeRequest{
		Strategy: s, Platform: pipeline.NewPlatform(1, pipeline.NoLimit, pipeline.Free()),
		Options: pipeline.Options{Microbatches: j.Microbatches, Accounting: pipeline.Saved},
		Limit:   func(int64) int64 { return math.MaxInt64 },
	})
	if err != nil {
		return nil, err
	}
	spec := j.Spec
	if spec.Devices, err = single(spec.Devices); err != nil {
		return nil, err
	}
	err = onDevices(&spec, func(on []executor.Target) error {
		x, err := pipe.New(p.Work, on, p.Costs, p.Plan, k.fleet.options(j, k.feed))
		if err != nil {
			return err
		}
		for range k.fleet.Steps {
			if err := x.Run(ctx, j.Microbatches); err != nil {
				return err
			}
		}
		found, err = left(x)
		return err
	})
	k.runs[order] = found
	return found, err
}

// single names one device of a spec: a whole one where it names parts.
func single(spec string) (string, error) {
	items, err := devices.Parse(spec)
	if err != nil {
		return "", err
	}
	if len(items) == 0 {
		return "", errors.New("BUG: a spec without devices")
	}
	items[0].Parts = 0
	return items[0].String(), nil
}
