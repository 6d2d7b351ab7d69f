package train

import (
	"context"
	"errors"
	"math"

	"plimsoll/planner/pipeline"
)

// PipeFit is what a model's graph alone says about the memory of a pipeline's devices. Stages are cut by times in proportion to the
// bytes that ops touch, as nothing is measured.
type PipeFit struct {
	Strategy      string `json:"strategy"`
	Microbatches  int    `json:"microbatches"`   // of a step; 1: every batch is one
	SmallestBytes int64  `json:"smallest_bytes"` // the smallest limit of each device's arena with a plan; 0: there is none on so many devices
	LargestBatch  int    `json:"largest_batch"`  // within the limit; 0: none fits
}

// FitPipe asks how much memory each device needs with a strategy, and what the largest batch is within a limit. The job's batch is
// divided into its Microbatches, and the platform has its devices. Errors: those of the strategy, the context's.
func (j *Job) FitPipe(ctx context.Context, s pipeline.Strategy, platform *pipeline.Platform, limit int64) (PipeFit, error) {
	parts, start := j.Microbatches, j.Config.Batch
	models := newFitter(j, FitRequest{})
	need := func(batch int) (int64, error) {
		sized := *j
		sized.Config.Batch, sized.Work = batch, models.workload(j.batch(batch))
		if sized.Work == nil { // too large for any memory
			return math.MaxInt64, nil
		}
		return sized.smallestPipe(ctx, s, platform)
	}
	out := PipeFit{Strategy: s.Name, Microbatches: parts}
	var err error
	if out.SmallestBytes, err = need(start); err != nil || out.SmallestBytes == math.MaxInt64 {
		out.SmallestBytes = 0
		return out, err
	}
	out.LargestBatch, err = largestWithin(ctx, limit, start, 1, need)
	out.LargestBatch *= parts
	return out, err
}

// smallestPipe returns the smallest limit of each device; math.MaxInt64 where the strategy has no plan for so many devices.
func (j *Job) smallestPipe(ctx context.Context, s pipeline.Strategy, platform *pipeline.Platform) (int64, error) {
	q := PipeRequest{Strategy: s, Platform: platform, Limit: func(int64) int64 { return 0 }, Portals: true}
	q.Options.Accounting = pipeline.Saved
	if s.Type == pipeline.Flushing {
		q.Options.Microbatches = j.Microbatches
	}
	_, err := j.PlanPipe(ctx, j.Work.Unmeasured(), q)
	if small, ok := errors.AsType[*PipeMemoryError](err); ok {
		return small.Smallest, nil
	}
	if errors.As(err, new(*pipeline.InfeasibleError)) {
		return math.MaxInt64, nil
	}
	return 0, err
}
