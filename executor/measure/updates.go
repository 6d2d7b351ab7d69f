package measure

import (
	"cmp"
	"context"

	"plimsoll/planner/chain"
)

// updates measures the updates of all layers, on the device and on the host, and the host's memory, and writes them into the chain.
func (s *session) updates(ctx context.Context, classes []*updateClass, c *chain.Chain) (err error) {
	target, err := s.open()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, target.Device.Close()) }()
	room := updateRoomBytes(s.Optimizer, classes)
	m := &updateMeter{session: s, target: target, arena: min(s.limit, room), host: room}
	if s.hostLimit > 0 {
		m.host = min(m.host, s.hostLimit)
	}
	if err := m.open(c); err != nil {
		return err
	}
	for _, class := range classes {
		if err := m.measure(ctx, class, c); err != nil {
			return err
		}
		s.step()
	}
	if m.onHost == nil || len(classes) == 0 {
		return nil
	}
	return m.contend(ctx, largestClass(classes), c)
}
