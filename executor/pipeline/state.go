package pipeline

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"

	"plimsoll/executor"
	"plimsoll/internal/parallel"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// parts returns places that have a tensor together, in the order of its bytes: of all that begin somewhere the first.
func (t *placed) parts() (all []place) {
	for at := int64(0); at < t.Desc.Bytes(); at += all[len(all)-1].span.Bytes {
		i := slices.IndexFunc(t.at, func(x place) bool { return x.behind == at && x.span.Bytes > 0 })
		all = append(all, t.at[i])
	}
	return all
}

// Tensors lists weights, buffers and optimizer states in the order of the layers, as they are between runs.
func (e *Executor) Tensors() []executor.Tensor { return tensorsOf(e.tensors.all) }

// Gradients lists the gradients of a step of a sequence on one device, which Read reads behind the step: sums over its microbatches, before
// they are clipped.
func (e *Executor) Gradients() []executor.Tensor { return tensorsOf(e.tensors.gradients) }

func tensorsOf(all []placed) []executor.Tensor {
	tensors := make([]executor.Tensor, len(all))
	for i := range all {
		tensors[i] = all[i].Tensor
	}
	return tensors
}

// newTensorTable lists the tensors of all stages.
func newTensorTable(lay *layout) (t tensorTable) {
	t.byName = map[name]int{}
	for s := range lay.order.On {
		for _, d := range lay.drivers {
			stage := d.stages[s]
			if stage == nil {
				continue
			}
			if stage.list(d, t.add); lay.order.Plan.RunsSequence() {
				t.gradients = stage.listGradients(d)
			}
		}
	}
	for _, d := range lay.drivers {
		for _, stage := range d.stages {
			listCopies(stage, d, t.add)
		}
	}
	return t
}

// listGradients returns the sums of gradients of a stage.
func (s *localStage) listGradients(d *driver) (all []placed) {
	for i := range s.layers {
		l := &s.layers[i]
		for _, q := range l.params {
			if q.Trained {
				t := executor.Tensor{Name: q.Name, Role: "gradient", Desc: q.Desc, Layer: l.number, Parts: q.Parts}
				all = append(all, placed{t, q, []place{{d, s.gradient(l, 0, q.Grad), 0}}, nil})
			}
		}
	}
	return all
}

// add adds a tensor, or another place of one that is there.
func (t *tensorTable) add(p placed) {
	key := name{p.Role, p.Name}
	i, have := t.byName[key]
	if have {
		t.all[i].at = append(t.all[i].at, p.at...)
		return
	}
	t.byName[key] = len(t.all)
	t.all = append(t.all, p)
}

// list calls add for the tensors of a stage.
func (s *localStage) list(d *driver, add func(placed)) {
	if s.cyclic != nil {
		s.listCyclic(d, add)
		return
	}
	for i := range s.layers {
		l := &s.layers[i]
		for _, q := range l.params {
			put := func(role string, at ...place) {
				add(placed{executor.Tensor{Name: q.Name, Role: role, Desc: q.Desc, Layer: l.number, Parts: q.Parts}, q, at, nil})
			}
			if !q.Trained {
				put(q.Role(), place{d, s.value(l, 0, q.Value), 0})
				continue
			}
			var weights []place
			if !s.fetches {
				weights = []place{{d, s.value(l, 0, q.Value), 0}}
			}
			pieces := s.shard.pieces(l.sumAt+q.Grad.Offset, q.Desc.Bytes())
			for _, p := range pieces {
				if s.fetches {
					weights = append(weights, place{d, s.weightOf(0, l.at+q.Grad.Offset, p), p.behind})
				}
				if s.host != nil {
					weights = append(weights, place{d, s.part(s.host.weights, l.at+q.Grad.Offset, p), p.behind})
				}
			}
			put("weight", weights...)
			for k := range kernels.StatesOf(d.lay.Optimizer, q.Matrix) {
				var at []place
				for _, p := range pieces {
					at = append(at, place{d, s.state(k, l, q, p), p.behind})
				}
				put(fmt.Sprintf("state%d", k), at...)
			}
		}
	}
}

// find returns a tensor by name and role.
func (t *tensorTable) find(like executor.Tensor) (*placed, error) {
	if i, ok := t.byName[name{like.Role, like.Name}]; ok {
		return &t.all[i], nil
	}
	i := slices.IndexFunc(t.gradients, func(p placed) bool { return p.Role == like.Role && p.Name == like.Name })
	if i < 0 {
		return nil, fmt.Errorf("no stage has the %s of %s", like.Role, like.Name)
	}
	return &t.gradients[i], nil
}

// Read copies a tensor into dst, which has its number of elements, from the first device that has it, or pieces of it. With a World all processes
// read it together.
func (e *Executor) Read(t executor.Tensor, dst []float32) error {
	p, err := e.tensors.find(t)
	if err != nil {
		return err
	}
	for _, from := range p.parts() {
		if err := e.readPlace(from, asBytes(dst)[from.behind:from.behind+from.span.Bytes]); err != nil {
			return err
		}
	}
	return nil
}

// readPlace copies what a device has of a tensor.
func (e *Executor) readPlace(from place, dst []byte) error {
	if e.opt.World == nil {
		return from.driver.read(from.span, dst)
	}
	for at := int64(0); at < from.span.Bytes; at += executor.ChunkBytes {
		piece := from.span.Part(at, min(executor.ChunkBytes, from.span.Bytes-at))
		if err := e.readTogether(from.driver, piece, dst[at:at+piece.Bytes]); err != nil {
			return err
		}
	}
	return nil
}

// readTogether copies a span of a device to all processes.
func (e *Executor) readTogether(d *driver, from runtime.Span, dst []byte) error {
	if e.opt.World.has(d.Number) {
		if err := d.read(from, dst); err != nil {
			e.opt.World.stop(err)
			return err
		}
	}
	b, err := e.opt.World.Broadcast(context.Background(), e.opt.World.Ranks[d.Number], dst)
	copy(dst, b)
	return err
}

// Write copies src to a tensor, on all devices of this process that have it.
func (e *Executor) Write(t executor.Tensor, src []float32) error {
	p, err := e.tensors.find(t)
	if err != nil {
		return err
	}
	for _, x := range p.at {
		if !e.opt.World.has(x.driver.Number) {
			continue
		}
		if err := x.driver.write(x.span, asBytes(src)[x.behind:x.behind+x.span.Bytes]); err != nil {
			return err
		}
	}
	if len(p.rounded) == 0 {
		return nil
	}
	halves := make([]uint16, len(src))
	parallel.Ranges(len(src), leastWidened, func(from, to int) {
		for i := from; i < to; i++ {
			halves[i] = kernels.ToBFloat16(src[i])
		}
	})
	for _, x := range p.rounded {
		if err := x.driver.write(x.span, asBytes(halves)); err != nil {
			return err
		}
	}
	return nil
}

// Processes returns which processes have a tensor on a device; only with a World.
func (e *Executor) Processes(t executor.Tensor) (all []int) {
	if p, err := e.tensors.find(t); err == nil {
		for _, x := range p.at {
			all = append(all, e.opt.World.Ranks[x.driver.Number])
		}
	}
	return all
}

func (d *driver) write(to runtime.Span, src []byte) error {
	if to.Space == runtime.Host {
		at, err := d.Dev.HostBytes(to)
		copy(at, src)
		return err
	}
	return d.chunks(to, func(dev, host runtime.Span, at int64) error {
		b, err := d.Dev.HostBytes(host)
		if err != nil {
			return err
		}
		copy(b, src[at:])
		if err := d.compute.S.Copy(dev, host); err != nil {
			return err
		}
		return d.compute.S.Synchronize()
	})
}

// chunks calls move for the pieces of a device span, each with a piece of the chunk buffer as long.
func (d *driver) chunks(span runtime.Span, move func(dev, host runtime.Span, at int64) error) error {
	for at := int64(0); at < span.Bytes; at += executor.ChunkBytes {
		n := min(executor.ChunkBytes, span.Bytes-at)
		if err := move(span.Part(at, n), d.chunk.Part(0, n), at); err != nil {
			return err
		}
	}
	return nil
}

// mostDrawn is how many tensors have drawn values that wait to be written, at most: host memory has to hold them.
const mostDrawn = 8

// initialize writes the initial weights, seeded, and zeroes the optimizer's state. Values are drawn by all processors, ahead of what is
// written.
func (e *Executor) initialize() error {
	e.tensors = newTensorTable(e.layout)
	free := make(chan []float32, min(goruntime.GOMAXPROCS(0), mostDrawn))
	for range cap(free) {
		free <- nil
	}
	drawn, stop := make(chan chan []float32, cap(free)), make(chan struct{})
	defer close(stop)
	go func() {
		for _, t := range e.tensors.all {
			select {
			case room := <-free:
				values := make(chan []float32, 1)
				drawn <- values
				go func() { values <- t.initial(e.opt.Seed, room) }()
			case <-stop:
				return
			}
		}
	}()
	for _, t := range e.tensors.all {
		values := <-<-drawn
		if err := e.Write(t.Tensor, values); err != nil {
			return err
		}
		free <- values
	}
	return inOrder(e.writeConstants, e.freshen)
}

// initial returns a tensor's values before the first step, in room if that is large enough.
func (t *placed) initial(seed uint64, room []float32) []float32 {
	n := t.Desc.Elements()
	values := slices.Grow(room[:0], int(n))[:n]
	clear(values)
	if t.Role == t.param.Role() {
		models.Init(t.param, seed, values)
	}
	return values
}

// writeConstants writes what no step changes.
func (e *Executor) writeConstants() error {
	for _, d := range e.own() {
		for _, t := range d.stages {
			if t == nil {
				continue
			}
			for _, c := range t.constants(e.Workload) {
				if err := d.write(c.at, asBytes(c.values)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// constant is the part of a stage's memory on a device that no step changes.
type constant struct {
	at     runtime.Span
	values []float32
}

// constants are the scalars of corrections, and the palette of images that are bytes.
func (s *localStage) constants(w *Workload) (all []constant) {
	if len(s.waiting.images) > 0 {
		all = append(all, constant{s.waiting.table, executor.Palette(w)})
	}
	if !s.discrepancy.corrects() {
		return all
	}
	_, scalars := s.discrepancy.rules()
	for i, k := range scalars {
		words := make([]float32, kernels.ScalarsBytes/4)
		k.Put(asBytes(words))
		all = append(all, constant{s.discrepancy.scalars[i], words})
	}
	return all
}

// freshen makes the rows what they are between steps.
func (e *Executor) freshen() error {
	for _, d := range e.own() {
		for _, t := range d.stages {
			if t == nil || t.deferred.rows.Bytes == 0 {
				continue
			}
			if err := d.write(t.deferred.rows, asBytes(slices.Repeat([]float32{kernels.NoMoment}, int(t.deferred.rows.Bytes/4)))); err != nil {
				return err
			}
		}
	}
	return nil
}

// read copies a span of the arena to dst.
func (d *driver) read(from runtime.Span, dst []byte) error {
	if from.Space == runtime.Host {
		b, err := d.Dev.HostBytes(from)
		copy(dst, b)
		return err
	}
	return d.chunks(from, func(dev, host runtime.Span, at int64) error {
		if err := d.compute.S.Copy(host, dev); err != nil {
			return err
		}
		if err := d.compute.S.Synchronize(); err != nil {
			return err
		}
		b, err := d.Dev.HostBytes(host)
		copy(dst[at:], b)
		return err
	})
}
