package host

import (
	"fmt"
	"strings"
)

// Dump says what each stream is doing and what it waits for, one line a stream. It is for a watchdog that has seen
// no progress for long:
//
//	cpu: 2 streams
//	  compute: 12 of 40 done, now conv2d
//	  offload: 3 of 9 done, now wait for command 13 of cpu, stream compute
func (d *Device) Dump() string {
	d.mu.Lock()
	streams, guests := d.streams, d.guests
	d.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d streams\n", d.config.Name, len(streams))
	for _, s := range streams {
		fmt.Fprintf(&b, "  %s\n", s.progressLine())
	}
	if guests > 0 {
		fmt.Fprintf(&b, "  copies of peers into the arena, pending: %d\n", guests)
	}
	return b.String()
}

func (s *Stream) progressLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("%s: %d of %d done", s.name, s.done, s.issued)
	if s.done < s.issued {
		line += ", now " + s.slot(s.done+1).String()
	}
	if s.err != nil {
		line += ", stopped: " + s.err.Error()
	}
	return line
}
