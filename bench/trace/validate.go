package trace

import (
	"fmt"
	"math"

	"plimsoll/internal/fields"
)

// maxTime is the largest time in seconds, 285 years; the nanoseconds of all smaller ones fit in 63 bits.
const maxTime = 9e9

// ErrTooLong is wrapped by the errors of traces with a time that no viewer has room for.
var ErrTooLong = fmt.Errorf("a timeline shows at most %g s", maxTime)

// Validate reports the first event that no viewer could show. Its time is negative, too large or not a number, or
// its slice overlaps or is out of order, or its arguments are not JSON, or its name is missing. Errors:
// ErrInvalid.
func (t *Trace) Validate() error {
	for _, p := range t.Processes {
		if err := p.validate(); err != nil {
			return fmt.Errorf("%w: process %q: %w", ErrInvalid, p.Name, err)
		}
	}
	return nil
}

func (p *Process) validate() error {
	if p.Name == "" {
		return fmt.Errorf("it has no name")
	}
	for _, track := range p.Tracks {
		if err := track.validate(); err != nil {
			return fmt.Errorf("track %q: %w", track.Name, err)
		}
	}
	for _, c := range p.Counters {
		if err := c.validate(); err != nil {
			return fmt.Errorf("counter %q: %w", c.Name, err)
		}
	}
	return nil
}

func (t *Track) validate() error {
	if t.Name == "" {
		return fmt.Errorf("it has no name")
	}
	var open []micros // ends of the slices around the current one, the innermost last
	var last micros
	for i, s := range t.Slices {
		if err := s.validate(); err != nil {
			return fmt.Errorf("slice %d %q: %w", i, s.Name, err)
		}
		start, end := nanos(s.Start), nanos(s.End)
		if start < last {
			return fmt.Errorf("slice %d %q: it starts at %g s, before slice %d", i, s.Name, s.Start, i-1)
		}
		last = start
		for len(open) > 0 && open[len(open)-1] <= start {
			open = open[:len(open)-1]
		}
		if len(open) > 0 && end > open[len(open)-1] {
			return fmt.Errorf("slice %d %q: it starts at %g s within a slice and ends at %g s after it", i, s.Name, s.Start, s.End)
		}
		open = append(open, end)
	}
	return nil
}

func (s *Slice) validate() error {
	switch {
	case s.Name == "":
		return fmt.Errorf("it has no name")
	case !(s.Start >= 0 && s.End >= s.Start && s.End <= math.MaxFloat64):
		return fmt.Errorf("start %g s and end %g s are not times", s.Start, s.End)
	}
	if s.End > maxTime {
		return fmt.Errorf("it ends at %g s: %w", s.End, ErrTooLong)
	}
	_, err := fields.Marshal(s.Args)
	return err
}

func (c *Counter) validate() error {
	if c.Name == "" || c.Unit == "" {
		return fmt.Errorf("it has no name or no unit")
	}
	last := 0.0
	for i, s := range c.Samples {
		if !(s.Time >= last && s.Time <= math.MaxFloat64) || s.Value-s.Value != 0 {
			return fmt.Errorf("sample %d, %g at %g s, is not a number at a time after the one before", i, s.Value, s.Time)
		}
		if s.Time > maxTime {
			return fmt.Errorf("sample %d is at %g s: %w", i, s.Time, ErrTooLong)
		}
		last = s.Time
	}
	return nil
}
