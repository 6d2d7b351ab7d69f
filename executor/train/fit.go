package train

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sort"

	"plimsoll/executor"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Fit is what a model's graph alone says about memory: nothing is measured, and no step runs.
type Fit struct {
	Model         string    `json:"model"`
	Batch         int       `json:"batch"`
	Image         int       `json:"image"`
	Layers        int       `json:"layers"` // with the loss
	Parameters    int64     `json:"parameters"`
	StaticBytes   int64     `json:"static_bytes"` // weights, gradients, optimizer state
	LimitBytes    int64     `json:"limit_bytes"`
	ImageStep     int       `json:"image_step"`      // images are tried in multiples of it, pixels
	StoreAllBytes int64     `json:"store_all_bytes"` // the arena of the step that recomputes nothing
	Kinds         []KindFit `json:"kinds"`
}

// KindFit is what plans of one kind can do.
type KindFit struct {
	Kind          string `json:"kind"`
	Strategy      string `json:"strategy"`       // that stands for it
	SmallestBytes int64  `json:"smallest_bytes"` // the smallest limit at which it has a plan, as far as it is known
	NeededBy      string `json:"needed_by,omitempty"`
	LargestBatch  int    `json:"largest_batch"` // within the limit, at the image's size; 0: not one image fits
	LargestImage  int    `json:"largest_image"` // within the limit, at the batch, a multiple of Fit.ImageStep; 0: none fits
	// Slowdown is the predicted time of a step within the limit over store-all's, where a measured chain is known and it fits.
	Slowdown float64 `json:"slowdown,omitempty"`
}

// FitRequest says what is asked of a fit.
type FitRequest struct {
	Kinds   []strategy.Kind
	Limit   int64 // bytes of the arena
	Options strategy.Options
	Chain   *chain.Chain // measured, for the slowdown; may be nil
}

// imageSteps are those in which sizes of images are tried: models of large images halve them several times.
var imageSteps = []int{4, 8, 16, 32}

// imageStep returns the first of these of which the multiples next to the job's image, and above, are sizes that the model can have.
func (f *fitter) imageStep() int {
	steps := imageSteps
	if f.Config.Image >= 128 {
		steps = steps[len(steps)-1:]
	}
	for _, step := range steps {
		first := firstMultiple(f.Config.Image, step)
		fits := true
		for k := range 5 {
			fits = fits && f.workload(size{f.Config.Batch, (first + k) * step}) != nil
		}
		if fits {
			return step
		}
	}
	return steps[len(steps)-1]
}

// firstMultiple returns the smallest n of which n steps are not below an image.
func firstMultiple(image, step int) int { return (image + step - 1) / step }

// Fit asks how much memory the job's model needs with each kind of plan, and what the largest batch and image are within a limit.
// Errors: those of compiling the model, the context's.
func (j *Job) Fit(ctx context.Context, q FitRequest) (*Fit, error) {
	f := newFitter(j, q)
	extent, err := j.StoreAllExtent()
	if err != nil {
		return nil, err
	}
	out := &Fit{
		Model: j.Model, Batch: j.Config.Batch, Image: j.Config.Image, Layers: len(j.Work.Layers), Parameters: j.Work.Model.ParamCount(),
		StaticBytes: j.Work.StaticBytes(), LimitBytes: q.Limit, StoreAllBytes: extent,
		ImageStep: f.imageStep(),
	}
	for _, k := range q.Kinds {
		fit, err := f.kind(ctx, k)
		if err != nil {
			return nil, err
		}
		out.Kinds = append(out.Kinds, fit)
	}
	return out, nil
}

// LargestBatch returns the largest batch with which a kind has a plan within the limit, 0 if there is none.
func (j *Job) LargestBatch(ctx context.Context, q FitRequest, k strategy.Kind) (int, error) {
	return newFitter(j, q).largest(ctx, k, j.Config.Batch, j.batch)
}

// Smallest returns the smallest limit of a kind at which its layout fits, too.
func (j *Job) Smallest(ctx context.Context, k strategy.Kind) (int64, error) {
	bytes, _, err := newFitter(j, FitRequest{}).smallest(ctx, j.Work, k)
	return bytes, err
}

// batch is the size with so many images.
func (j *Job) batch(n int) size { return size{n, j.Config.Image} }

// fitter answers a request.
type fitter struct {
	*Job
	FitRequest
	sized map[size]*executor.Workload // nil where the model cannot be of that size
}

func newFitter(j *Job, q FitRequest) *fitter {
	return &fitter{Job: j, FitRequest: q, sized: map[size]*executor.Workload{}}
}

// size is what of a model is varied.
type size struct{ batch, image int }

func (f *fitter) kind(ctx context.Context, k strategy.Kind) (fit KindFit, err error) {
	fit = KindFit{Kind: k.Name, Strategy: k.Strategies[0].Name}
	if fit.SmallestBytes, fit.NeededBy, err = f.smallest(ctx, f.Work, k); err != nil {
		return fit, err
	}
	step := f.imageStep()
	byImage := func(n int) size { return size{f.Config.Batch, n * step} }
	if fit.LargestBatch, err = f.largest(ctx, k, f.Config.Batch, f.batch); err != nil {
		return fit, err
	}
	steps, err := f.largest(ctx, k, firstMultiple(f.Config.Image, step), byImage)
	if err != nil {
		return fit, err
	}
	fit.LargestImage = steps * step
	fit.Slowdown, err = f.slowdown(ctx, k)
	return fit, err
}

// smallest returns the smallest limit of a kind at which its layout fits, too, and which op needs it.
func (f *fitter) smallest(ctx context.Context, w *executor.Workload, k strategy.Kind) (int64, string, error) {
	bytes, err := f.sum(w, k)
	if err != nil {
		return 0, "", err
	}
	free := f.Options
	free.HostMemory = 0 // is another question
	least := &executor.TooSmallError{Smallest: math.MaxInt64}
	for _, s := range k.Strategies {
		_, err := executor.Plan(ctx, w, w.Unmeasured(), s, bytes, free)
		small := (*executor.TooSmallError)(nil)
		if !errors.As(err, &small) {
			return bytes, "", err
		}
		if small.Smallest < least.Smallest {
			least = small
		}
	}
	return least.Smallest, least.LayerName, nil
}

// sum returns the smallest limit of a kind by the sum of what is alive at once: no layout needs less.
func (f *fitter) sum(w *executor.Workload, k strategy.Kind) (int64, error) {
	bytes, err := k.Smallest(w.Chain())
	return bytes + w.StaticBytes(), err
}

// slowdown returns the predicted time of a step of a kind within the limit over store-all's; 0 where that is not known.
func (f *fitter) slowdown(ctx context.Context, k strategy.Kind) (float64, error) {
	if f.Chain == nil {
		return 0, nil
	}
	p, err := f.plan(ctx, f.Work, f.Chain, k.Fastest)
	if p == nil {
		return 0, err
	}
	all, err := schedule.Simulate(f.Chain, f.Work.StoreAll(), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return 0, err
	}
	update := executor.UpdateSeconds(f.Chain)
	return (p.Predicted.Makespan + update) / (all.Makespan + update), nil
}

// plan returns the first plan of some strategies that fits in the limit and in host memory; nil when none does.
func (f *fitter) plan(ctx context.Context, w *executor.Workload, c *chain.Chain, by ...strategy.Strategy) (*schedule.Plan, error) {
	for _, s := range by {
		p, err := executor.Plan(ctx, w, c, s, f.Limit, f.Options)
		if err == nil {
			return p, nil
		}
		if !errors.As(err, new(*executor.TooSmallError)) && !errors.As(err, new(*schedule.HostMemoryError)) {
			return nil, err
		}
	}
	return nil, nil
}

// largestOf bounds batches and steps of images.
const largestOf = 1 << 24

// largest returns the largest n at whose size a kind has a plan within the limit, 0 if there is none: it begins where sums of bytes
// say, and goes down, in steps that double, until a layout fits as well.
func (f *fitter) largest(ctx context.Context, k strategy.Kind, start int, at func(n int) size) (int, error) {
	n, err := f.largestSum(ctx, k, start, at)
	planned := func(n int) bool {
		w := f.workload(at(n))
		if w == nil || err != nil {
			return false
		}
		p, failure := f.plan(ctx, w, w.Unmeasured(), k.Strategies...)
		err = cmp.Or(err, failure)
		return p != nil
	}
	high := n + 1 // does not fit
	for step := 1; n > 0 && !planned(n) && err == nil; step *= 2 {
		high, n = n, max(n-step, 0)
	}
	return n + sort.Search(high-n-1, func(i int) bool { return !planned(n + 1 + i) }), err
}

// largestSum is largest by sums of bytes.
func (f *fitter) largestSum(ctx context.Context, k strategy.Kind, start int, at func(n int) size) (int, error) {
	return largestWithin(ctx, f.Limit, start, func(n int) (int64, error) {
		w := f.workload(at(n))
		if w == nil { // too small for the model's layers, or too large for any memory
			return map[bool]int64{true: 0, false: math.MaxInt64}[n < start], nil
		}
		return f.sum(w, k)
	})
}

// largestWithin returns the largest n that needs at most limit bytes, 0 if there is none. Needs grow nearly in proportion, so that most
// guesses between a size that fits and one that does not are close; every other one halves what is left.
func largestWithin(ctx context.Context, limit int64, start int, need func(n int) (int64, error)) (int, error) {
	low, high := bracket{}, bracket{n: start}
	for high.bytes <= limit {
		var err error
		if high.bytes, err = need(high.n); err != nil || high.n >= largestOf {
			return low.n, err
		}
		if high.bytes <= limit {
			low, high.n = high, 2*high.n
		}
	}
	for guess := true; high.n-low.n > 1; guess = !guess {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n := (low.n + high.n) / 2
		if guess {
			n = low.towards(high, limit)
		}
		bytes, err := need(n)
		if err != nil {
			return 0, err
		}
		if bytes <= limit {
			low = bracket{n, bytes}
		} else {
			high = bracket{n, bytes}
		}
	}
	return low.n, nil
}

// bracket is an end of a search.
type bracket struct {
	n     int
	bytes int64
}

// towards guesses between two ends where bytes are reached.
func (b bracket) towards(high bracket, bytes int64) int {
	share := float64(bytes-b.bytes) / float64(high.bytes-b.bytes)
	return min(max(b.n+int(share*float64(high.n-b.n)), b.n+1), high.n-1)
}

// workload returns the model of another size; nil where there is none.
func (f *fitter) workload(s size) *executor.Workload {
	if w, known := f.sized[s]; known {
		return w
	}
	j := *f.Job
	j.Config.Batch, j.Config.Image = s.batch, s.image
	if j.compile() != nil {
		j.Work = nil
	}
	f.sized[s] = j.Work
	return j.Work
}
