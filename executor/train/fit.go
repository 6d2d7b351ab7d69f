package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Fit holds the memory that a model needs by its graph alone: nothing is measured, and no step runs.
type Fit struct {
	Model string `json:"model"`
	Batch int    `json:"batch"`
	models.SampleSize
	Layers      int   `json:"layers"` // with the loss
	Parameters  int64 `json:"parameters"`
	StaticBytes int64 `json:"static_bytes"` // weights, gradients, optimizer state
	LimitBytes  int64 `json:"limit_bytes"`
	// HostBytes counts the page-locked host memory of a step whose plan offloads nothing; HostStateBytes of it are state that lives there.
	HostBytes      int64     `json:"host_bytes"`
	HostStateBytes int64     `json:"host_state_bytes,omitempty"`
	HostLimitBytes int64     `json:"host_limit_bytes,omitempty"` // 0: none is known
	Vocabulary     int       `json:"vocabulary,omitempty"`       // tokens, of a language model
	Helps          []string  `json:"would_help,omitempty"`       // where no kind fits: flags that lower the need
	ImageStep      int       `json:"image_step,omitempty"`       // sizes of images are tried in multiples of it, pixels
	LengthStep     int       `json:"length_step,omitempty"`      // lengths of text are tried in multiples of it, tokens
	StoreAllBytes  int64     `json:"store_all_bytes"`            // the arena of the step that recomputes nothing
	Kinds          []KindFit `json:"kinds"`
}

// KindFit holds the limits of plans of one kind.
type KindFit struct {
	Kind          string `json:"kind"`
	Strategy      string `json:"strategy"`       // that stands for it
	SmallestBytes int64  `json:"smallest_bytes"` // the smallest limit at which it has a plan, as far as it is known
	NeededBy      string `json:"needed_by,omitempty"`
	Fits          bool   `json:"fits"`          // within the limits of the arena and of host memory
	LargestBatch  int    `json:"largest_batch"` // within the limit, at the sample's size; 0: not one sample fits
	// LargestImage, or LargestLength of a language model, is within the limit, at the batch, a multiple of Fit's step; 0: none fits.
	LargestImage  *int `json:"largest_image,omitempty"`
	LargestLength *int `json:"largest_length,omitempty"`
	// Slowdown is the predicted time of a step within the limit over store-all's, where a measured chain is known and it fits.
	Slowdown float64 `json:"slowdown,omitempty"`
}

// FitRequest says what is asked of a fit.
type FitRequest struct {
	Kinds   []strategy.Kind
	Limit   int64 // bytes of the arena
	Host    int64 // bytes of host memory; 0: no limit is known
	Options strategy.Options
	Chain   *chain.Chain // measured, for the slowdown; may be nil
}

// imageSteps are those in which sizes of images are tried: models of large images halve them several times.
var imageSteps = []int{4, 8, 16, 32}

// imageStep returns the first of these of which the multiples next to the job's image, and above, are sizes that the model can have;
// of large images the last.
func (f *fitter) imageStep() int {
	last := len(imageSteps) - 1
	if f.Config.Image >= 128 {
		return imageSteps[last]
	}
	for _, step := range imageSteps[:last] {
		first := firstMultiple(f.Config.Image, step)
		fits := true
		for k := range 5 {
			c := f.Config
			c.Image = (first + k) * step
			_, err := models.New(f.Model, c)
			fits = fits && err == nil
		}
		if fits {
			return step
		}
	}
	return imageSteps[last]
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
		Model: j.Model, Batch: j.Config.Batch, SampleSize: j.SampleSize(), Layers: len(j.Work.Layers), Parameters: j.Work.Model.ParamCount(),
		StaticBytes: j.Work.StaticBytes(), LimitBytes: q.Limit, StoreAllBytes: extent,
		HostBytes: j.Work.LeastHostBytes(), HostStateBytes: j.Work.HostStateBytes(), HostLimitBytes: q.Host,
	}
	step := f.imageStep()
	if j.Tokens() > 0 {
		out.LengthStep, out.Vocabulary = step, j.Config.Classes
	} else {
		out.ImageStep = step
	}
	for _, k := range q.Kinds {
		fit, err := f.kind(ctx, k, step)
		if err != nil {
			return nil, err
		}
		out.Kinds = append(out.Kinds, fit)
	}
	out.Helps = f.helps(out)
	return out, nil
}

// helps returns what lowers the need where no kind fits: flags, those first that do it alone.
func (f *fitter) helps(out *Fit) (flags []string) {
	batch, least := 0, int64(math.MaxInt64)
	for _, k := range out.Kinds {
		if k.Fits {
			return nil
		}
		batch, least = max(batch, k.LargestBatch), min(least, k.SmallestBytes)
	}
	if f.overHost(f.Work) > 1 {
		flags = append(flags, fmt.Sprintf("--host-memory %d", out.HostBytes))
	}
	if least <= f.Limit {
		return flags
	}
	flags = append(flags, fmt.Sprintf("--memory %d", least))
	if batch > 0 {
		flags = append(flags, fmt.Sprintf("--batch %d", batch))
	}
	flags = append(flags, f.offloads()...)
	if out.StaticBytes < f.Limit {
		flags = append(flags, f.smaller()...)
	}
	return append(flags, "several --devices")
}

// offloads returns the --offload-state with which static memory is below the limit; of several the one that moves least.
func (f *fitter) offloads() []string {
	for _, mode := range []executor.Offloading{executor.OffloadOptimizer, executor.OffloadWeights} {
		if f.Offload != executor.OffloadNothing {
			break
		}
		if w, err := f.Work.Offload(mode); err == nil && w.StaticBytes() < f.Limit {
			return []string{"--offload-state " + mode.String()}
		}
	}
	return nil
}

// smaller returns what makes activations smaller.
func (f *fitter) smaller() (flags []string) {
	if f.Config.DType == kernels.Float32 {
		flags = append(flags, "--dtype bf16")
	}
	if f.Tokens() > 0 {
		return append(flags, "a smaller --length")
	}
	return append(flags, "a smaller --image")
}

// overHost returns how many times the host memory that there is a step needs whose plan offloads nothing.
func (f *fitter) overHost(w *executor.Workload) float64 {
	if f.Host == 0 {
		return 0
	}
	return float64(w.LeastHostBytes()) / float64(f.Host)
}

// LargestBatch returns the largest batch with which a kind has a plan within the limit, 0 if there is none.
func (j *Job) LargestBatch(ctx context.Context, q FitRequest, k strategy.Kind) (int, error) {
	return newFitter(j, q).largest(ctx, k, j.batches())
}

// Smallest returns the smallest limit of a kind at which its layout fits, too.
func (j *Job) Smallest(ctx context.Context, k strategy.Kind) (int64, error) {
	bytes, _, err := newFitter(j, FitRequest{}).smallest(ctx, j.Work, k)
	return bytes, err
}

// batch is the size with so many images.
func (j *Job) batch(n int) size { return size{n, j.Config.Image} }

// batches are the sizes of all batches.
func (j *Job) batches() dimension { return dimension{"batch", j.Config.Batch, 1, j.batch} }

// fitter answers a request.
type fitter struct {
	*Job
	FitRequest
	sized map[size]*executor.Workload // nil where the model cannot be of that size
	most  map[[2]string]int           // by summary of a strategy and dimension, what is largest
}

func newFitter(j *Job, q FitRequest) *fitter {
	return &fitter{Job: j, FitRequest: q, sized: map[size]*executor.Workload{}, most: map[[2]string]int{}}
}

// size is what of a model is varied.
type size struct{ batch, image int }

// dimension is a way to vary it: by a number, which is start of the job, and in proportion to a power of which bytes grow.
type dimension struct {
	name  string
	start int
	power float64
	at    func(n int) size
}

func (f *fitter) kind(ctx context.Context, k strategy.Kind, step int) (fit KindFit, err error) {
	fit = KindFit{Kind: k.Name, Strategy: k.Strategies[0].Name}
	if fit.SmallestBytes, fit.NeededBy, err = f.smallest(ctx, f.Work, k); err != nil {
		return fit, err
	}
	fit.Fits = fit.SmallestBytes <= f.Limit && f.overHost(f.Work) <= 1
	if fit.LargestBatch, err = f.largest(ctx, k, f.batches()); err != nil {
		return fit, err
	}
	byImage := func(n int) size { return size{f.Config.Batch, n * step} }
	steps, err := f.largest(ctx, k, dimension{"image", firstMultiple(f.Config.Image, step), 2, byImage})
	if err != nil {
		return fit, err
	}
	if largest := steps * step; f.Tokens() > 0 {
		fit.LargestLength = &largest
	} else {
		fit.LargestImage = &largest
	}
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
	p, err := executor.Plan(ctx, f.Work, f.Chain, k.Fastest, f.Limit, f.Options)
	if errors.As(err, new(*executor.TooSmallError)) || errors.As(err, new(*schedule.HostMemoryError)) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	all, err := schedule.Simulate(f.Chain, f.Work.StoreAll(), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return 0, err
	}
	update := executor.UpdateSeconds(f.Chain)
	return (p.Predicted.Makespan + update) / (all.Makespan + update), nil
}

// largestOf bounds batches and steps of images.
const largestOf = 1 << 24

// largest returns the largest n at whose size a strategy of a kind has a plan within the limit, 0 if there is none.
func (f *fitter) largest(ctx context.Context, k strategy.Kind, d dimension) (most int, err error) {
	for _, s := range k.Strategies {
		key := [2]string{s.Summary, d.name}
		n, known := f.most[key]
		if !known {
			if n, err = f.largestBy(ctx, s, d); err != nil {
				return 0, err
			}
			f.most[key] = n
		}
		most = max(most, n)
	}
	return most, nil
}

// roughly is one part of the largest, to which it is found where chains are longer than planner.ExactLayers and plans take long to make.
const roughly = 50

// largestBy is largest of one strategy: it begins where sums of bytes say, and goes down, by as much as the plan at a size is too large
// and in steps that double, until a layout fits as well.
func (f *fitter) largestBy(ctx context.Context, s pipeline.Strategy, d dimension) (int, error) {
	n, err := f.largestSum(ctx, planner.KindOf(s), d)
	over := func(n int) (times float64) {
		if w := f.workload(d.at(n)); w != nil && err == nil {
			times, err = f.over(ctx, w, s)
			return times
		}
		return 1 + 1e-9 // no such size
	}
	high := n + 1 // does not fit
	for step := 1; n > 0 && err == nil; step *= 2 {
		times := over(n)
		if times <= 1 {
			break
		}
		high, n = n, max(min(n-step, int(float64(n)*math.Pow(times, -1/d.power))), 0)
	}
	exact := 1
	if len(f.Work.Layers) > planner.ExactLayers {
		exact = max(n/roughly, 1)
	}
	steps := (high - n - 1) / exact
	return n + exact*sort.Search(steps, func(i int) bool { return over(n+exact*(1+i)) > 1 }), err
}

// over returns how many times the memory that there is a strategy needs, of the device or of the host; 1 where it has a plan.
func (f *fitter) over(ctx context.Context, w *executor.Workload, s pipeline.Strategy) (float64, error) {
	if times := f.overHost(w); times > 1 {
		return times, nil
	}
	_, err := executor.Plan(ctx, w, w.Unmeasured(), s, f.Limit, f.Options)
	if small, ok := errors.AsType[*executor.TooSmallError](err); ok {
		return float64(small.Smallest) / float64(f.Limit), nil
	}
	if small, ok := errors.AsType[*schedule.HostMemoryError](err); ok {
		return float64(small.Needed) / float64(small.Limit), nil
	}
	return 1, err
}

// largestSum is largest by sums of bytes.
func (f *fitter) largestSum(ctx context.Context, k strategy.Kind, d dimension) (int, error) {
	return largestWithin(ctx, f.Limit, d.start, d.power, func(n int) (int64, error) {
		w := f.workload(d.at(n))
		if w == nil { // too small for the model's layers, or too large for any memory
			return map[bool]int64{true: 0, false: math.MaxInt64}[n < d.start], nil
		}
		return f.sum(w, k)
	})
}

// largestWithin returns the largest n that needs at most limit bytes, 0 if there is none. Needs grow nearly in proportion to a power of
// n: each guess is on the line through two sizes, but between one that fits and one that does not every third halves what is left.
func largestWithin(ctx context.Context, limit int64, start int, power float64, need func(n int) (int64, error)) (int, error) {
	low, high := bracket{}, bracket{n: start}
	for tried := 0; high.bytes == 0 || high.n-low.n > 1; tried++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n := high.n
		switch {
		case high.bytes == 0: // not tried yet
		case high.bytes == math.MaxInt64 || tried%3 == 2:
			n = (low.n + high.n) / 2
		default:
			n = min(low.towards(high, limit, power), high.n-1)
		}
		bytes, err := need(n)
		if err != nil || bytes <= limit && n >= largestOf {
			return n, err
		}
		here := bracket{n, bytes}
		switch {
		case bytes > limit:
			high = here
		case high.bytes == 0:
			low, high = here, bracket{n: min(max(low.towards(here, limit, power), n+1<<tried), largestOf)}
		default:
			low = here
		}
	}
	return low.n, nil
}

// bracket is an end of a search.
type bracket struct {
	n     int
	bytes int64
}

// towards guesses, by two sizes, where bytes are reached; above the smaller one.
func (b bracket) towards(high bracket, bytes int64, power float64) int {
	share := float64(bytes-b.bytes) / float64(max(high.bytes-b.bytes, 1))
	from, to := math.Pow(float64(b.n), power), math.Pow(float64(high.n), power)
	return max(int(min(math.Pow(from+share*(to-from), 1/power), largestOf)), b.n+1)
}

// workload returns the model of another size; nil where there is none.
func (f *fitter) workload(s size) *executor.Workload {
	if w, known := f.sized[s]; known {
		return w
	}
	j := *f.Job
	j.unsplit = j.Microbatches == 0
	j.Config.Batch, j.Config.Image = s.batch, s.image
	if j.compile() != nil {
		j.Work = nil
	}
	f.sized[s] = j.Work
	return j.Work
}
