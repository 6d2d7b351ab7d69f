package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"plimsoll/executor"
	"plimsoll/executor/measure"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
	"plimsoll/runtime"
)

// Measure says how a job's chain is measured.
type Measure struct {
	Warmup, Repeats int
	Enough          time.Duration         // see measure.ProfileOptions
	Limit           int64                 // bytes of arena that it may take; 0: what the device has
	Check           func() error          // called before anything is measured, which an error prevents; may be nil
	Together        int                   // more than 0: only the ops, of so many copies at once (measure.Together)
	Halves          bool                  // also of the two halves of every backward: see measure.ProfileOptions
	Progress        func(done, total int) // may be nil
}

// ErrEstimated says that a chain file was estimated, and that measured costs are wanted.
var ErrEstimated = errors.New("the chain is estimated")

// ErrOtherModel says that a chain file was measured on another model, batch or image size than the job's.
var ErrOtherModel = errors.New("the chain is of another model")

// Profile measures the job's chain on its device, within the measure's limit. For a device that is only described the chain is an estimate.
func (j *Job) Profile(ctx context.Context, m Measure) (*chain.Chain, error) {
	if j.Described != nil {
		return j.Described.Chain(j.Work)
	}
	if m.Check != nil {
		if err := m.Check(); err != nil {
			return nil, err
		}
	}
	spec := j.Spec
	spec.Open.Until = ctx
	options := measure.ProfileOptions{
		Warmup: m.Warmup, Repeats: m.Repeats, Enough: m.Enough, Halves: m.Halves, Seed: j.Seed, Progress: m.Progress,
		OpenHost: func(dev runtime.Device) (kernels.Updater, error) {
			u, err := library.OpenHost(dev, library.Options{Reference: j.Kernels.Reference})
			if errors.Is(err, library.ErrNone) { // a device that somebody has added
				return nil, nil
			}
			return u, err
		},
	}
	var c *chain.Chain
	var err error
	if m.Together > 0 {
		c, err = measure.Together(ctx, j.Work, spec.Target, m.Limit, j.LoadFirst, options, m.Together)
	} else {
		c, err = measure.Profile(ctx, j.Work, spec.Target, m.Limit, j.LoadFirst, options)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	c.Device = j.Device.Model
	return c, nil
}

// Feasible asks a strategy, with times that are made up, whether it has a plan within a limit of the arena: whether there is one
// depends on sizes alone. Error: *executor.TooSmallError.
func (j *Job) Feasible(ctx context.Context, s pipeline.Strategy, limit int64, opt strategy.Options) error {
	extent, err := j.StoreAllExtent()
	if err != nil || extent <= limit {
		return err
	}
	_, err = executor.Plan(ctx, j.Work, j.Work.Unmeasured(), s, limit, opt)
	return err
}

// ReadChain reads a chain file, at the job's batch, and refuses one whose layers or sizes are not this job's, or whose times are estimated.
// Errors: ErrOtherModel, ErrEstimated, those of chain.Read.
func (j *Job) ReadChain(path string) (*chain.Chain, error) {
	c, err := chain.Read(path)
	if err != nil {
		return nil, err
	}
	return j.ChainOf(path, c)
}

// ChainOf is ReadChain for a chain that was read, by a name for errors. The sizes of updates are those of the job's optimizer, whatever the
// chain was measured with, or if it has none.
func (j *Job) ChainOf(path string, c *chain.Chain) (*chain.Chain, error) {
	of := c.At(j.Config.Batch)
	if of == nil {
		return nil, fmt.Errorf("%s: %w: it was not measured at a batch of %d", path, ErrOtherModel, j.Config.Batch)
	}
	if c = of; c.Estimated {
		return nil, fmt.Errorf("%s: %w for %s: give one that plimsoll profile measured, or leave it out", path, ErrEstimated, c.Device)
	}
	err := sameGradients(c, j.Work.Chain())
	if err == nil {
		err = sameSizes(c, j.Work.Chain())
	}
	if err == nil {
		err = sameTrained(j.Work.Model, c, j.Work.Chain())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrOtherModel, err)
	}
	return j.Work.SizeUpdates(c), nil
}

// sameGradients refuses costs of backwards that keep gradients in another type.
func sameGradients(got, want *chain.Chain) error {
	for l := 1; l <= min(got.Len(), want.Len()); l++ {
		if has, needs := got.Layer(l).Update.WideGradientBytes, want.Layer(l).Update.WideGradientBytes; has != needs {
			return fmt.Errorf("layer %d (%s): wide_gradient_bytes is %d, the model's is %d: profile and train with the same --option optimizer.gradients", l, want.Layer(l).Name, has, needs)
		}
	}
	return nil
}

// sameSizes reports the first difference between a chain and what it should be, times aside.
func sameSizes(got, want *chain.Chain) error {
	if got.Len() != want.Len() {
		return fmt.Errorf("it has %d layers, %s has %d", got.Len(), want.Name, want.Len())
	}
	if got.InputBytes != want.InputBytes {
		return fmt.Errorf("input_bytes is %d, of %s it is %d", got.InputBytes, want.Name, want.InputBytes)
	}
	for l := 1; l <= want.Len(); l++ {
		if err := sameLayer(got.Layer(l), want.Layer(l)); err != nil {
			return fmt.Errorf("layer %d (%s): %w", l, want.Layer(l).Name, err)
		}
	}
	return nil
}

// sameTrained refuses costs of a model of which other weights are frozen. A chain whose layer says nothing of gradients trains all of it.
func sameTrained(m *models.Model, got, want *chain.Chain) error {
	for l := 1; l <= want.Len(); l++ {
		has, needs := got.Layer(l), want.Layer(l)
		frozen := slices.ContainsFunc(m.Layers[l-1].Params(), func(p models.Parameter) bool { return p.Frozen })
		if needs.Update.WeightsOf > 0 || has.Update.GradientBytes == nil && !frozen {
			continue
		}
		if g, w := has.SummedWeights(), needs.SummedWeights(); g != w {
			return fmt.Errorf("layer %d (%s): weight_gradient_bytes is %d, the model's is %d: other weights are frozen", l, needs.Name, g, w)
		}
	}
	return nil
}

func sameLayer(got, want *chain.Layer) error {
	for _, f := range []struct {
		field     string
		got, want int64
	}{
		{"output_bytes", got.OutputBytes, want.OutputBytes},
		{"saved_bytes", got.SavedBytes, want.SavedBytes},
		{"gradient_bytes", got.GradientBytes, want.GradientBytes},
		{"forward_overhead_bytes", got.ForwardOverheadBytes, want.ForwardOverheadBytes},
		{"backward_overhead_bytes", got.BackwardOverheadBytes, want.BackwardOverheadBytes},
		{"discard_overhead_bytes", got.DiscardOverhead(), want.DiscardOverhead()},
		{"weight_bytes", got.WideWeights(), want.WideWeights()},
	} {
		if f.got != f.want {
			return fmt.Errorf("%s is %d, the model's is %d", f.field, f.got, f.want)
		}
	}
	return nil
}
