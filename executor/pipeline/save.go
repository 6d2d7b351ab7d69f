package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/runtime"
)

// saved lists what a device saves of a stage, the first one of those that have it or another one.
func (s *localStage) saved(first bool) []runtime.Span {
	switch {
	case s.cyclic != nil:
		return s.savedCyclic()
	case first && s.fetches:
		return append([]runtime.Span{s.kept, s.buffers, s.frozen}, s.states...)
	case first:
		return append([]runtime.Span{s.weights[0], s.buffers, s.frozen}, s.states...)
	case s.fetches:
		return append([]runtime.Span{s.kept}, s.states...)
	case s.shard != nil:
		return s.states
	}
	return nil
}

func (s *localStage) savedBytes(first bool) (bytes int64) {
	for _, span := range s.saved(first) {
		bytes += span.Bytes
	}
	return bytes
}

// newSaver lays out the copies of the stages that a device saves; nil when nothing is saved.
func newSaver(d *driver, g *allocator) *saver {
	if d.lay.opt.Save == nil {
		return nil
	}
	v := &saver{driver: d, idle: make(chan struct{}, 1)}
	for s, t := range d.stages {
		if t == nil {
			continue
		}
		first := firstWith(d.lay.drivers, s)
		spans := t.saved(first == d)
		if len(spans) == 0 {
			continue
		}
		x := &Snapshot{Stage: s, of: v}
		if first != d {
			x = first.saver.snapshot(s)
		}
		for _, span := range spans {
			v.regions = append(v.regions, region{span, g.alloc(span.Bytes)})
		}
		t.list(d, func(p placed) { x.add(p, v) })
		x.parties, v.snapshots = append(x.parties, v), append(v.snapshots, x)
	}
	v.idle <- struct{}{}
	return v
}

// snapshot returns the snapshot of a stage.
func (v *saver) snapshot(s int) *Snapshot {
	return v.snapshots[slices.IndexFunc(v.snapshots, func(x *Snapshot) bool { return x.Stage == s })]
}

// add adds a tensor as a device has it, or its pieces of one that is there.
func (x *Snapshot) add(p placed, v *saver) {
	i := slices.IndexFunc(x.tensors, func(t placed) bool { return t.Role == p.Role && t.Name == p.Name })
	if i < 0 {
		i = len(x.tensors)
		t := p
		t.at = nil
		x.tensors = append(x.tensors, t)
	}
	for _, at := range p.at {
		if v.move(&at) {
			x.tensors[i].at = append(x.tensors[i].at, at)
		}
	}
}

// firstWith returns the first driver that has a stage.
func firstWith(drivers []*driver, s int) *driver {
	i := slices.IndexFunc(drivers, func(d *driver) bool { return d.stages[s] != nil })
	return drivers[i]
}

// move says where the copy of a tensor lies; false: there is none.
func (v *saver) move(t *place) bool {
	for _, r := range v.regions {
		if at := t.span.Offset - r.dev.Offset; t.span.Space == r.dev.Space && at >= 0 && at+t.span.Bytes <= r.dev.Bytes {
			t.span = r.host.Part(at, t.span.Bytes)
			return true
		}
	}
	return false
}

func (v *saver) open() (err error) {
	if v != nil {
		v.copied, err = v.driver.Dev.NewEvent()
	}
	return err
}

// save copies the state of the device's stages behind what its compute stream has, and lets Options.Save have it. It waits until
// the state before is saved.
func (d *driver) save(ctx context.Context, done int) error {
	v := d.saver
	if v == nil || len(v.snapshots) == 0 {
		return nil
	}
	d.progress.saving.Store(true)
	defer d.progress.saving.Store(false)
	select {
	case <-v.idle:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, r := range v.regions {
		if r.dev.Bytes == 0 {
			continue
		}
		if err := d.compute.S.Copy(r.host, r.dev); err != nil {
			return err
		}
	}
	if err := d.compute.S.Record(v.copied); err != nil {
		return err
	}
	v.pending.Store(int32(len(v.snapshots)))
	var whole []*Snapshot
	for _, x := range v.snapshots {
		if x.arrives(done, d.guard.skips()) {
			whole = append(whole, x)
		}
	}
	if len(whole) > 0 {
		d.reports.saving.Go(func() { saveAll(whole, d.lay.opt.Save) })
	}
	return nil
}

// arrives says that a device has issued its copies of a state; true: it is the last one.
func (x *Snapshot) arrives(done, skipped int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Done, x.skipped = done, skipped
	if x.arrived++; x.arrived < len(x.parties) {
		return false
	}
	x.arrived = 0
	return true
}

// saveAll lets Options.Save have states, and their devices have their copies again.
func saveAll(all []*Snapshot, save func(*Snapshot)) {
	for _, x := range all {
		save(x)
		for _, v := range x.parties {
			if v.pending.Add(-1) == 0 {
				v.idle <- struct{}{}
			}
		}
	}
}

// Save lets Options.Save have the state between runs. Errors: *TaskError, ErrStopped, the context's.
func (e *Executor) Save(ctx context.Context) error {
	if e.stopped {
		return ErrStopped
	}
	for _, d := range e.own() {
		if err := d.save(ctx, e.done); err != nil {
			e.stopped = true
			return &TaskError{Device: d.Number, Task: "the copy of its state", Minibatch: e.done, Err: err}
		}
	}
	return nil
}

// Saved waits until Options.Save is done with all that it was given: before the devices are closed.
func (e *Executor) Saved() { e.reports.saving.Wait() }

// Updates returns how often the weights of each layer of the model have been updated by then.
func (x *Snapshot) Updates() []int64 { return x.of.driver.lay.updates(x.Done, x.skipped) }

// Write runs what writes the state to a disk, or wherever it goes: for as long as that takes, a device that waits for it is not
// stuck.
func (x *Snapshot) Write(do func()) {
	writing := &x.of.driver.reports.writing
	writing.Add(1)
	defer writing.Add(-1)
	defer x.goesOn() // while somebody who watches still sees it write
	do()
}

// goesOn shows somebody who watches that something happens.
func (x *Snapshot) goesOn() { x.of.driver.progress.tasks.Add(1) }

// Tensors lists the stage's tensors in the order of its layers.
func (x *Snapshot) Tensors() []executor.Tensor { return tensorsOf(x.tensors) }

// Read copies a tensor into dst, which has its number of elements, when the device has come that far. It holds until
// Options.Save returns. Errors: those of the device.
func (x *Snapshot) Read(t executor.Tensor, dst []float32) error {
	i := slices.IndexFunc(x.tensors, func(p placed) bool { return p.Role == t.Role && p.Name == t.Name })
	if i < 0 {
		return fmt.Errorf("stage %d has no %s of %s", x.Stage, t.Role, t.Name)
	}
	for _, p := range x.tensors[i].parts() {
		if err := p.driver.saver.copied.Synchronize(); err != nil {
			return err
		}
		b, err := p.driver.Dev.HostBytes(p.span)
		if err != nil {
			return err
		}
		copy(asBytes(dst)[p.behind:], b)
	}
	x.goesOn()
	return nil
}
