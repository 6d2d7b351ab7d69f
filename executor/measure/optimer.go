package measure

import (
	"unsafe"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// OpTimer runs the ops of an exercise on a device, one behind the other on one stream, and times each. Behind them it updates the weights. It
// gives training nothing: it reads no result.
type OpTimer struct {
	*Exercise
	device  runtime.Device
	library kernels.Library
	seed    uint64
	limit   int64 // bytes of the arena
	step    *executor.Bound
	host    pages
	stream  runtime.Stream
	updates []runtime.Launch
	marks   marks
	graph   runtime.Launch // of all that is timed, on a device that can repeat it as one launch; nil otherwise
	steps   uint64
	times   OpTimes
}

// marks are the events of a step.
type marks struct {
	begin, updated runtime.Event
	ends           []runtime.Event // by op
	middles        []runtime.Event // likewise, of a backward in halves; nil of other ops
}

// OpTimes are the seconds of a step's ops.
type OpTimes struct {
	Ops              []float64 // by op of the sequence
	FirstHalves      []float64 // of backwards in halves
	Sequence, Update float64
}

// Seconds returns the time of all of it.
func (t *OpTimes) Seconds() float64 { return t.Sequence + t.Update }

// Start binds the exercise to a device, whose weights it draws. load fills a batch of the model. A window takes its
// images if it begins with layer 1, and its labels if it ends with the loss. Errors: those of the device and of load.
func (x *Exercise) Start(on executor.Target, seed uint64, load func(Batch) error) (*OpTimer, error) {
	return x.startBeside(on, seed, windows{}, x.Extent, load)
}

// startBeside is Start with room for a measurement of the link, in an arena of limit bytes.
func (x *Exercise) startBeside(on executor.Target, seed uint64, probe windows, limit int64, load func(Batch) error) (*OpTimer, error) {
	t := &OpTimer{Exercise: x, device: on.Device, library: on.Library, seed: seed, limit: max(limit, x.Extent), host: x.placeHost(probe)}
	if err := t.device.Reserve(t.limit, t.host.bytes); err != nil {
		return nil, err
	}
	for _, part := range []func() error{t.prepareOps, t.prepareUpdates, t.open, t.drawWeights, func() error { return t.load(load) }, t.capture} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *OpTimer) prepareOps() (err error) {
	t.step, err = t.Bind(t.Seq, t.limit, t.library)
	return err
}

// prepareUpdates prepares what follows the sequence: sums of the gradients of weights that layers share, the guard, the update.
func (t *OpTimer) prepareUpdates() error {
	if err := t.sumTied(); err != nil {
		return err
	}
	guard := kernels.GuardOperands{Partials: t.Static.Partials, Norm: t.Static.Norm, Scalars: t.Static.Scalars}
	var all []kernels.UpdateOperands
	for l, layer := range t.Model.Layers {
		st := &t.Static.Layers[l]
		for _, q := range layer.Params() {
			if !q.Trained {
				continue
			}
			bytes := q.Desc.Bytes()
			o := kernels.UpdateOperands{
				Elements: q.Desc.Elements(), Param: st.Params.Part(q.Value.Offset, bytes), Grad: st.Grads.Part(q.Grad.Offset, bytes),
				Scalars: t.Static.Scalars, Workspace: t.Static.Workspace,
			}
			for k := range kernels.StatesOf(t.Optimizer, q.Matrix) {
				o.States = append(o.States, st.State(k, q))
			}
			guard.Grads, all = append(guard.Grads, o.Grad), append(all, q.Updates(t.Optimizer, o)...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if err := t.addUpdate(t.library.PrepareGuard(kernels.Guard{}, guard)); err != nil {
		return err
	}
	return t.addUpdate(t.library.PrepareUpdate(t.Optimizer, all...))
}

func (t *OpTimer) addUpdate(l runtime.Launch, err error) error {
	t.updates = append(t.updates, l)
	return err
}

// sumTied adds the gradients that layers have made of parameters that are those of others, in the order of the layers.
func (t *OpTimer) sumTied() error {
	for l, layer := range t.Model.Layers {
		for _, q := range layer.Tied() {
			if !q.Trained {
				continue
			}
			sum := t.Static.Layers[q.Of.Layer-1].Grads.Part(q.Of.Grad.Offset, q.Desc.Bytes())
			more := t.Static.Layers[l].Grads.Part(q.Grad.Offset, q.Desc.Bytes())
			call := kernels.Call{Op: kernels.Add{}, In: []kernels.Desc{q.Desc, q.Desc}, Train: true}
			if err := t.addUpdate(t.library.Prepare(call, kernels.Operands{X: []runtime.Span{sum, more}, Y: sum, Scalars: t.Static.Scalars})); err != nil {
				return err
			}
		}
	}
	return nil
}

// open makes the stream and the events.
func (t *OpTimer) open() (err error) {
	if t.stream, err = t.device.NewStream("compute"); err != nil {
		return err
	}
	n := len(t.Seq)
	t.marks.ends, t.marks.middles = make([]runtime.Event, n), make([]runtime.Event, n)
	t.times.Ops, t.times.FirstHalves = make([]float64, n), make([]float64, n)
	all := []*runtime.Event{&t.marks.begin, &t.marks.updated}
	for i, op := range t.Seq {
		if all = append(all, &t.marks.ends[i]); t.halves && op.Kind == schedule.Backward {
			all = append(all, &t.marks.middles[i])
		}
	}
	for _, ev := range all {
		if *ev, err = t.device.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

// drawWeights writes weights and buffers like the initial ones; all else is 0.
func (t *OpTimer) drawWeights() error {
	for l, layer := range t.Model.Layers {
		st := &t.Static.Layers[l]
		for _, of := range append(st.States, st.Grads) {
			if err := t.write(of, nil); err != nil {
				return err
			}
		}
		for _, q := range layer.Params() {
			n := q.Desc.Elements()
			if q.Fill == nil {
				n = min(n, drawn)
			}
			values := make([]float32, n)
			models.Init(q, t.seed, values)
			if err := t.write(st.Params.Part(q.Value.Offset, q.Desc.Bytes()), asBytes(values)); err != nil {
				return err
			}
		}
	}
	return nil
}

// drawn is how many values of a tensor are drawn at most: times depend on how large values are, and not on which they are. It is a
// chunk of page-locked memory, which all others repeat.
const drawn = executor.ChunkBytes / 4

// write copies bytes to the arena, a chunk of page-locked memory at a time: those of src again and again, 0 where there are none.
func (t *OpTimer) write(to runtime.Span, src []byte) error {
	for at := int64(0); at < to.Bytes; at += executor.ChunkBytes {
		n := min(executor.ChunkBytes, to.Bytes-at)
		page := t.host.chunk.Part(0, n)
		b, err := t.device.HostBytes(page)
		if err != nil {
			return err
		}
		switch {
		case at == 0 && len(src) == 0:
			clear(b)
		case at < int64(len(src)):
			copy(b, src[at:])
		}
		if err := t.stream.Copy(to.Part(at, n), page); err != nil {
			return err
		}
		if err := t.stream.Synchronize(); err != nil {
			return err
		}
	}
	return nil
}

// load fills the batch, of which load has that of the model.
func (t *OpTimer) load(load func(Batch) error) error {
	images, err := t.device.HostBytes(t.host.images)
	if err != nil {
		return err
	}
	labels, err := t.device.HostBytes(t.host.labels)
	if err != nil {
		return err
	}
	return t.fillBatch(images, labels, t.seed, load)
}

// capture makes one launch of what is timed, on a device that can.
func (t *OpTimer) capture() (err error) {
	if device, able := t.device.(runtime.Grapher); able {
		t.graph, err = device.Capture(t.stream, t.issue)
	}
	return err
}

// Step runs the ops once more, at a learning rate of 0: that keeps the values, and so the times, those of a fresh model. The times are valid
// until the next step.
func (t *OpTimer) Step() (*OpTimes, error) {
	scalars, err := t.device.HostBytes(t.host.scalars)
	if err != nil {
		return nil, err
	}
	kernels.Scalars{Seed: t.seed, Step: t.steps, GradScale: 1, Update: t.steps}.Put(scalars)
	t.steps++
	for _, part := range []func() error{t.upload, t.launch, t.stream.Synchronize, t.collect} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return &t.times, nil
}

// upload brings the batch and the scalars. An input that is made up is a piece of one, repeated.
func (t *OpTimer) upload() error {
	bytes := t.Model.Input.Bytes()
	for k := range t.Model.Wiring().Inputs() {
		for at := int64(0); at < bytes; {
			from := (int64(k)*bytes + at) % t.host.images.Bytes
			n := min(bytes-at, t.host.images.Bytes-from)
			if err := t.stream.Copy(t.step.Input(k).Part(at, n), t.host.images.Part(from, n)); err != nil {
				return err
			}
			at += n
		}
	}
	if err := t.stream.Copy(t.Static.Labels, t.host.labels); err != nil {
		return err
	}
	return t.stream.Copy(t.Static.Scalars, t.host.scalars)
}

func (t *OpTimer) launch() error {
	if t.graph != nil {
		return t.stream.Launch(t.graph)
	}
	return t.issue()
}

// issue issues all that is timed.
func (t *OpTimer) issue() error {
	if err := t.stream.Record(t.marks.begin); err != nil {
		return err
	}
	for i, op := range t.Seq {
		launches := t.step.Calls[i]
		if middle := t.marks.middles[i]; middle != nil {
			first := len(t.Layers[op.Layer-1].BackInput.Steps)
			if err := t.issueUntil(middle, launches[:first]); err != nil {
				return err
			}
			launches = launches[first:]
		}
		if err := t.issueUntil(t.marks.ends[i], launches); err != nil {
			return err
		}
	}
	return t.issueUntil(t.marks.updated, t.updates)
}

// issueUntil issues launches and an event behind them.
func (t *OpTimer) issueUntil(end runtime.Event, launches []runtime.Launch) error {
	for _, l := range launches {
		if err := t.stream.Launch(l); err != nil {
			return err
		}
	}
	return t.stream.Record(end)
}

// collect reads the times.
func (t *OpTimer) collect() (err error) {
	since := func(later, earlier runtime.Event) (seconds float64) {
		d, failure := later.Since(earlier)
		if failure != nil {
			err = failure
		}
		return d.Seconds()
	}
	last := t.marks.begin
	for i, end := range t.marks.ends {
		if middle := t.marks.middles[i]; middle != nil {
			t.times.FirstHalves[i] = since(middle, last)
		}
		t.times.Ops[i] = since(end, last)
		last = end
	}
	t.times.Sequence, t.times.Update = since(last, t.marks.begin), since(t.marks.updated, last)
	return err
}

func asBytes(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), len(f)*4)
}
