package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/runtime"
)

// Snapshot is the state of one stage behind Done minibatches of all runs, copied to page-locked memory: weights, statistics and
// optimizer states, as they are between runs. A stage on several devices is saved by the first of them; all have the same.
type Snapshot struct {
	Stage, Done int

	skipped int // updates before it
	of      *saver
	regions []region
	tensors []placed
}

// region is a part of a device's arena and its copy.
type region struct{ dev, host runtime.Span }

// saver lets the state of a device's stages be saved while training goes on.
//
// Invariant: the copies are those of one state, from when the driver issues them until Options.Save is done with it.
type saver struct {
	driver    *driver
	snapshots []*Snapshot
	copied    runtime.Event
	idle      chan struct{} // holds a token while nothing is saved
}

// state lists what is saved of a stage.
func (s *localStage) state() []runtime.Span {
	return append([]runtime.Span{s.weights[0], s.buffers}, s.states...)
}

func (s *localStage) stateBytes() (bytes int64) {
	for _, span := range s.state() {
		bytes += span.Bytes
	}
	return bytes
}

// newSaver lays out the copies of the stages that a device saves; nil when nothing is saved.
func (d *driver) newSaver(g *allocator) *saver {
	if d.e.opt.Save == nil {
		return nil
	}
	v := &saver{driver: d, idle: make(chan struct{}, 1)}
	for s, t := range d.stages {
		if t == nil || d.e.firstWith(s) != d {
			continue
		}
		x := &Snapshot{Stage: s, of: v}
		for _, span := range t.state() {
			x.regions = append(x.regions, region{span, g.alloc(span.Bytes)})
		}
		t.list(d, func(p placed) { x.tensors = append(x.tensors, p) })
		for i := range x.tensors {
			x.move(&x.tensors[i])
		}
		v.snapshots = append(v.snapshots, x)
	}
	v.idle <- struct{}{}
	return v
}

// firstWith returns the first driver that has a stage.
func (e *Executor) firstWith(s int) *driver {
	i := slices.IndexFunc(e.drivers, func(d *driver) bool { return d.stages[s] != nil })
	return e.drivers[i]
}

// move says where the copy of a tensor lies.
func (x *Snapshot) move(t *placed) {
	span := &t.at[0].span
	for _, r := range x.regions {
		if at := span.Offset - r.dev.Offset; at >= 0 && at+span.Bytes <= r.dev.Bytes {
			*span = r.host.Part(at, span.Bytes)
			return
		}
	}
	panic(fmt.Sprintf("BUG: the %s of %s is in no part of the state of stage %d", t.Role, t.Name, x.Stage))
}

func (v *saver) open() (err error) {
	if v != nil {
		v.copied, err = v.driver.dev.NewEvent()
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
	for _, x := range v.snapshots {
		x.Done, x.skipped = done, d.skipped()
		for _, r := range x.regions {
			if r.dev.Bytes == 0 {
				continue
			}
			if err := d.compute.s.Copy(r.host, r.dev); err != nil {
				return err
			}
		}
	}
	if err := d.compute.s.Record(v.copied); err != nil {
		return err
	}
	d.e.saving.Go(func() {
		for _, x := range v.snapshots {
			d.e.opt.Save(x)
		}
		v.idle <- struct{}{}
	})
	return nil
}

// Save lets Options.Save have the state between runs. Errors: *TaskError, ErrStopped, the context's.
func (e *Executor) Save(ctx context.Context) error {
	if e.stopped {
		return ErrStopped
	}
	for _, d := range e.own() {
		if err := d.save(ctx, e.done); err != nil {
			e.stopped = true
			return &TaskError{Device: d.device, Task: "the copy of its state", Minibatch: e.done, Err: err}
		}
	}
	return nil
}

// Saved waits until Options.Save is done with all that it was given: before the devices are closed.
func (e *Executor) Saved() { e.saving.Wait() }

// Updates returns how often the weights of each layer of the model have been updated by then.
func (x *Snapshot) Updates() []int64 { return x.of.driver.e.updates(x.Done, x.skipped) }

// Write runs what writes the state to a disk, or wherever it goes: for as long as that takes, a device that waits for it is not
// stuck.
func (x *Snapshot) Write(do func()) {
	writing := &x.of.driver.e.writing
	writing.Add(1)
	defer writing.Add(-1)
	defer x.goesOn() // while somebody who watches still sees it write
	do()
}

// goesOn shows somebody who watches that something happens.
func (x *Snapshot) goesOn() { x.of.driver.progress.tasks.Add(1) }

// Tensors lists the stage's tensors in the order of its layers.
func (x *Snapshot) Tensors() []executor.Tensor {
	all := make([]executor.Tensor, len(x.tensors))
	for i := range x.tensors {
		all[i] = x.tensors[i].Tensor
	}
	return all
}

// Read copies a tensor into dst, which has its number of elements, when the device has come that far. It holds until
// Options.Save returns. Errors: those of the device.
func (x *Snapshot) Read(t executor.Tensor, dst []float32) error {
	i := slices.IndexFunc(x.tensors, func(p placed) bool { return p.Role == t.Role && p.Name == t.Name })
	if i < 0 {
		return fmt.Errorf("stage %d has no %s of %s", x.Stage, t.Role, t.Name)
	}
	if err := x.of.copied.Synchronize(); err != nil {
		return err
	}
	b, err := x.of.driver.dev.HostBytes(x.tensors[i].at[0].span)
	copy(asBytes(dst), b)
	x.goesOn()
	return err
}
