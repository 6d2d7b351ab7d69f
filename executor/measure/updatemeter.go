package measure

import (
	"cmp"
	"context"
	"errors"
	"time"

	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/runtime"
)

// updateMeter measures updates on a target of its own.
type updateMeter struct {
	*session
	target      executor.Target
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
	if err := m.measureCast(ctx, class, c); err != nil {
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

// measureCast adds, to the backwards of a class, the rounding of the gradients that are kept in bfloat16. All are measured by the largest one.
func (m *updateMeter) measureCast(ctx context.Context, class *updateClass, c *chain.Chain) error {
	largest, narrow := kernels.UpdateOperands{}, int64(0)
	for _, o := range class.updates {
		if o.GradType != kernels.BFloat16 {
			continue
		}
		if narrow += o.Elements; o.Elements > largest.Elements {
			largest = o
		}
	}
	if narrow == 0 {
		return nil
	}
	s, err := m.seconds(ctx, m.target.Library, runtime.Span{Bytes: m.arena}, []kernels.UpdateOperands{largest}, func(r *updateRoom, _ kernels.Updater, u kernels.Update) ([]runtime.Launch, error) {
		return r.prepareCast(m.target.Library, u)
	}, m.onStream)
	if err != nil {
		return err
	}
	for _, l := range class.layers {
		c.Layer(l).BackwardS += s * float64(narrow) / float64(largest.Elements)
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
