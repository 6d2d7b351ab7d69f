//go:build cuda && linux && amd64

package cuda

import "plimsoll/runtime"

// Launch issues work that implements Launch or HostLaunch, or is a message of a staging.
func (s *Stream) Launch(l runtime.Launch) error {
	c, err := s.begin("launch")
	if err != nil {
		return err
	}
	defer s.end()
	switch work := l.(type) {
	case Launch:
		err = work.Issue(s.stream)
	case stopper:
		if err = ErrCapturing; c == nil {
			err = work.issueOn(s)
		}
	case HostLaunch:
		if err = ErrCapturing; c == nil {
			err = s.launchOnHost(work)
		}
	default:
		return s.wrap("launch", runtime.ErrForeignLaunch)
	}
	if err != nil {
		return s.stop(c, l.Kernel(), err)
	}
	return nil
}

// launchOnHost issues host work. The caller is between begin and end. The first call takes 64 bytes of page-locked memory, which do not
// count as memory of the host space; later calls allocate nothing.
func (s *Stream) launchOnHost(work HostLaunch) error {
	if s.host == nil {
		if err := s.openHost(); err != nil {
			return err
		}
	}
	return s.host.work(work, s)
}

func (s *Stream) openHost() error {
	s.device.mu.Lock()
	defer s.device.mu.Unlock()
	h := newStaging(s.device, "host work of "+s.name, 0)
	if err := h.open(); err != nil {
		return err
	}
	s.host = h
	return nil
}
