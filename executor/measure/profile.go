// Package measure measures what the ops of a model take on a device: each alone, beside copies, and beside updates on the host, and the link
// to host memory. Profile makes it a chain.
//
// It knows nothing of plans.
package measure

import (
	"cmp"
	"context"
	"fmt"

	"plimsoll/executor"
	"plimsoll/internal/fields"
	"plimsoll/kernels"
	"plimsoll/planner/chain"
)

// Profile measures a model on a device, in place. It keeps within limit bytes of the arena, 0 for all that the device has, however much more
// the model's step would take. It trains a few steps along exercises that together contain every op of every layer, and takes each op's
// median time. Then it measures the link to host memory, and the updates of each layer, on the device and on the host. It also measures what
// these and copies take from each other. Byte counts come from the model's graph. open gives a fresh target for each exercise;
// load fills a batch. Error: *WindowError when a layer alone does not fit.
func Profile(ctx context.Context, w *executor.Workload, open func() (executor.Target, error), limit int64, load func(Batch) error, opt ProfileOptions) (*chain.Chain, error) {
	s := &session{Workload: w, open: open, limit: limit, load: load, opt: opt, samples: NewSamples(w)}
	exercises, err := s.plan()
	if err != nil {
		return nil, err
	}
	classes := updateClasses(w)
	s.steps = len(exercises)*(opt.Warmup+opt.Repeats) + len(classes) + linkSteps + hostUpdateSteps
	for _, x := range exercises {
		if err := s.measure(ctx, x); err != nil {
			return nil, fmt.Errorf("measuring: %w", err)
		}
	}
	c, err := s.samples.Chain()
	if err != nil {
		return nil, err
	}
	link, err := s.link(ctx, exercises, c)
	if err != nil {
		return nil, fmt.Errorf("measuring the link: %w", err)
	}
	c.Bandwidth = min(link.ToHost, link.ToDevice)
	if err := s.updates(ctx, classes, c); err != nil {
		return nil, fmt.Errorf("measuring updates: %w", err)
	}
	if err := s.sumUpdates(exercises, c); err != nil {
		return nil, err
	}
	c.Extra[executor.LinkField], err = fields.Marshal(link)
	return c, err
}

// plan returns the exercises for the library and the memory of a target, which is not used further.
func (s *session) plan() ([]*Exercise, error) {
	target, err := s.open()
	if err != nil {
		return nil, err
	}
	s.lib = target.Library
	info := target.Device.Info()
	s.hostLimit = info.HostMemory
	if s.limit == 0 || s.limit > info.Memory {
		s.limit = info.Memory
	}
	all, err := Exercises(s.Workload, s.lib, s.limit, s.opt.Halves)
	return all, cmp.Or(err, target.Device.Close())
}

// sumUpdates writes the time of all layers' updates into the chain where windows were measured, whose update is another.
func (s *session) sumUpdates(exercises []*Exercise, c *chain.Chain) (err error) {
	if exercises[0].Workload == s.Workload {
		return nil
	}
	sum := 0.0
	for i := range c.Layers {
		sum += c.Layers[i].Update.DeviceS
	}
	c.Extra[executor.UpdateField], err = fields.Marshal(sum)
	return err
}

// measure runs an exercise a few times.
func (s *session) measure(ctx context.Context, x *Exercise) error {
	return s.with(x, windows{}, x.Extent, func(t *OpTimer) error {
		measured := 0.0
		for i := range s.opt.Warmup + s.opt.Repeats {
			if s.opt.Enough > 0 && measured >= s.opt.Enough.Seconds() {
				s.step()
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			times, err := t.Step()
			if err != nil {
				return err
			}
			if i >= s.opt.Warmup {
				s.samples.Add(x, times)
				measured += times.Seconds()
			}
			s.step()
		}
		if lib, ok := t.library.(kernels.Chooser); ok {
			s.samples.chosen = lib.Chosen()
		}
		return nil
	})
}

// updates measures the updates of all layers, on the device and on the host, and the host's memory, and writes them into the chain.
func (s *session) updates(ctx context.Context, classes []*updateClass, c *chain.Chain) (err error) {
	target, err := s.open()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, target.Device.Close()) }()
	room := updateRoomBytes(s.Optimizer, classes)
	m := &updateMeter{session: s, target: target, arena: min(s.limit, room), host: room}
	if s.hostLimit > 0 {
		m.host = min(m.host, s.hostLimit)
	}
	if err := m.open(c); err != nil {
		return err
	}
	for _, class := range classes {
		if err := m.measure(ctx, class, c); err != nil {
			return err
		}
		s.step()
	}
	if m.onHost == nil || len(classes) == 0 {
		return nil
	}
	return m.contend(ctx, largestClass(classes), c)
}
