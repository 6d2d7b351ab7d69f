package schedule

import (
	"math"

	"plimsoll/planner/chain"
)

// contend sets how fast everything that runs goes on from now: an op takes Beside times as long while copies run, a copy CopiesBeside
// times as long while an op does, and less where the link is slower than the one that was measured. Between two instants at which something
// starts or ends, rates are constant. What nothing has changed for keeps its end, to the bit.
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
	if k != 0 {
		if s.streams[0].running == none {
			return 1
		}
		return s.beside.copies[way(s.seq[s.streams[k].running].Kind)]
	}
	which := none
	for _, link := range s.streams[1:] {
		switch {
		case link.running == none:
		case which != none:
			which = chain.BothWays
		default:
			which = way(s.seq[link.running].Kind)
		}
	}
	if which == none {
		return 1
	}
	return s.beside.of(s.seq[s.streams[0].running])[which]
}

// way returns where a transfer goes.
func way(k Kind) int {
	if k == Offload {
		return chain.ToHost
	}
	return chain.ToDevice
}

// besides is what a chain says that ops and copies take from each other, as it is over a link.
type besides struct {
	c                 *chain.Chain
	bandwidth         float64        // of the link
	forward, backward []chain.Beside // by layer, from 0
	copies            chain.CopiesBeside
}

// newBesides returns them over the link that the chain was measured with, nil where it says nothing.
func newBesides(c *chain.Chain) *besides {
	if !c.Contends() {
		return nil
	}
	b := &besides{c: c, forward: make([]chain.Beside, c.Len()), backward: make([]chain.Beside, c.Len())}
	b.scale(c.Bandwidth)
	return b
}

// over makes them those over a link, once for all runs over it.
func (b *besides) over(bandwidth float64) {
	if bandwidth != b.bandwidth {
		b.scale(bandwidth)
	}
}

func (b *besides) scale(bandwidth float64) {
	b.bandwidth, b.copies = bandwidth, chain.CopiesBeside{1, 1}
	if of := b.c.CopiesBeside; of != nil {
		for way, times := range of {
			b.copies[way] = b.c.CopyBeside(times, bandwidth)
		}
	}
	for i := range b.c.Layers {
		b.ops(&b.forward[i], b.c.Layers[i].ForwardBeside)
		b.ops(&b.backward[i], b.c.Layers[i].BackwardBeside)
	}
}

// ops sets the factors of an op by those of the chain, which may have none.
func (b *besides) ops(to, of *chain.Beside) {
	if *to = (chain.Beside{1, 1, 1}); of == nil {
		return
	}
	for way, times := range of {
		to[way] = b.c.OpBeside(times, b.bandwidth)
	}
}

// of returns the factors of a compute op.
func (b *besides) of(op Op) *chain.Beside {
	if op.Kind == Backward {
		return &b.backward[op.Layer-1]
	}
	return &b.forward[op.Layer-1]
}
