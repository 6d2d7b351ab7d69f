package joint

// joint-flush: several copies of a pipeline, each with a share of the microbatches.
//
// A step of m microbatches on P devices runs on r copies of a pipeline of P/r devices, m/r microbatches each. The copies' gradients are
// added up behind the last backwards. Data parallelism is r = P, a pipeline alone r = 1. Each copy runs 1f1b-recompute's plan. The plan's
// stages are chosen for the memory that their microbatches leave, and recompute in it. Either copies or replicas have neighbouring devices,
// whichever ends the step earlier. gpipe-checkpoint is judged beside them, so joint-flush is never slower than gpipe-checkpoint, 1f1b-flush
// or data parallelism.

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/recompute"
)

const flushing = "joint-flush"

// solveFlush returns the fastest plan with a flush, synchronization counted. Errors: *pipeline.InfeasibleError, the context's, and those of
// requests that no schedule with a flush takes.
func solveFlush(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	return fastestFlush(recompute.Share(ctx), flushing, r, flushParts[1], flushParts[2], flushParts[0])
}

// solveCopies returns the fastest plan of several copies of a pipeline. Errors: those of solveFlush.
func solveCopies(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r.Microbatches = cmp.Or(r.Microbatches, 2*r.Platform.Devices)
	var all []pipeline.Strategy
	for copies := 2; copies <= r.Platform.Devices; copies++ {
		for _, places := range layouts(r, copies) {
			all = append(all, pipeline.Strategy{Solve: func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
				return copiedInChunks(ctx, r, places)
			}})
		}
	}
	return fastestFlush(recompute.Share(ctx), flushing, r, all...)
}

// fastestFlush returns the fastest of several plans with a flush, the first of equals, as the plan of the strategy that was asked.
func fastestFlush(ctx context.Context, asked string, r pipeline.Request, of ...pipeline.Strategy) (*pipeline.Plan, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r.Microbatches = cmp.Or(r.Microbatches, 2*r.Platform.Devices)
	best := pick{request: r}
	for _, s := range of {
		if err := best.add(s.Solve(ctx, r)); err != nil {
			return nil, underName(asked, err, s.Name)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if best.plan == nil {
		return nil, best.unfit(asked)
	}
	best.plan.Strategy = asked
	return best.plan, nil
}

// underName returns an error that begins with the name of a part as one that begins with that of the strategy that was asked.
func underName(asked string, err error, part string) error {
	if text, ok := strings.CutPrefix(err.Error(), part+": "); ok {
		return &renamedError{err, asked + ": " + text}
	}
	return err
}

// renamedError is an error of a part under another name.
type renamedError struct {
	error
	text string
}

func (e *renamedError) Error() string { return e.text }
func (e *renamedError) Unwrap() error { return e.error }

// unfit returns the refusal where no plan with a flush fits: that of the first one where none fits in any memory.
func (p *pick) unfit(asked string) error {
	if p.smallest == 0 && p.refusal != nil {
		refusal := *p.refusal
		refusal.Strategy = asked
		return &refusal
	}
	return &pipeline.InfeasibleError{Strategy: asked, Smallest: p.smallest, Found: true,
		Reason: "not even with stages that keep their inputs alone and recompute everything else"}
}

// layouts returns where so many copies of a pipeline may be: for each of its devices those of all copies. None where the devices or the
// microbatches cannot be divided.
func layouts(r pipeline.Request, copies int) (all [][][]int) {
	devices := r.Platform.Devices
	if devices%copies != 0 || r.Microbatches%copies != 0 {
		return nil
	}
	near, far := make([][]int, devices/copies), make([][]int, devices/copies)
	for d := range near {
		for c := range copies {
			near[d], far[d] = append(near[d], d*copies+c), append(far[d], d+c*len(far))
		}
	}
	if all = append(all, near); !r.Platform.Uniform() {
		all = append(all, far)
	}
	return all
}

// whole is a number of chunks: a device of a copy has one stage, and the copy the plan of 1f1b-recompute.
const whole = 0

// copiedInChunks returns the fastest plan of copies of a pipeline. Where gradients are divided, devices with many small stages need less memory for
// them. A stage that recomputes stays whole (pipeline.DivideStages). If one does, or none fits, copies with several chunks are tried. Errors: those
// of copied.
func copiedInChunks(ctx context.Context, r pipeline.Request, places [][]int) (*pipeline.Plan, error) {
	plan, err := copied(ctx, r, places, whole)
	var small *pipeline.InfeasibleError
	if unfit := errors.As(err, &small); r.Zero < pipeline.ZeroGradients || !unfit && (err != nil || !plan.HasOps()) {
		return plan, err
	}
	best := pick{request: r}
	if err := best.add(plan, err); err != nil {
		return nil, err
	}
	for n := 2; n*len(places) < 2*r.Chain.Len(); n *= 2 {
		if err := best.add(copied(ctx, r, places, min(n, r.Chain.Len()/len(places)))); err != nil {
			return nil, err
		}
	}
	if best.plan == nil {
		return nil, best.unfit(flushing)
	}
	return best.plan, nil
}

// copied returns the plan of copies of a pipeline, with so many chunks. The memory that gradients from other copies take, by the judge, is left
// free. If that is too much for the stages, the most that gradients can take is left free. Errors: those of the copy's strategy and of the judge.
func copied(ctx context.Context, r pipeline.Request, places [][]int, chunks int) (*pipeline.Plan, error) {
	var small *pipeline.InfeasibleError
	free := make([]int64, len(places))
	for range tries {
		plan, err := copiedBeside(ctx, r, places, chunks, free)
		if !errors.As(err, &small) {
			return plan, err
		}
		if small.Best == nil || len(small.Best.PerDevicePeak) < r.Platform.Devices {
			break // one copy does not fit
		}
		for d, of := range places {
			more := int64(0)
			for _, x := range of {
				more = max(more, small.Best.PerDevicePeak[x]-r.Platform.Memory[x])
			}
			free[d] += more
		}
	}
	all := sums(r)
	plan, err := copiedBeside(ctx, r, places, chunks, slices.Repeat([]int64{all}, len(places)))
	if errors.As(err, &small) && small.Smallest > 0 {
		small.Smallest += all
	}
	return plan, err
}

// tries bounds how often a plan is made anew in less memory: other stages may need more room than those before.
const tries = 3

// copiedBeside returns the plan of copies of a pipeline whose stages leave so many bytes of each device free.
func copiedBeside(ctx context.Context, r pipeline.Request, places [][]int, chunks int, free []int64) (*pipeline.Plan, error) {
	one, name := alone(r, len(places[0])), "1f1b-recompute"
	if chunks != whole {
		one.Chunks, name = chunks, "interleaved"
	}
	one.Microbatches, one.Platform = r.Microbatches/len(places[0]), worst(r.Platform, places)
	for d := range free {
		one.Platform.Memory[d] = max(one.Platform.Memory[d]-free[d], 0)
	}
	plan, err := named(flush.Strategies(), name)[0].Solve(ctx, one)
	if err != nil {
		return nil, err
	}
	plan.Copies = pipeline.Copies{WeightCopies: r.WeightCopies, Accounting: r.Accounting}
	return pipeline.Finish(flushing, r, copies(plan, r.Microbatches, places))
}

// alone returns a request for one of so many copies. Its weights and gradients take the share that divided ones take.
func alone(r pipeline.Request, copies int) pipeline.Request {
	if divided := float64(r.Zero.DividedCopies()); divided > 0 && len(r.WeightCopies) == 0 {
		r.WeightCopies = []float64{2 - divided + divided/float64(copies)}
	}
	r.Zero = pipeline.ZeroNothing
	return r
}

// sums returns the most bytes of the blocks in which a replica of any stage needs to receive gradients of undivided buckets. Parts of
// divided ones are rounded up to whole bytes, from each device that sends some.
func sums(r pipeline.Request) int64 {
	if r.Platform.NoBuffers {
		return 0
	}
	k, heaviest := pipeline.NewCosts(r.Chain), int64(0)
	for l := 1; l <= k.Len(); l++ {
		heaviest = max(heaviest, k.Summed(l, l))
	}
	most := min(k.Summed(1, k.Len()), 2*heaviest)
	if r.Zero != pipeline.ZeroNothing {
		most += int64(r.Platform.Devices)
	}
	return most
}

// copies returns a plan of so many microbatches on copies of a pipeline.
func copies(plan *pipeline.Plan, microbatches int, places [][]int) *pipeline.Plan {
	out, n := *plan, len(places[0])
	out.Microbatches, out.Stages, out.Tasks = microbatches, slices.Clone(plan.Stages), nil
	for s := range out.Stages {
		out.Stages[s].Devices = places[plan.Stages[s].Devices[0]]
	}
	for _, t := range plan.Tasks {
		for c := range n {
			x := t
			if x.Shift = t.Shift*n + c; t.Device != pipeline.NoDevice {
				x.Device = places[t.Device][c]
			}
			out.Tasks = append(out.Tasks, x)
		}
	}
	return &out
}

// worst returns a platform for one of several copies of a pipeline: its devices have the least memory, its links the least bandwidth of all
// copies.
func worst(p *pipeline.Platform, places [][]int) *pipeline.Platform {
	q := *p
	q.Devices, q.Memory, q.Pairs, q.Levels = len(places), nil, map[[2]int]float64{}, nil
	for d, of := range places {
		least := int64(pipeline.NoLimit)
		for _, x := range of {
			least = min(least, p.Memory[x])
		}
		q.Memory = append(q.Memory, least)
		for e, to := range places[:d] {
			beta := pipeline.Free()
			for c := range of {
				beta = min(beta, p.Beta(of[c], to[c]))
			}
			q.Pairs[[2]int{e, d}] = beta
		}
	}
	return &q
}

// flushParts are the strategies of plans with a flush.
var flushParts = append([]pipeline.Strategy{{Name: flushing, Type: pipeline.Flushing, Solve: solveCopies}}, named(flush.Strategies(), "1f1b-recompute", "gpipe-checkpoint")...)
