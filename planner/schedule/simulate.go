package schedule

import (
	"math"

	"plimsoll/planner/chain"
)

// NoLimit is the memory limit of a simulation in which nothing waits for memory.
const NoLimit = math.MaxInt64

// Limits is the device of a simulation.
type Limits struct {
	Memory int64 // M, bytes, a_0 included; NoLimit for none
	Link   Link
	Host   int64 // bytes of host memory for copies (HostBytes); 0: no limit
}

// Point is a step of the memory curve: from Time on, until the next point, Bytes are in use.
type Point struct {
	Time  float64 // seconds
	Bytes int64
}

// Result holds the costs of a sequence. Times are seconds from the start of the first op.
type Result struct {
	Makespan float64 // the end of the last compute op
	Idle     float64 // Makespan less the time in which a compute op runs
	Peak     int64   // the largest sum of bytes at any instant
	PeakOp   int     // position of the op at whose start the peak is first reached; -1: a_0 alone
	Start    []float64
	End      []float64
	// Order holds every start and every end in the order in which they happen, also within one instant. Start of the
	// op at position p is p, its end ^p.
	Order []int
	// Curve holds every change of the memory in use, in the order in which they happen; of several at one
	// instant the last one lasts.
	Curve []Point
}

// Simulate replays a sequence in time and memory, with the semantics of section 4 of the design. Compute ops run one at a time and
// in order. Each starts as soon as the one before has ended, its prefetched operands have arrived and its memory fits. Transfers run
// in order of appearance on one link (thesis, assumption O.1), or, on a duplex link, in one queue per direction. A transfer starts
// when its queue is free and every compute op before it has ended; a prefetch also waits until its bytes fit. On a duplex link a
// prefetch waits for the end of the offload that made the host copy. There, too, an offload waits for a prefetch that still reads
// the host copy to be overwritten. On one link the order of the queue ensures both. If the chain says so, ops and copies are slower
// while they run beside each other (contend).
//
// Time and memory are linear in the number of ops. Errors: *RuleError, *MemoryError, *HostMemoryError, ErrNoLink, ErrEndless, and
// those of chain.Validate.
func Simulate(c *chain.Chain, seq Sequence, limits Limits) (*Result, error) {
	s, err := NewSimulator(c)
	if err != nil {
		return nil, err
	}
	return s.Run(seq, limits)
}

// Resimulate simulates a sequence that was planned with a chain, with the times of another one of the same sizes. Its ops take memory in the
// planned order, as an executor runs them: what fits with the planned times fits. Errors: those of Simulate.
func Resimulate(planned, c *chain.Chain, seq Sequence, limits Limits) (*Result, error) {
	first, err := Simulate(planned, seq, limits)
	if err != nil || c == planned {
		return first, err
	}
	s, err := NewSimulator(c)
	if err != nil {
		return nil, err
	}
	s.Order = first.Order
	return s.Run(seq, limits)
}

// Simulator simulates sequences of one chain, which must not change meanwhile. It allocates only when a sequence
// is longer than all before it, so that a search can call it in its inner loop.
type Simulator struct {
	replay
	// Stretch returns how many times as long as its costs say the op at a position takes; nil: once.
	Stretch func(position int) float64
	// Order is the Result.Order of a simulation with other times, in which ops then take memory. A sequence that fits with those times fits
	// with all. If Order is nil, each op takes memory as soon as it fits.
	Order []int

	c       *chain.Chain
	over    float64           // bandwidth of the link of beside
	beside  *chain.Contention // nil: nothing slows anything
	limits  Limits
	streams []stream
	now     float64
	turn    int // index in Order of the next op that takes memory
	used    int64
	ended   int // compute ops that have ended
	busy    float64
	seq     Sequence
	result  Result
}

// stream is a queue of ops of which one runs at a time: the compute stream or a direction of the link.
type stream struct {
	next    int // position of the next op to start; len(seq) when there is none
	running int // position of the op that runs, or none
	end     float64
	left    float64 // seconds that it would take alone, from since on
	since   float64
	slower  float64 // how many times as long it takes, since then
}

// NewSimulator validates the chain once for all sequences.
func NewSimulator(c *chain.Chain) (*Simulator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Simulator{c: c, over: c.Bandwidth, beside: c.ContentionOver(c.Bandwidth, c.Bandwidth)}, nil
}

// Run is Simulate. The result is valid until the next call of Run.
func (s *Simulator) Run(seq Sequence, limits Limits) (*Result, error) {
	if err := s.judge(s.c, seq); err != nil {
		return nil, err
	}
	if s.compute < len(seq) && !(limits.Link.Bandwidth > 0) {
		return nil, ErrNoLink
	}
	if bytes := s.c.AllInputBytes(); bytes > limits.Memory {
		return nil, &MemoryError{Index: none, Needed: bytes, Limit: limits.Memory}
	}
	if host := limits.Host; host > 0 {
		if needed := s.hostBytes(seq); needed > host {
			return nil, &HostMemoryError{needed, host}
		}
	}
	s.begin(seq, limits)
	for running := true; running; running = s.advance() {
		s.endAll()
		for s.startFirst() {
		}
		s.contend()
	}
	if p := s.waiting(); p < len(seq) {
		return nil, &MemoryError{p, seq[p], s.used, s.used + s.steps[p].takes, limits.Memory}
	}
	return s.finish()
}

func (s *Simulator) begin(seq Sequence, limits Limits) {
	s.seq, s.limits = seq, limits
	if b := limits.Link.Bandwidth; s.beside != nil && b != s.over {
		s.over, s.beside = b, s.c.ContentionOver(b, b)
	}
	// Far above any memory; keeps sums of bytes from overflowing when nothing waits for memory.
	s.limits.Memory = min(limits.Memory, 1<<62)
	s.now, s.busy, s.ended, s.used = 0, 0, 0, s.c.AllInputBytes()
	s.turn = s.nextTaker(0)
	r := &s.result
	*r = Result{Peak: s.used, PeakOp: none, Start: resize(r.Start, len(seq)), End: resize(r.End, len(seq)), Order: r.Order[:0], Curve: r.Curve[:0]}
	r.Curve = append(r.Curve, Point{0, s.used})
	streams := 2
	if limits.Link.Duplex {
		streams = 3
	}
	s.streams = s.streams[:0]
	for k := range streams {
		s.streams = append(s.streams, stream{running: none})
		s.streams[k].next = s.find(k, 0)
	}
}

func resize(x []float64, n int) []float64 {
	if cap(x) < n {
		return make([]float64, n)
	}
	return x[:n]
}

// laneOf returns the queue of an op: 0 compute, 1 the link, or on a duplex link 1 offloads and 2 prefetches.
func (s *Simulator) laneOf(k Kind) int {
	switch {
	case !k.Transfer():
		return 0
	case k == Prefetch && s.limits.Link.Duplex:
		return 2
	}
	return 1
}

// find returns the first position from p on of an op of stream k.
func (s *Simulator) find(k, p int) int {
	for p < len(s.seq) && s.laneOf(s.seq[p].Kind) != k {
		p++
	}
	return p
}

// endAll ends every op whose time has come.
func (s *Simulator) endAll() {
	for k := range s.streams {
		if ln := &s.streams[k]; ln.running != none && ln.end <= s.now {
			s.end(k, ln.running)
			ln.running = none
		}
	}
}

func (s *Simulator) end(k, p int) {
	st := &s.steps[p]
	st.ended = true
	s.result.Order = append(s.result.Order, ^p)
	used := s.used + st.leaves - st.takes
	if k == 0 {
		s.ended++
		s.result.Makespan = s.now
	}
	for _, o := range st.releases {
		if o == none {
			continue
		}
		offload := &s.steps[o]
		if offload.holds--; offload.holds == 0 {
			used -= offload.bytes
		}
	}
	s.use(used)
}

// use sets the memory in use.
func (s *Simulator) use(bytes int64) {
	if bytes != s.used {
		s.used = bytes
		s.result.Curve = append(s.result.Curve, Point{s.now, bytes})
	}
}

// startFirst starts, among the streams' next ops, the first in the sequence that can start now.
func (s *Simulator) startFirst() bool {
	best := none
	for k := range s.streams {
		ln := &s.streams[k]
		if ln.running == none && ln.next < len(s.seq) && (best == none || ln.next < s.streams[best].next) && s.ready(k, ln.next) {
			best = k
		}
	}
	if best == none {
		return false
	}
	s.start(best)
	return true
}

// ready reports whether the op at position p of stream k can start now.
func (s *Simulator) ready(k, p int) bool {
	st := &s.steps[p]
	if k != 0 && s.ended < int(st.before) {
		return false
	}
	for _, w := range st.waits {
		if w != none && !s.steps[w].ended {
			return false
		}
	}
	if st.takes > 0 && s.turn < len(s.Order) && s.Order[s.turn] != p {
		return false
	}
	return s.used+st.takes <= s.limits.Memory
}

// nextTaker returns the first index in Order, from i on, of the start of an op that takes memory.
func (s *Simulator) nextTaker(i int) int {
	for i < len(s.Order) && (s.Order[i] < 0 || s.steps[s.Order[i]].takes <= 0) {
		i++
	}
	return i
}

func (s *Simulator) start(k int) {
	ln := &s.streams[k]
	p := ln.next
	st := &s.steps[p]
	seconds := st.seconds
	if k != 0 {
		seconds = float64(st.bytes) / s.limits.Link.Bandwidth
	}
	if s.Stretch != nil {
		seconds *= s.Stretch(p)
	}
	if k == 0 {
		s.busy += seconds
	}
	s.use(s.used + st.takes)
	if st.takes > 0 {
		s.turn = s.nextTaker(s.turn + 1)
	}
	if s.used > s.result.Peak {
		s.result.Peak, s.result.PeakOp = s.used, p
	}
	ln.running, ln.end, ln.next = p, s.now+seconds, s.find(k, p+1)
	ln.left, ln.since, ln.slower = seconds, s.now, 1
	s.result.Start[p], s.result.End[p] = s.now, ln.end
	s.result.Order = append(s.result.Order, p)
}

// advance moves to the next instant at which an op ends, which is this one again after an op of length 0; false
// when nothing runs.
func (s *Simulator) advance() bool {
	next, any := 0.0, false
	for k := range s.streams {
		if ln := &s.streams[k]; ln.running != none && (!any || ln.end < next) {
			next, any = ln.end, true
		}
	}
	if any {
		s.now = next
	}
	return any
}

// waiting returns the position of the first op that has not started. Everything before it has ended, so that it
// can only be waiting for memory.
func (s *Simulator) waiting() int {
	p := len(s.seq)
	for k := range s.streams {
		p = min(p, s.streams[k].next)
	}
	return p
}

func (s *Simulator) finish() (*Result, error) {
	if math.IsInf(s.now, 0) {
		return nil, ErrEndless
	}
	r := &s.result
	r.Idle = max(0, r.Makespan-s.busy) // two sums of the same times may round differently
	return r, nil
}
