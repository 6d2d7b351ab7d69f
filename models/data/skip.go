package data

import (
	"errors"
	"slices"
	"sync"
)

// skips remembers the bad samples that were met.
type skips struct {
	options *Options
	mu      sync.RWMutex
	seen    map[string]bool
	count   int64
}

// skippable lists the errors that lie in the bytes of a sample and will be there again.
var skippable = []error{ErrCorrupt, ErrTruncated, ErrTooLarge, ErrLabel}

// pass returns nil for an error that the options allow to pass over. It counts the samples that it stands for, and
// reports it, once for each name.
func (s *skips) pass(name string, samples int64, err error) error {
	bad := slices.ContainsFunc(skippable, func(kind error) bool { return errors.Is(err, kind) })
	if !bad || !s.options.SkipBad {
		return err
	}
	if s.add(name, samples) && s.options.OnSkip != nil {
		s.options.OnSkip(err)
	}
	return nil
}

func (s *skips) add(name string, samples int64) (fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[name] {
		return false
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[name] = true
	s.count += samples
	return true
}

// known says whether a sample was found to be bad before.
func (s *skips) known(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.seen[name]
}

// Skipped implements Skipper.
func (s *skips) Skipped() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.count
}
