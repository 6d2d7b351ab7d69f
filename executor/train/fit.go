package train

import (
	"context"
	"fmt"
	"math"
	"strings"

	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// Fit holds the memory that a model needs by its graph alone: nothing is measured, and no step runs.
type Fit struct {
	Model   string `json:"model"`
	Devices int    `json:"devices"`
	// Device is the one whose description the times are estimated from; "" where they are not.
	Device    string `json:"device,omitempty"`
	Estimated bool   `json:"estimated,omitempty"`
	Batch     int    `json:"batch"`
	models.SampleSize
	Layers      int   `json:"layers"` // with the loss
	Parameters  int64 `json:"parameters"`
	StaticBytes int64 `json:"static_bytes,omitempty"` // weights, gradients, optimizer state; of one device
	LimitBytes  int64 `json:"limit_bytes"`            // of each device
	// HostBytes counts the page-locked host memory of a step on one device whose plan offloads nothing.
	HostBytes      int64     `json:"host_bytes,omitempty"`
	HostLimitBytes int64     `json:"host_limit_bytes,omitempty"` // 0: none is known
	Vocabulary     int       `json:"vocabulary,omitempty"`       // tokens, of a language model
	Helps          []string  `json:"would_help,omitempty"`       // where no kind fits: flags that lower the need
	ImageStep      int       `json:"image_step,omitempty"`       // sizes of images are tried in multiples of it, pixels; on one device
	LengthStep     int       `json:"length_step,omitempty"`      // lengths of text are tried in multiples of it, tokens; on one device
	StoreAllBytes  int64     `json:"store_all_bytes,omitempty"`  // the arena of the step on one device that recomputes nothing
	Kinds          []KindFit `json:"kinds"`
}

// imageSteps are the steps of the sizes of images that are tried: models of large images halve them several times.
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

// Fit asks how much memory each device needs with each kind of plan, and what the largest batch is within a limit; on one device the
// largest image, too. Errors: those of compiling the model and of strategies, the context's.
func (j *Job) Fit(ctx context.Context, q FitRequest) (out *Fit, err error) {
	f := newFitter(j, q)
	out = &Fit{
		Model: j.Model, Devices: max(q.Devices, 1), Batch: j.Images(), SampleSize: j.SampleSize(), Layers: len(j.Work.Layers),
		Parameters: j.Work.Model.ParamCount(), LimitBytes: q.Limit,
	}
	step := &out.ImageStep
	if j.Tokens() > 0 {
		out.Vocabulary = j.Config.Classes
	}
	if out.Length > 0 {
		step = &out.LengthStep
	}
	if q.Devices <= 1 {
		if out.Length+out.Image > 0 {
			*step = f.imageStep()
		}
		out.StaticBytes, out.HostBytes, out.HostLimitBytes = j.Work.StaticBytes(), j.Work.LeastHostBytes(), q.Host
		if out.StoreAllBytes, err = j.StoreAllExtent(); err != nil {
			return nil, err
		}
	}
	for _, k := range q.Kinds {
		by, err := f.by(k)
		if err != nil {
			return nil, err
		}
		fit, err := by.kind(ctx, k, *step)
		if err != nil {
			return nil, err
		}
		out.Kinds = append(out.Kinds, fit)
	}
	out.Helps = f.helps(out)
	return out, nil
}

// helps returns the flags that lower the need if no kind fits; flags that do it alone come first.
func (f *fitter) helps(out *Fit) (flags []string) {
	batch, least := 0, int64(math.MaxInt64)
	var moving string
	for _, k := range out.Kinds {
		switch {
		case k.Fits:
			return nil
		case k.HostBytes > 0:
			batch, moving = max(batch, k.LargestBatch), f.movingHelps(k)
		case k.SmallestBytes > 0:
			batch, least = max(batch, k.LargestBatch), min(least, k.SmallestBytes)
		}
	}
	if least == math.MaxInt64 {
		return []string{"fewer --devices"}
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
	if moving != "" {
		flags = append(flags, moving)
	}
	if out.StaticBytes < f.Limit {
		flags = append(flags, f.smaller()...)
	}
	if f.Devices > 1 {
		return append(flags, "more --microbatches", "more --devices")
	}
	return append(flags, "several --devices")
}

// movingHelps returns the flags with which plans of a kind that moves weights and state fit, and the host memory that
// they need.
func (f *fitter) movingHelps(k KindFit) string {
	var flags []string
	if k.SmallestBytes > f.Limit {
		flags = append(flags, fmt.Sprintf("--memory %d", k.SmallestBytes))
	}
	if f.Host > 0 && k.HostBytes > f.Host {
		flags = append(flags, fmt.Sprintf("--host-memory %d", k.HostBytes))
	}
	return fmt.Sprintf("%s (plans that %s; they take %s of host memory)", strings.Join(flags, " "), k.Kind, units.Bytes(k.HostBytes))
}

// smaller returns the flags that make activations smaller.
func (f *fitter) smaller() (flags []string) {
	if f.Config.DType == kernels.Float32 {
		flags = append(flags, "--dtype bf16")
	}
	switch size := f.SampleSize(); {
	case size.Length > 0:
		flags = append(flags, "a smaller --length")
	case size.Image > 0:
		flags = append(flags, "a smaller --image")
	}
	return flags
}

// LargestBatch returns the largest batch with which a kind has a plan within the limit, 0 if there is none.
func (j *Job) LargestBatch(ctx context.Context, q FitRequest, k strategy.Kind) (int, error) {
	f := newFitter(j, q)
	return f.largest(ctx, k, f.batches())
}

// Smallest returns the smallest limit of a kind at which its layout fits, too.
func (j *Job) Smallest(ctx context.Context, k strategy.Kind) (int64, error) {
	bytes, _, err := newFitter(j, FitRequest{}).smallest(ctx, j, k)
	return bytes, err
}

func (f *fitter) kind(ctx context.Context, k strategy.Kind, step int) (fit KindFit, err error) {
	if k.Strategies[0].Type == pipeline.Cyclic {
		return f.cyclicKind(ctx, k, step)
	}
	fit = KindFit{Kind: k.Name, Strategy: k.Strategies[0].Name, Microbatches: f.Microbatches}
	if f.NarrowGradients { // only plans that move state keep them
		return fit, nil
	}
	smallest, neededBy, err := f.smallest(ctx, f.Job, k)
	if err != nil || smallest == math.MaxInt64 {
		return fit, err
	}
	fit.SmallestBytes, fit.NeededBy, fit.Fits = smallest, neededBy, smallest <= f.Limit && f.overHost(f.Work) <= 1
	fit.LargestBatch, err = f.largest(ctx, k, f.batches())
	if fit.LargestBatch *= f.parts(); err != nil || f.Devices > 1 {
		return fit, err
	}
	if step > 0 {
		steps, err := f.largest(ctx, k, f.images(step))
		if err != nil {
			return fit, err
		}
		f.setLargest(&fit, steps*step)
	}
	fit.Slowdown, err = f.slowdown(ctx, k)
	return fit, err
}
