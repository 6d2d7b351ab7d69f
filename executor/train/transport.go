package train

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
	"plimsoll/runtime/world"
)

// Transport moves the messages of a run between its processes: see ThroughPrograms and BetweenGPUs.
type Transport interface {
	open(ctx context.Context, w *World, ways []pipe.Way) error
	send(way int, src runtime.Span) (runtime.Launch, error)
	receive(way int, dst runtime.Span) (runtime.Launch, error)
	links(ctx context.Context, w *world.World) (map[[2]int]float64, error)
	// taken returns the memory of devices that the transport has beside their arenas, bytes.
	taken() int64
	// Sent returns what this process has sent.
	Sent() (messages, bytes int64)
	// Close makes what waits fail.
	Close() error
}

// ends returns which processes ways join.
func ends(w *World, ways []pipe.Way) (all []world.Way) {
	for _, x := range ways {
		all = append(all, world.Way{Name: x.Name, From: w.Process(x.From), To: w.Process(x.To), Bytes: x.Bytes})
	}
	return all
}

// ThroughPrograms returns the transport whose messages the programs send: those of devices whose memory they do not reach are staged in
// page-locked memory.
func ThroughPrograms(f world.Fabric) Transport { return &programs{Fabric: f} }

type programs struct {
	world.Fabric
	fail func(err error) // ends the world
	ways []end
}

// end is what a way has in this process.
type end struct {
	device  runtime.Device  // nil: the way has no end here
	staging runtime.Staging // nil where the program reaches the device's memory
}

func (p *programs) open(ctx context.Context, w *World, ways []pipe.Way) error {
	p.fail, p.ways = w.Fail, make([]end, len(ways))
	for i, x := range ways {
		p.ways[i].device = x.Device
		if d, ok := x.Device.(runtime.Stager); ok {
			var err error
			if p.ways[i].staging, err = d.NewStaging(x.Name, x.Bytes); err != nil {
				return err
			}
		}
	}
	return p.Open(ctx, ends(w, ways))
}

func (*programs) taken() int64 { return 0 }

func (p *programs) links(ctx context.Context, w *world.World) (map[[2]int]float64, error) {
	return w.Links(ctx, p.Fabric)
}

func (p *programs) send(way int, src runtime.Span) (runtime.Launch, error) {
	do := func(b []byte) error { return p.Send(way, b) }
	if s := p.ways[way].staging; s != nil {
		return s.Send(src, p.orEnd(do))
	}
	return p.ways[way].launch("send", src, do)
}

func (p *programs) receive(way int, dst runtime.Span) (runtime.Launch, error) {
	do := func(b []byte) error { return p.Receive(way, b) }
	if s := p.ways[way].staging; s != nil {
		return s.Receive(dst, p.orEnd(do))
	}
	return p.ways[way].launch("receive", dst, do)
}

// orEnd ends the world when a staged message fails, before the stream goes on: so nobody takes what follows for trained.
func (p *programs) orEnd(do func(b []byte) error) func(b []byte) error {
	return func(b []byte) error {
		err := do(b)
		if err != nil {
			p.fail(err)
		}
		return err
	}
}

// addressable is a device whose memory can be read and written in place.
type addressable interface {
	Bytes(s runtime.Span) ([]byte, error)
}

// launch returns one that hands the bytes of a span to a fabric.
func (e *end) launch(name string, span runtime.Span, do func(b []byte) error) (runtime.Launch, error) {
	memory, ok := e.device.(addressable)
	if !ok {
		return nil, fmt.Errorf("%w: --devices %s: a device of this kind has no messages to other processes", ErrSpec, e.device.Info().Name)
	}
	b, err := memory.Bytes(span)
	if err != nil {
		return nil, err
	}
	return host.Func{Name: name, Do: func() error { return do(b) }}, nil
}

// GPUs is what moves messages from memory of one GPU to that of another one, in the order of streams: see package nccl.
type GPUs interface {
	Open(ctx context.Context, ways []world.Way, in func(way int, do func() error) error) error
	Send(way int, address uintptr, bytes int64, stream uintptr) error
	Receive(way int, address uintptr, bytes int64, stream uintptr) error
	OpenSums(ctx context.Context, lines []world.Line, in func(line int, do func() error) error) error
	Sum(line int, address uintptr, parts []world.Part, stream uintptr) error
	Sent() (messages, bytes int64)
	Close() error
}

// BetweenGPUs returns the transport whose messages GPUs send to each other.
func BetweenGPUs(g GPUs) Transport { return &gpus{GPUs: g} }

type gpus struct {
	GPUs
	ways  []runtime.Enqueuer // nil: the way has no end here
	lines []runtime.Enqueuer // likewise
	bytes int64              // that the library has taken
}

func (g *gpus) taken() int64 { return g.bytes }

func (g *gpus) open(ctx context.Context, w *World, ways []pipe.Way) error {
	var devices []runtime.Device
	for _, x := range ways {
		devices = append(devices, x.Device)
	}
	var err error
	g.ways, err = g.taking(devices, func(on []runtime.Enqueuer) error {
		return g.Open(ctx, ends(w, ways), func(way int, do func() error) error { return on[way].Run(do) })
	})
	return err
}

// openSums readies sums over lines of devices.
func (g *gpus) openSums(ctx context.Context, w *World, lines []pipe.Line) error {
	var devices []runtime.Device
	var all []world.Line
	for _, l := range lines {
		devices = append(devices, l.Device)
		x := world.Line{Name: l.Name}
		for _, d := range l.Devices {
			x.Ranks = append(x.Ranks, w.Process(d))
		}
		all = append(all, x)
	}
	var err error
	g.lines, err = g.taking(devices, func(on []runtime.Enqueuer) error {
		return g.OpenSums(ctx, all, func(line int, do func() error) error { return on[line].Run(do) })
	})
	return err
}

// sum returns a launch that adds up parts of the arena of the device of a line.
func (g *gpus) sum(line int, parts []runtime.Span) (runtime.Launch, error) {
	first := slices.MinFunc(parts, func(a, b runtime.Span) int { return cmp.Compare(a.Offset, b.Offset) })
	var all []world.Part
	for _, p := range parts {
		all = append(all, world.Part{Offset: p.Offset - first.Offset, Bytes: p.Bytes})
	}
	return g.lines[line].Enqueue("ncclAllReduce", first, func(address, stream uintptr) error { return g.Sum(line, address, all, stream) })
}

// taking opens something on devices, of which those that are not here are nil, and counts the memory that this takes.
func (g *gpus) taking(devices []runtime.Device, open func(on []runtime.Enqueuer) error) ([]runtime.Enqueuer, error) {
	on, before := make([]runtime.Enqueuer, len(devices)), map[runtime.Enqueuer]int64{}
	for i, d := range devices {
		if d == nil {
			continue
		}
		var ok bool
		if on[i], ok = d.(runtime.Enqueuer); !ok {
			return nil, fmt.Errorf("%w: --devices %s: --transport nccl is for GPUs; tcp and mpi are for all devices", ErrSpec, d.Info().Name)
		}
		var err error
		if before[on[i]], err = on[i].Free(); err != nil {
			return nil, err
		}
	}
	if err := open(on); err != nil {
		return nil, err
	}
	for d, free := range before {
		now, err := d.Free()
		if err != nil {
			return nil, err
		}
		g.bytes += max(0, free-now)
	}
	return on, nil
}

func (g *gpus) links(context.Context, *world.World) (map[[2]int]float64, error) {
	return nil, fmt.Errorf("%w: --transport nccl: links are measured between programs, with --transport tcp or mpi", ErrSpec)
}

func (g *gpus) send(way int, src runtime.Span) (runtime.Launch, error) {
	return g.ways[way].Enqueue("ncclSend", src, func(address, stream uintptr) error { return g.Send(way, address, src.Bytes, stream) })
}

func (g *gpus) receive(way int, dst runtime.Span) (runtime.Launch, error) {
	return g.ways[way].Enqueue("ncclRecv", dst, func(address, stream uintptr) error { return g.Receive(way, address, dst.Bytes, stream) })
}
