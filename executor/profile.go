package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"plimsoll/internal/fields"
	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// UpdateField is the chain file's extra field with the seconds of the optimizer's update, which follows the
// sequence in every step.
const UpdateField = "update_s"

// KernelsField is the chain file's extra field with the algorithms that a kernels.Chooser picked while it was measured.
const KernelsField = "kernels"

// ProfileOptions are how a model is measured.
type ProfileOptions struct {
	Warmup  int // steps of each exercise before the measured ones
	Repeats int // measured steps of each exercise
	// Enough ends the repeats of an exercise whose measured steps have taken so long together; 0: never. Long steps vary less.
	Enough time.Duration
	Seed   uint64
	// Halves measures the two halves of every backward as well: the chain then has the fields backward_input_s and
	// backward_weight_s.
	Halves bool
	// OpenHost opens what updates the host memory of a device: see library.OpenHost. nil: updates on the host are not measured.
	OpenHost func(runtime.Device) (kernels.Updater, error)
	Progress func(done, total int) // called after every step; may be nil
}

// Profile measures a model on a device, in place and within limit bytes of its arena, 0 for all that the device has, however much
// more the model's step would take. It trains a few steps along exercises that together contain every op of every layer, and takes each op's
// median time. Then it measures the link to host memory, and the updates of each layer, on the device and on the host. It also measures what
// these and copies take from each other. Byte counts come from the model's graph. open gives a fresh target for each exercise;
// load fills a batch. Error: *WindowError when a layer alone does not fit.
func Profile(ctx context.Context, w *Workload, open func() (Target, error), limit int64, load func(Batch) error, opt ProfileOptions) (*chain.Chain, error) {
	p := &profile{Workload: w, open: open, limit: limit, load: load, opt: opt, samples: w.NewSamples()}
	exercises, err := p.plan()
	if err != nil {
		return nil, err
	}
	classes := w.updateClasses()
	p.steps = len(exercises)*(opt.Warmup+opt.Repeats) + len(classes) + linkSteps + hostUpdateSteps
	for _, x := range exercises {
		if err := p.measure(ctx, x); err != nil {
			return nil, fmt.Errorf("measuring: %w", err)
		}
	}
	c, err := p.samples.Chain()
	if err != nil {
		return nil, err
	}
	link, err := p.link(ctx, exercises, c)
	if err != nil {
		return nil, fmt.Errorf("measuring the link: %w", err)
	}
	c.Bandwidth = min(link.ToHost, link.ToDevice)
	if err := p.updates(ctx, classes, c); err != nil {
		return nil, fmt.Errorf("measuring updates: %w", err)
	}
	if err := p.sumUpdates(exercises, c); err != nil {
		return nil, err
	}
	c.Extra[LinkField], err = fields.Marshal(link)
	return c, err
}

// profile is a profile while it is made.
type profile struct {
	*Workload
	open        func() (Target, error)
	lib         kernels.Library // as that of all targets
	limit       int64
	hostLimit   int64 // bytes of host memory that the device gives, 0: not known
	load        func(Batch) error
	opt         ProfileOptions
	samples     *Samples
	steps, done int
}

// plan returns the exercises for the library and the memory of a target, which is not used further.
func (p *profile) plan() ([]*Exercise, error) {
	target, err := p.open()
	if err != nil {
		return nil, err
	}
	p.lib = target.Library
	info := target.Device.Info()
	p.hostLimit = info.HostMemory
	if p.limit == 0 || p.limit > info.Memory {
		p.limit = info.Memory
	}
	all, err := p.Exercises(p.lib, p.limit, p.opt.Halves)
	return all, cmp.Or(err, target.Device.Close())
}

// checkpointAll returns the sequence that saves every activation and recomputes every layer.
func (w *Workload) checkpointAll() schedule.Sequence {
	n := len(w.Layers)
	var seq schedule.Sequence
	for l := 1; l < n; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardCheckpoint, Layer: l})
	}
	for l := n; l >= 1; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l}, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

// sumUpdates writes the time of all layers' updates into the chain where windows were measured, whose update is another.
func (p *profile) sumUpdates(exercises []*Exercise, c *chain.Chain) (err error) {
	if exercises[0].Workload == p.Workload {
		return nil
	}
	sum := 0.0
	for i := range c.Layers {
		sum += c.Layers[i].Update.DeviceS
	}
	c.Extra[UpdateField], err = fields.Marshal(sum)
	return err
}

// step counts a step.
func (p *profile) step() {
	if p.done++; p.opt.Progress != nil {
		p.opt.Progress(p.done, p.steps)
	}
}

// measure runs an exercise a few times.
func (p *profile) measure(ctx context.Context, x *Exercise) error {
	return p.with(x, windows{}, x.Extent, func(t *OpTimer) error {
		measured := 0.0
		for i := range p.opt.Warmup + p.opt.Repeats {
			if p.opt.Enough > 0 && measured >= p.opt.Enough.Seconds() {
				p.step()
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			times, err := t.Step()
			if err != nil {
				return err
			}
			if i >= p.opt.Warmup {
				p.samples.Add(x, times)
				measured += times.Seconds()
			}
			p.step()
		}
		if lib, ok := t.library.(kernels.Chooser); ok {
			p.samples.chosen = lib.Chosen()
		}
		return nil
	})
}

// with runs do with an exercise on a fresh target, with room for a measurement of the link in an arena of limit bytes.
func (p *profile) with(x *Exercise, probe windows, limit int64, do func(*OpTimer) error) (err error) {
	target, err := p.open()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, target.Device.Close()) }()
	t, err := x.startBeside(target, p.opt.Seed, probe, limit, p.load)
	if err != nil {
		return err
	}
	return do(t)
}

// UpdateSeconds returns the time of the optimizer's update that a profiled chain carries, 0 if it has none.
func UpdateSeconds(c *chain.Chain) float64 {
	var s float64
	if json.Unmarshal(c.Extra[UpdateField], &s) != nil {
		return 0
	}
	return s
}
