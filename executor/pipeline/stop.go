package pipeline

import (
	"errors"
	"slices"
)

// ErrEnough is returned by a run that would come behind the last one (Executor.Thaw).
var ErrEnough = errors.New("enough is trained")

// Freeze lets no more minibatches begin, in the run that goes on or in a later one, until Thaw. It returns how many runs have begun,
// and how many minibatches of each segment of the latest one have, which are all when it is over.
func (e *Executor) Freeze() (runs int, known []int) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
	for _, l := range s.running {
		if !s.active {
			known = append(known, l.End())
			continue
		}
		known = append(known, l.Freeze())
	}
	return s.runs, known
}

// Last returns where all stop, of what Freeze has returned in each process.
func Last(runs []int, known [][]int) (last int, most []int) {
	for p, n := range runs {
		if n > last {
			last, most = n, slices.Clone(known[p])
		}
		for i := 0; n == last && i < len(most); i++ {
			most[i] = max(most[i], known[p][i])
		}
	}
	return last, most
}

// Thaw goes on after Freeze. No run follows that of the given number, which ends as soon as the groups of these minibatches are
// complete.
func (e *Executor) Thaw(last int, known []int) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.frozen {
		return
	}
	s.frozen, s.agreed, s.last, s.known = false, true, last, known
	for i, l := range s.running {
		switch {
		case !s.active:
		case s.runs < last: // somebody knows all of this one
			l.Thaw(l.End(), e.group)
		default:
			l.Thaw(known[i], e.group)
		}
	}
	s.thawed.Broadcast()
}

// enter begins a run, when nothing is frozen. Errors: ErrEnough.
func (s *stopping) enter(running []runningSegment, group int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.frozen {
		s.thawed.Wait()
	}
	if s.agreed && s.runs >= s.last {
		return ErrEnough
	}
	s.runs++
	s.running, s.active = running, true
	if s.agreed && s.runs == s.last {
		for i, l := range running {
			l.Freeze()
			l.Thaw(s.known[i], group)
		}
	}
	return nil
}

// leave ends a run.
func (s *stopping) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = false
}
