package null

import (
	"fmt"
	"time"

	"plimsoll/runtime"
)

// NewStream returns a stream at time 0.
func (d *Device) NewStream(name string) (runtime.Stream, error) {
	defer lock()()
	return &stream{device: d, name: name}, d.wrap("new stream "+name, d.state)
}

// NewEvent returns an event that is not recorded.
func (d *Device) NewEvent() (runtime.Event, error) {
	defer lock()()
	return &event{device: d, at: never}, d.wrap("new event", d.state)
}

// stream is the simulated second at which everything issued to it so far has run.
type stream struct {
	device *Device
	name   string
	now    float64
}

func (s *stream) Name() string { return s.name }

func (s *stream) Launch(l runtime.Launch) error {
	defer lock()()
	cost, ok := l.(Cost)
	if err := s.admit("launch", ok, runtime.ErrForeignLaunch); err != nil {
		return err
	}
	if !isCost(cost.Seconds) {
		return s.wrap("launch "+cost.Name, fmt.Errorf("it takes %v seconds", cost.Seconds))
	}
	s.now += cost.Seconds
	return nil
}

func (s *stream) Copy(dst, src runtime.Span) error {
	defer lock()()
	return s.copy(dst, src)
}

func (s *stream) copy(dst, src runtime.Span) error {
	if err := s.admit("copy", true, nil); err != nil {
		return err
	}
	if err := s.device.extent.CheckCopy(dst, src); err != nil {
		return err
	}
	if dst.Space != src.Space {
		s.transfer(dst.Space, src.Bytes, s.device.config.Bandwidth)
	}
	return nil
}

func (s *stream) CopyPeer(peer runtime.Device, dst, src runtime.Span) error {
	defer lock()()
	p, ok := peer.(*Device)
	if err := s.admit("copy to peer", ok, runtime.ErrForeignPeer); err != nil {
		return err
	}
	if p == s.device {
		return s.copy(dst, src)
	}
	if p.state != nil {
		return s.wrap("copy to peer", p.wrap("copy from peer", p.state))
	}
	if err := s.device.extent.CheckPeerCopy(p.extent, dst, src); err != nil {
		return err
	}
	s.transfer(p, src.Bytes, s.device.config.PeerBandwidth)
	return nil
}

// transfer takes bytes/bandwidth on a link, from when both the stream and the link are free.
func (s *stream) transfer(link any, bytes int64, bandwidth float64) {
	if bandwidth == 0 {
		return
	}
	s.now = max(s.now, s.device.free[link]) + float64(bytes)/bandwidth
	s.device.free[link] = s.now
}

func (s *stream) Record(ev runtime.Event) error {
	defer lock()()
	e, ok := ev.(*event)
	if err := s.admit("record", ok && e.device == s.device, runtime.ErrForeignEvent); err != nil {
		return err
	}
	e.at = s.now
	return nil
}

func (s *stream) Wait(ev runtime.Event) error {
	defer lock()()
	e, ok := ev.(*event)
	if err := s.admit("wait", ok, runtime.ErrForeignEvent); err != nil {
		return err
	}
	s.now = max(s.now, e.at)
	return nil
}

func (s *stream) Synchronize() error {
	defer lock()()
	return s.admit("synchronize", true, nil)
}

// admit refuses calls to a closed device, and those whose argument is not right.
func (s *stream) admit(op string, right bool, otherwise error) error {
	if s.device.state != nil {
		return s.wrap(op, s.device.state)
	}
	if !right {
		return s.wrap(op, otherwise)
	}
	return nil
}

func (s *stream) wrap(op string, err error) error {
	return s.device.wrap("stream "+s.name+": "+op, err)
}

// event is the simulated second of its latest Record.
type event struct {
	device *Device
	at     float64
}

const never = -1

func (e *event) Synchronize() error {
	defer lock()()
	return e.device.wrap("event", e.device.state)
}

func (e *event) Since(earlier runtime.Event) (time.Duration, error) {
	defer lock()()
	other, ok := earlier.(*event)
	switch {
	case e.device.state != nil:
		return 0, e.device.wrap("event", e.device.state)
	case !ok:
		return 0, e.device.wrap("event: since", runtime.ErrForeignEvent)
	case e.at == never || other.at == never:
		return 0, e.device.wrap("event: since", runtime.ErrNotRecorded)
	}
	return time.Duration((e.at - other.at) * float64(time.Second)), nil
}
