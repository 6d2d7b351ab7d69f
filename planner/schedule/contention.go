package schedule

import (
	"math"

	"plimsoll/planner/chain"
)

// contend sets how fast everything that runs goes on from now. An op takes Beside times as long while copies run, a copy CopiesBeside times
// as long while an op does. Both are less if the link is slower than the measured one. Between two instants at which something starts or
// ends, rates are constant. An op or a copy with an unchanged rate keeps its end, to the bit.
func (s *Simulator) contend() {
	if s.beside == nil || math.IsInf(s.now, 0) {
		return
	}
	for k := range s.streams {
		ln := &s.streams[k]
		if ln.running == none {
			continue
		}
		slower := s.slower(k)
		if slower == ln.slower {
			continue
		}
		ln.left = max(0, ln.left-(s.now-ln.since)/ln.slower)
		ln.since, ln.slower = s.now, slower
		end := s.now + ln.left*slower
		if k == 0 {
			s.busy += end - ln.end
		}
		ln.end, s.result.End[ln.running] = end, end
	}
}

// slower returns how many times as long what stream k runs takes beside what the others run.
func (s *Simulator) slower(k int) float64 {
	var beside chain.Running
	for i := range s.streams {
		switch running := s.streams[i].running; {
		case running == none || i == k:
		case i == 0:
			beside |= chain.RunningOp
		default:
			beside |= 1 << way(s.seq[running].Kind)
		}
	}
	switch op := s.seq[s.streams[k].running]; {
	case k != 0:
		return s.beside.Copy(way(op.Kind), beside)
	case op.Kind == Backward:
		return s.beside.Backward(op.Layer, beside)
	default:
		return s.beside.Forward(op.Layer, beside)
	}
}

// way returns where a transfer goes.
func way(k Kind) int {
	if k == Offload {
		return chain.ToHost
	}
	return chain.ToDevice
}
