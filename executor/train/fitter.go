package train

import (
	"context"
	"errors"
	"math"
	"sort"

	"plimsoll/executor"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// KindFit holds the limits of plans of one kind.
type KindFit struct {
	Kind         string `json:"kind"`
	Strategy     string `json:"strategy"`               // that stands for it
	Microbatches int    `json:"microbatches,omitempty"` // of a step on several devices; 1: every batch is one
	// SmallestBytes is the smallest limit of a device at which the kind has a plan, as far as it is known; 0: it has none on so many devices.
	SmallestBytes int64  `json:"smallest_bytes"`
	HostBytes     int64  `json:"host_bytes,omitempty"` // page-locked host memory at that limit, of plans that move weights and state
	NeededBy      string `json:"needed_by,omitempty"`
	Fits          bool   `json:"fits"`          // within the limits of the arena and of host memory
	LargestBatch  int    `json:"largest_batch"` // within the limit, at the sample's size; 0: not one sample fits
	// LargestImage, or LargestLength of a language model, is within the limit of one device, at the batch, a multiple of Fit's step; 0: none
	// fits.
	LargestImage  *int `json:"largest_image,omitempty"`
	LargestLength *int `json:"largest_length,omitempty"`
	// Slowdown is the predicted time of a step within the limit over store-all's, where a measured chain is known and it fits.
	Slowdown float64 `json:"slowdown,omitempty"`
}

// FitRequest says what is asked of a fit.
type FitRequest struct {
	// Devices is their number. Where it is above 1 the job has Microbatches, and each of the Kinds has a single strategy for several devices.
	// Stages are cut by times in proportion to the bytes that ops touch.
	Devices int
	Kinds   []strategy.Kind
	Limit   int64 // bytes of each device's arena
	Host    int64 // bytes of host memory; 0: no limit is known
	Options strategy.Options
	Chain   *chain.Chain // measured, for the slowdown; may be nil
}

// fitter answers a request.
type fitter struct {
	*Job
	FitRequest
	sized map[size]*Job     // nil where the model cannot be of that size
	most  map[[2]string]int // by summary of a strategy and dimension, what is largest
	whole *fitter           // of the job whose batches are not divided, compiled as pipelines are; nil until it is asked
	hosts []bool            // by layer from 0: the host can update it; nil until it is asked
}

func newFitter(j *Job, q FitRequest) *fitter {
	return &fitter{Job: j, FitRequest: q, sized: map[size]*Job{}, most: map[[2]string]int{}}
}

// by returns the fitter of the job whose batches are divided as a kind's strategies do: on several devices those without a flush divide
// none. Plans that move weights and state run as a pipeline of one device.
func (f *fitter) by(k strategy.Kind) (*fitter, error) {
	if by := k.Strategies[0].Type; by != pipeline.Cyclic && (f.Devices <= 1 || by == pipeline.Flushing) || f.Microbatches == 1 {
		return f, nil
	}
	if f.whole == nil {
		j := *f.Job
		j.Microbatches, j.Config.Batch = 1, f.Images()
		if err := j.compile(); err != nil {
			return nil, err
		}
		f.whole = newFitter(&j, f.FitRequest)
	}
	return f.whole, nil
}

// size holds the sizes of a model that are varied.
type size struct{ batch, image int }

// dimension is a way to vary it: by a number, which is start of the job, and in proportion to a power of which bytes grow.
type dimension struct {
	name  string
	start int
	power float64
	at    func(n int) size
}

// firstMultiple returns the smallest n of which n steps are not below an image.
func firstMultiple(image, step int) int { return (image + step - 1) / step }

// overHost returns how many times the host memory that there is a step needs whose plan offloads nothing.
func (f *fitter) overHost(w *executor.Workload) float64 {
	if f.Host == 0 {
		return 0
	}
	return float64(w.LeastHostBytes()) / float64(f.Host)
}

// batches are the sizes of all batches.
func (f *fitter) batches() dimension {
	return dimension{"batch", f.Config.Batch, 1, func(n int) size { return size{n, f.Config.Image} }}
}

// images are the sizes of all images, or of all texts, in steps.
func (f *fitter) images(step int) dimension {
	return dimension{"image", firstMultiple(f.Config.Image, step), 2, func(n int) size { return size{f.Config.Batch, n * step} }}
}

// setLargest tells a fit the largest image, or length of text.
func (f *fitter) setLargest(fit *KindFit, largest int) {
	if f.SampleSize().Length > 0 {
		fit.LargestLength = &largest
	} else {
		fit.LargestImage = &largest
	}
}

// smallest returns the smallest limit of a kind at which its layout fits, too, and which op needs it; math.MaxInt64 where it has no plan.
func (f *fitter) smallest(ctx context.Context, j *Job, k strategy.Kind) (int64, string, error) {
	bytes, err := f.sum(ctx, j, k)
	if err != nil || f.Devices > 1 {
		return bytes, "", err
	}
	free := f.Options
	free.HostMemory = 0 // is another question
	least := &executor.TooSmallError{Smallest: math.MaxInt64}
	for _, s := range k.Strategies {
		_, err := executor.Plan(ctx, j.Work, j.Work.Unmeasured(), s, bytes, free)
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

// sum returns the smallest limit of a kind by the sum of what is alive at once: no layout needs less. On several devices it is that of
// layouts; math.MaxInt64 where the kind has no plan for so many.
func (f *fitter) sum(ctx context.Context, j *Job, k strategy.Kind) (int64, error) {
	if f.Devices <= 1 {
		bytes, err := k.Smallest(j.Work.Chain())
		return bytes + j.Work.StaticBytes(), err
	}
	q := PipeRequest{Strategy: k.Strategies[0], Platform: pipeline.NewPlatform(f.Devices, pipeline.NoLimit, pipeline.Free()), Limit: func(int64) int64 { return 0 }, Portals: true}
	q.Options.Accounting = pipeline.Saved
	if q.Strategy.Type == pipeline.Flushing {
		q.Options.Microbatches = j.Microbatches
	}
	_, err := j.PlanPipe(ctx, j.Work.Unmeasured(), q)
	if small, ok := errors.AsType[*executor.TooSmallError](err); ok {
		return small.Smallest, nil
	}
	if errors.As(err, new(*pipeline.InfeasibleError)) {
		return math.MaxInt64, nil
	}
	return 0, err
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

// largestBy is largest of one strategy. It begins at the size that sums of bytes allow. It goes down, by as much as a plan is too large and in steps
// that double, until a layout fits as well.
func (f *fitter) largestBy(ctx context.Context, s pipeline.Strategy, d dimension) (int, error) {
	n, err := f.largestSum(ctx, planner.KindOf(s), d)
	if f.Devices > 1 {
		return n, err // by layouts
	}
	over := func(n int) (times float64) {
		if j := f.at(d.at(n)); j != nil && err == nil {
			times, err = f.over(ctx, j.Work, s)
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
	return f.largestJob(ctx, d, func(j *Job) (int64, error) { return f.sum(ctx, j, k) })
}

// largestJob returns the largest n at whose size the job needs no more bytes than the limit, 0 if there is none.
func (f *fitter) largestJob(ctx context.Context, d dimension, need func(*Job) (int64, error)) (int, error) {
	return largestWithin(ctx, f.Limit, d.start, d.power, func(n int) (int64, error) {
		if j := f.at(d.at(n)); j != nil {
			return need(j)
		}
		if n < d.start { // too small for the model's layers
			return 0, nil
		}
		return math.MaxInt64, nil // too large for any memory
	})
}

// at returns the job with samples of another size; nil where the model has none of it.
func (f *fitter) at(s size) *Job {
	j, known := f.sized[s]
	if !known {
		sized := *f.Job
		sized.unsplit = sized.Microbatches == 0
		sized.Config.Batch, sized.Config.Image = s.batch, s.image
		if sized.compile() == nil {
			j = &sized
		}
		f.sized[s] = j
	}
	return j
}

// largestOf bounds batches and steps of images.
const largestOf = 1 << 24

// largestWithin returns the largest n that needs at most limit bytes, 0 if there is none. Needs grow nearly in proportion to a power of
// n. Each guess is on the line through two sizes, but between one that fits and one that does not every third halves what is left.
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
