//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/cu"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda/driver"
)

// capture is a graph in the making. A stream joins it with its first call. It waits for fork, an event at the start of
// the origin, which is how the driver takes a stream into a capture. At the end the origin waits for all of them.
type capture struct {
	origin *Stream
	fork   cu.Event

	mu      sync.Mutex
	joined  []*Stream // the origin first
	records []*Event
	err     error // the first one
}

// Capture implements runtime.Grapher.
func (d *Device) Capture(origin runtime.Stream, issue func() error) (runtime.Launch, error) {
	s, ok := origin.(*Stream)
	if !ok || s == nil || s.device != d {
		return nil, d.wrap("capture", errors.New("the origin is not a stream of this device"))
	}
	d.captureOne.Lock() // Close takes it too, so nothing is given back meanwhile
	defer d.captureOne.Unlock()
	if d.closed.Load() {
		return nil, d.wrap("capture", runtime.ErrClosed)
	}
	if err := s.failure(); err != nil {
		return nil, err
	}
	g, err := d.capture(s, issue)
	if err != nil {
		return nil, d.wrap("capture", err)
	}
	return g, nil
}

// capture makes the graph. Whatever happens, the driver's capture has ended when it returns.
func (d *Device) capture(origin *Stream, issue func() error) (g *Graph, err error) {
	c := &capture{origin: origin}
	if err := d.Run(c.begin); err != nil {
		return nil, err
	}
	d.capturing.Store(c)
	issued := issue()
	d.capturing.Store(nil)
	err = d.Run(func() (err error) {
		g, err = c.end(issued)
		return err
	})
	return g, err
}

func (c *capture) begin() (err error) {
	s := c.origin
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.fork, err = cu.MakeEvent(cu.DisableTiming); err != nil {
		return callError("cuEventCreate", err)
	}
	if err := driver.BeginCapture(s.stream); err != nil {
		return errors.Join(callError("cuStreamBeginCapture", err), cu.DestroyEvent(&c.fork))
	}
	s.capture, c.joined = c, []*Stream{s}
	_ = c.fail(callError("cuEventRecord", c.fork.Record(s.stream))) // end returns it
	return nil
}

// end ends the driver's capture and makes its graph, unless something failed.
func (c *capture) end(issued error) (*Graph, error) {
	defer func() { _ = cu.DestroyEvent(&c.fork) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	g := &Graph{device: c.origin.device, streams: c.joined, records: c.records}
	err := c.err // names the call, and came first
	if err == nil {
		err = issued
	}
	if err == nil {
		err = g.join(c.origin)
	}
	graph, ended := driver.EndCapture(c.origin.stream)
	if err == nil {
		err = callError("cuStreamEndCapture", ended)
	}
	if err == nil {
		err = g.instantiate(graph, c.origin)
	}
	err = errors.Join(err, callError("cuGraphDestroy", graph.Destroy()))
	if err != nil {
		return nil, errors.Join(err, g.destroy())
	}
	g.device.mu.Lock()
	defer g.device.mu.Unlock()
	g.device.graphs = append(g.device.graphs, g)
	return g, nil
}

// fail notes the first error.
func (c *capture) fail(err error) error {
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	return err
}

// join takes a stream into the capture.
func (c *capture) join(s *Stream) error {
	if err := s.stream.Wait(c.fork, 0); err != nil {
		return callError("cuStreamWaitEvent", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.capture, c.joined = c, append(c.joined, s)
	return nil
}

// record puts two things into the graph. A node records the event at every launch, for observers outside. The event's
// place within is for waits in the same capture.
func (c *capture) record(s *Stream, e *Event) error {
	inner, err := e.markWithin(c)
	if err != nil {
		return err
	}
	if err := driver.RecordExternal(e.event, s.stream); err != nil {
		return callError("cuEventRecordWithFlags", err)
	}
	if err := inner.Record(s.stream); err != nil {
		return callError("cuEventRecord", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.records, e) {
		c.records = append(c.records, e)
	}
	return nil
}

// wait makes later work of s wait for e: for its place in the capture, or else, at every launch, for its latest Record.
func (c *capture) wait(s *Stream, e *Event) error {
	if inner, within := e.within(c); within {
		return callError("cuStreamWaitEvent", s.stream.Wait(inner, 0))
	}
	if _, _, err := e.state(); err != nil {
		return err
	}
	return callError("cuStreamWaitEvent", s.stream.Wait(e.event, driver.WaitExternal))
}

// Graph is a captured piece of a step, as one launch.
type Graph struct {
	device  *Device
	exec    driver.Exec
	nodes   int
	streams []*Stream  // that the piece uses; the origin first
	before  []cu.Event // what each of streams holds when the graph is launched
	after   cu.Event   // the end of the latest launch
	records []*Event
}

var _ Launch = (*Graph)(nil)

// join makes the origin wait for the other streams, which ends their part in the capture.
func (g *Graph) join(origin *Stream) (err error) {
	g.before = make([]cu.Event, len(g.streams))
	if g.after, err = cu.MakeEvent(cu.DisableTiming); err != nil {
		return callError("cuEventCreate", err)
	}
	for i, s := range g.streams {
		if g.before[i], err = cu.MakeEvent(cu.DisableTiming); err != nil {
			return callError("cuEventCreate", err)
		}
		if err := order(g.before[i], s.stream, origin.stream); err != nil {
			return err
		}
	}
	return nil
}

// order makes the second stream wait for what the first one holds.
func order(e cu.Event, first, second cu.Stream) error {
	if first == second {
		return nil
	}
	if err := e.Record(first); err != nil {
		return callError("cuEventRecord", err)
	}
	return callError("cuStreamWaitEvent", second.Wait(e, 0))
}

func (g *Graph) instantiate(graph driver.Graph, origin *Stream) (err error) {
	if g.nodes, err = graph.Nodes(); err != nil {
		return callError("cuGraphGetNodes", err)
	}
	if g.exec, err = graph.Instantiate(); err != nil {
		return callError("cuGraphInstantiate", err)
	}
	return callError("cuGraphUpload", g.exec.Upload(origin.stream))
}

// Kernel says what it is, for traces and errors.
func (g *Graph) Kernel() string { return fmt.Sprintf("graph of %d nodes", g.nodes) }

// Nodes returns how many kernels, copies, waits and records the graph has.
func (g *Graph) Nodes() int { return g.nodes }

// Issue launches the graph behind everything that its streams hold, and makes them wait for it.
func (g *Graph) Issue(s cu.Stream) error {
	if g.device.capturing.Load() != nil {
		return ErrCapturing
	}
	err := g.launch(s)
	for _, e := range g.records {
		e.mark(err, g)
	}
	if err != nil {
		for _, t := range g.streams {
			_ = t.stopWith(g.Kernel(), err)
		}
	}
	return err
}

func (g *Graph) launch(s cu.Stream) error {
	for i, t := range g.streams {
		if err := t.failure(); err != nil {
			return err
		}
		if err := order(g.before[i], t.stream, s); err != nil {
			return err
		}
	}
	if err := g.exec.Launch(s); err != nil {
		return callError("cuGraphLaunch", err)
	}
	if err := g.after.Record(s); err != nil {
		return callError("cuEventRecord", err)
	}
	for _, t := range g.streams {
		if t.stream == s {
			continue
		}
		if err := t.stream.Wait(g.after, 0); err != nil {
			return callError("cuStreamWaitEvent", err)
		}
	}
	return nil
}

// destroy gives back what there is; the context is current.
func (g *Graph) destroy() error {
	var all error
	if g.exec != (driver.Exec{}) {
		all = g.exec.Destroy()
	}
	for _, e := range append(g.before, g.after) {
		if e != (cu.Event{}) {
			all = errors.Join(all, cu.DestroyEvent(&e))
		}
	}
	return callError("cuGraphExecDestroy", all)
}
