package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"plimsoll/internal/cores"
	"plimsoll/internal/stats"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/runtime"
)

// SizeUpdates returns a chain of the workload's layers with the sizes that its updates need: of gradients, of the optimizer's state, and whose
// weights those of twins are. Times stay. Where a layer has a parameter of another one, its weights are
// that layer's (weights_of). Parameters of its own, which then are small, are not counted: an executor has them throughout.
func (w *Workload) SizeUpdates(c *chain.Chain) *chain.Chain {
	out := *c
	out.Layers = slices.Clone(c.Layers)
	for i := range out.Layers {
		layer, of := &out.Layers[i], w.Model.Layers[i]
		u := &layer.Update
		layer.WeightBytes, layer.UnroundedWeightBytes = layer.WideWeights(), 0
		*u = chain.Update{DeviceS: u.DeviceS, HostS: u.HostS, NormS: u.NormS}
		if ties := of.Tied(); len(ties) > 0 {
			u.WeightsOf, layer.WeightBytes = ties[0].Of.Layer, 0
			continue
		}
		if of.Twin > 0 {
			if out.Layer(of.Twin).WeightBytes > 0 {
				u.WeightsOf = of.Twin
			}
			continue
		}
		_, narrow := w.WeightLayout(of)
		_, u.StateBytes = w.MasterLayout(of)
		if wide := layer.WeightBytes; u.StateBytes > 0 {
			layer.WeightBytes, layer.UnroundedWeightBytes = wide-w.Layers[i].GradBytes+narrow, wide
		}
		if bytes := w.Layers[i].GradBytes; bytes != layer.WeightBytes {
			u.GradientBytes = &bytes
		}
		for k := range w.Optimizer.States() {
			_, bytes := StateLayout(w.Optimizer, of, k)
			u.StateBytes += bytes
		}
	}
	return &out
}

// updateClass is the layers whose updates take equal time: those with as large parameters under the same rules.
type updateClass struct {
	layers  []int // from 1
	updates []kernels.UpdateOperands
}

// updateClasses returns the classes of all layers with trained parameters of their own.
func (w *Workload) updateClasses() (all []*updateClass) {
	known := map[string]*updateClass{}
	for l := 1; l <= len(w.Layers); l++ {
		updates := w.UpdatesOf(l)
		if len(updates) == 0 {
			continue
		}
		key := fmt.Sprint(updates)
		if known[key] == nil {
			known[key] = &updateClass{updates: updates}
			all = append(all, known[key])
		}
		known[key].layers = append(known[key].layers, l)
	}
	return all
}

// UnmeasuredUpdates returns the chain of Unmeasured with updates, whose times are made up, too. The host updates the layers that it is
// given for.
func (w *Workload) UnmeasuredUpdates(host func(layer int) bool) *chain.Chain {
	c := w.Unmeasured()
	for i := range c.Layers {
		l := &c.Layers[i]
		seconds := float64(l.WeightBytes) / c.Bandwidth
		if l.Update.DeviceS = seconds; host(i + 1) {
			l.Update.HostS = &seconds
		}
	}
	return c
}

// HasUpdates reports, by layer from 0, whether a library has the updates of a layer's weights.
func (w *Workload) HasUpdates(by kernels.Updater) []bool {
	all := make([]bool, len(w.Layers))
	for i := range all {
		all[i] = !slices.ContainsFunc(w.UpdatesOf(i+1), func(o kernels.UpdateOperands) bool {
			_, err := by.UpdateWorkspace(w.Optimizer, o.Matrix)
			return err != nil
		})
	}
	return all
}

// UpdatesOf returns the updates of layer l, from 1, without memory: of a rounded copy the bytes alone.
func (w *Workload) UpdatesOf(l int) (all []kernels.UpdateOperands) {
	for _, q := range w.Model.Layers[l-1].Params() {
		if !q.Trained {
			continue
		}
		for _, o := range q.Updates(w.Optimizer, kernels.UpdateOperands{Elements: q.Desc.Elements()}) {
			x := kernels.UpdateOperands{Elements: o.Elements, Matrix: o.Matrix, Vector: o.Vector}
			if w.Rounded(q) {
				x.Rounded.Bytes = o.Elements * kernels.BFloat16.Size()
			}
			all = append(all, x)
		}
	}
	return all
}

// mostCopies bounds the copies of a class's weights, gradient and state that its updates go through, one after the other.
const mostCopies = 32

// updateRoomBytes returns the memory that measurements of updates take of the arena and of the host space, at most. It is what the updates of
// a step go through: between two updates of a layer all others have been in the caches. Measurements of the link give its least, and twice
// the largest cache its most.
func (w *Workload) updateRoomBytes(classes []*updateClass) (bytes int64) {
	for _, class := range classes {
		for _, o := range class.updates {
			bytes += int64(len(class.layers)) * updateBytes(w.Optimizer, o)
		}
	}
	return max(mostWindow, min(bytes, 2*cores.LargestCache()))
}

// updates measures the updates of all layers, on the device and on the host, and the host's memory, and writes them into the chain.
func (p *profile) updates(ctx context.Context, classes []*updateClass, c *chain.Chain) (err error) {
	target, err := p.open()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, target.Device.Close()) }()
	room := p.updateRoomBytes(classes)
	m := &updateMeter{profile: p, target: target, arena: min(p.limit, room), host: room}
	if p.hostLimit > 0 {
		m.host = min(m.host, p.hostLimit)
	}
	if err := m.open(c); err != nil {
		return err
	}
	for _, class := range classes {
		if err := m.measure(ctx, class, c); err != nil {
			return err
		}
		p.step()
	}
	if m.onHost == nil || len(classes) == 0 {
		return nil
	}
	return m.contend(ctx, largestClass(classes), c)
}

// updateBytes returns what an update goes through: a parameter, its gradient, its states and its rounded copy.
func updateBytes(u kernels.Update, o kernels.UpdateOperands) int64 {
	return int64(2+kernels.StatesOf(u, o.Matrix))*kernels.Align(o.Elements*kernels.Float32.Size()) + kernels.Align(o.Rounded.Bytes)
}

// elements returns how many elements updates have together.
func elements(updates []kernels.UpdateOperands) (n int64) {
	for _, o := range updates {
		n += o.Elements
	}
	return n
}

// updateMeter measures updates on a target of its own.
type updateMeter struct {
	*profile
	target      Target
	arena, host int64 // bytes of each space
	passed      int64 // bytes of copies that updates have gone through
	onHost      kernels.Updater
	stream      runtime.Stream
	start, end  runtime.Event
}

// open reserves the memory and measures the host's. Numbers are 0.75 or so everywhere: subnormal ones, and zeros, take other times.
func (m *updateMeter) open(c *chain.Chain) error {
	if err := m.target.Device.Reserve(m.arena, m.host); err != nil {
		return err
	}
	if err := m.openHost(c); err != nil {
		return err
	}
	stream, err := m.target.Device.NewStream("updates")
	for _, ev := range []*runtime.Event{&m.start, &m.end} {
		var failure error
		*ev, failure = m.target.Device.NewEvent()
		err = cmp.Or(err, failure)
	}
	if m.stream = stream; err != nil {
		return err
	}
	return m.fill()
}

// fill writes to all of both spaces, and copies scalars alone: the link may be slow.
func (m *updateMeter) fill() error {
	arena, host := runtime.Span{Bytes: m.arena}, runtime.Span{Space: runtime.Host, Bytes: m.host}
	if memory, ok := m.target.Device.(runtime.Inspector); ok {
		if err := cmp.Or(memory.Fill(arena, 0x3f), memory.Fill(host, 0x3f)); err != nil {
			return err
		}
	}
	scalars, err := m.target.Device.HostBytes(host.Part(0, kernels.ScalarsBytes))
	if err != nil {
		return err
	}
	kernels.Scalars{GradScale: 1, Update: 1}.Put(scalars)
	return cmp.Or(m.stream.Copy(arena.Part(0, kernels.ScalarsBytes), host.Part(0, kernels.ScalarsBytes)), m.stream.Synchronize())
}

// openHost opens what updates the host's memory, and measures how fast that is, where anything does.
func (m *updateMeter) openHost(c *chain.Chain) (err error) {
	if m.opt.OpenHost == nil {
		return nil
	}
	if m.onHost, err = m.opt.OpenHost(m.target.Device); err != nil {
		return err
	}
	streamer, ok := m.onHost.(kernels.Streamer)
	if !ok {
		return nil
	}
	memory, err := m.target.Device.HostBytes(runtime.Span{Space: runtime.Host, Bytes: m.host})
	if err != nil {
		return err
	}
	c.HostMemoryBandwidth, err = streamer.Bandwidth(memory)
	return err
}

// measure writes the times of a class into its layers.
func (m *updateMeter) measure(ctx context.Context, class *updateClass, c *chain.Chain) error {
	arena := runtime.Span{Bytes: m.arena}
	onDevice, err := m.seconds(ctx, m.target.Library, arena, class.updates, (*updateRoom).prepare, m.onStream)
	if err != nil {
		return err
	}
	norm, err := m.seconds(ctx, m.target.Library, arena, class.updates, (*updateRoom).prepareNorm, m.onStream)
	if err != nil {
		return err
	}
	var onHost *float64
	if m.onHost != nil {
		s, err := m.seconds(ctx, m.onHost, runtime.Span{Space: runtime.Host, Bytes: m.host}, class.updates, (*updateRoom).prepare, m.onThreads)
		switch {
		case err == nil:
			onHost = &s
		case !errors.Is(err, kernels.ErrNoKernel):
			return err
		}
	}
	for _, l := range class.layers {
		u := &c.Layer(l).Update
		u.DeviceS, u.HostS, u.NormS = onDevice, onHost, norm
	}
	return nil
}

// onStream returns the seconds that a launch takes on the device, onThreads those of one on the host's threads.
func (m *updateMeter) onStream(l runtime.Launch) (float64, error) {
	err := cmp.Or(m.stream.Record(m.start), m.stream.Launch(l), m.stream.Record(m.end), m.stream.Synchronize())
	if err != nil {
		return 0, err
	}
	took, err := m.end.Since(m.start)
	return took.Seconds(), err
}

func (m *updateMeter) onThreads(l runtime.Launch) (float64, error) {
	begun := time.Now()
	err := l.(interface{ Run() error }).Run()
	return time.Since(begun).Seconds(), err
}

// preparation prepares the launches that are timed in a room, one for each copy of the operands.
type preparation func(*updateRoom, kernels.Updater, kernels.Update) ([]runtime.Launch, error)

// seconds returns the median time of the updates of a layer, or of its gradient's norm, in a space. Those of which the space holds no copy are measured in part; a
// whole takes longer by as many elements as it has more. Errors: those of by.
func (m *updateMeter) seconds(
	ctx context.Context, by kernels.Updater, space runtime.Span, updates []kernels.UpdateOperands, prepare preparation, timed func(runtime.Launch) (float64, error),
) (float64, error) {
	room, err := newUpdateRoom(by, m.Optimizer, space, updates)
	if err != nil {
		return 0, err
	}
	launches, err := prepare(room, by, m.Optimizer)
	if err != nil {
		return 0, err
	}
	var samples []float64
	for i := range m.opt.Warmup + max(m.opt.Repeats, 1) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		at := m.passed / room.bytes % int64(len(launches)) // behind the copies of the class before
		m.passed += room.bytes
		s, err := timed(launches[at])
		if err != nil {
			return 0, err
		}
		if i >= m.opt.Warmup {
			samples = append(samples, s)
		}
	}
	return room.share * stats.Median(samples), nil
}

// updateRoom places updates in a space: scalars, workspace, then copies of the operands.
type updateRoom struct {
	space     runtime.Span
	updates   []kernels.UpdateOperands // as much of each as there is room for
	share     float64                  // by which whole updates have more elements
	workspace int64
	partials  int64 // bytes of the partial sums of a norm, which lie in the workspace
	bytes     int64 // of a copy
}

// newUpdateRoom halves updates until a copy fits. Error: of a space without room for one element of each.
func newUpdateRoom(by kernels.Updater, u kernels.Update, space runtime.Span, updates []kernels.UpdateOperands) (*updateRoom, error) {
	for parts := int64(1); ; parts *= 2 {
		r, err := partOf(by, u, updates, parts)
		if r.space = space; err != nil || r.firstCopy()+r.bytes <= space.Bytes {
			return r, err
		}
		if parts > kernels.MaxElements {
			return nil, fmt.Errorf("an update of one element of each parameter takes %s, and the %v has %s", units.Precise(r.firstCopy()+r.bytes), space.Space, units.Precise(space.Bytes))
		}
	}
}

// partOf cuts every update to one of so many parts, of one element at least.
func partOf(by kernels.Updater, u kernels.Update, updates []kernels.UpdateOperands, parts int64) (r *updateRoom, err error) {
	r = &updateRoom{}
	for _, o := range updates {
		o.Elements = max(o.Elements/parts, 1)
		if o.Matrix.Is() {
			o.Matrix.Rows = max(o.Matrix.Rows/parts, 1)
			o.Elements = o.Matrix.Rows * o.Matrix.Columns
		}
		if o.Rounded.Bytes > 0 {
			o.Rounded.Bytes = o.Elements * kernels.BFloat16.Size()
		}
		need, err := by.UpdateWorkspace(u, o.Matrix)
		if err != nil {
			return r, err
		}
		r.workspace = max(r.workspace, kernels.Align(need))
		r.bytes += updateBytes(u, o)
		r.updates, r.partials = append(r.updates, o), r.partials+8*kernels.GuardPartials(o.Elements)
	}
	r.workspace = max(r.workspace, kernels.Align(r.partials))
	r.share = float64(elements(updates)) / float64(elements(r.updates))
	return r, nil
}

func (r *updateRoom) firstCopy() int64 { return kernels.ScalarsBytes + r.workspace }

// copies binds the updates to each copy of their operands.
func (r *updateRoom) copies(u kernels.Update) (all [][]kernels.UpdateOperands, workspace runtime.Span) {
	at := int64(0)
	take := func(bytes int64) runtime.Span {
		s := r.space.Part(at, bytes)
		at += kernels.Align(bytes)
		return s
	}
	scalars, workspace := take(kernels.ScalarsBytes), take(r.workspace)
	for copies := min((r.space.Bytes-r.firstCopy())/r.bytes, mostCopies); copies > 0; copies-- {
		var list []kernels.UpdateOperands
		for _, o := range r.updates {
			bytes := o.Elements * kernels.Float32.Size()
			o.Scalars, o.Workspace, o.Param, o.Grad = scalars, workspace, take(bytes), take(bytes)
			for range kernels.StatesOf(u, o.Matrix) {
				o.States = append(o.States, take(bytes))
			}
			if o.Rounded.Bytes > 0 {
				o.Rounded = take(o.Rounded.Bytes)
			}
			list = append(list, o)
		}
		all = append(all, list)
	}
	return all, workspace
}

// prepare prepares the update of each copy.
func (r *updateRoom) prepare(by kernels.Updater, u kernels.Update) (launches []runtime.Launch, err error) {
	all, _ := r.copies(u)
	for _, list := range all {
		l, err := by.PrepareUpdate(u, list...)
		if err != nil {
			return nil, err
		}
		launches = append(launches, l)
	}
	return launches, nil
}

// prepareNorm prepares the partial sums of the gradients of each copy.
func (r *updateRoom) prepareNorm(by kernels.Updater, u kernels.Update) (launches []runtime.Launch, err error) {
	all, workspace := r.copies(u)
	for _, list := range all {
		o := kernels.GuardOperands{Partials: workspace.Part(0, r.partials)}
		for _, x := range list {
			o.Grads = append(o.Grads, x.Grad)
		}
		l, err := by.PrepareGuard(kernels.Guard{}, o)
		if err != nil {
			return nil, err
		}
		launches = append(launches, l)
	}
	return launches, nil
}
