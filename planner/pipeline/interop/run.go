package interop

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrCosts: the times of a run are not all finite and at least 0, or not for as many stages as the schedule has.
var ErrCosts = errors.New("bad costs of a schedule")

// Run is a simulated run of a schedule. Every rank runs its row in order, each op as soon as the rank is free and the
// data is there. A schedule that cannot end is run as far as it goes.
type Run struct {
	Makespan float64   // the end of the last op that ran, s
	Busy     []float64 // s, by rank
	Bubble   float64   // 1 - all busy time / (ranks · makespan)
	PeakLive []int     // by rank: most forwards whose backward (B or W) has not ended
	// Start and End are those of the ops that ran, by rank and position in its row.
	Start, End [][]float64
	Transfers  []Transfer // that took time, in the order of their starts
	Stuck      []Stuck    // ranks that cannot go on, the one to look at first; none when all is run
}

// Transfer is a communication between two ranks; Op is its sending end.
type Transfer struct {
	Op         Op
	Start, End float64
}

// Stuck is an op that can never run.
type Stuck struct {
	Rank     int
	Index    int // of the op in its row
	Op       Op
	WaitsFor Op
	// Reason says where what it waits for is.
	Reason string
	since  float64
	nobody bool // no rank ever runs what it waits for
}

func (s Stuck) String() string {
	return fmt.Sprintf("rank %d cannot run %v (op %d, cell %d): it waits for %v, %s", s.Rank, s.Op, s.Index, s.Op.Cell, s.WaitsFor, s.Reason)
}

// Deadlock reports whether some op never ran.
func (r *Run) Deadlock() bool { return len(r.Stuck) > 0 }

// Run runs the schedule. A result goes over the link of its two ranks, in the order in which transfers can start. One
// transfer runs at a time, or one in each direction on a duplex link. A transfer that takes no time does not wait for
// the link. In a lowered schedule a transfer waits until its send and its receive have been reached; else it waits for
// its data only. Errors: ErrCosts.
func (s *Schedule) Run(c *Costs, duplex bool) (*Run, error) {
	if !c.fits(s.Stages) {
		return nil, fmt.Errorf("%w: %d stages", ErrCosts, s.Stages)
	}
	m := &machine{Schedule: s, costs: c, duplex: duplex, scheduled: map[Op]bool{}, done: map[Op]float64{}, arrived: map[Op]float64{}, link: map[[2]int]float64{}}
	m.begin()
	for m.step() {
	}
	if math.IsInf(m.run.Makespan, 0) {
		return nil, fmt.Errorf("%w: their sum is not finite", ErrCosts)
	}
	return m.finish(), nil
}

// fits reports whether there is a time for each stage, which a clock can show.
func (c *Costs) fits(stages int) bool {
	for _, times := range slices.Concat(c.Compute[:], [][]float64{c.Forward, c.Backward}) {
		bad := func(x float64) bool { return !(x >= 0 && x < math.MaxFloat64) }
		if len(times) != stages || slices.ContainsFunc(times, bad) {
			return false
		}
	}
	return true
}

// machine is a schedule while it runs. It does the earliest event that is possible. Time goes back only where a send stands
// behind a pair whose first op had ended before.
type machine struct {
	*Schedule
	costs     *Costs
	duplex    bool
	scheduled map[Op]bool        // ops that a row holds
	done      map[Op]float64     // end of an op
	arrived   map[Op]float64     // when the data of a receive is there, whether it is an op of the table or not
	link      map[[2]int]float64 // when it is free
	pending   []Transfer         // requested; Start is when it could, End not yet known
	sent      map[Op]float64     // when what a send of the table sends is there
	free      []float64          // by rank
	pair      []int              // by rank: the cell of the last op that took time
	live      []int              // by rank
	run       *Run
}

func (m *machine) begin() {
	ranks := len(m.Rows)
	m.free, m.live, m.pair = make([]float64, ranks), make([]int, ranks), make([]int, ranks)
	m.sent = map[Op]float64{}
	m.run = &Run{Busy: make([]float64, ranks), PeakLive: make([]int, ranks), Start: make([][]float64, ranks), End: make([][]float64, ranks)}
	for _, row := range m.Rows {
		for _, op := range row {
			m.scheduled[op.key()] = true
		}
	}
}

// step does the next event: a transfer, or else the op of the first rank that can start earliest. It returns false when
// there is none.
func (m *machine) step() bool {
	rank, start := none, math.Inf(1)
	for r := range m.Rows {
		if at, ok := m.ready(r); ok && at < start {
			rank, start = r, at
		}
	}
	if t, at := m.nextTransfer(); t != none && at <= start {
		m.transfer(t, at)
		return true
	}
	if rank == none {
		return false
	}
	m.do(rank, start)
	return true
}

// ready returns when the next op of a rank can start.
func (m *machine) ready(rank int) (at float64, ok bool) {
	next := len(m.run.Start[rank])
	if next == len(m.Rows[rank]) {
		return 0, false
	}
	at = m.free[rank]
	for _, need := range m.needs(m.Rows[rank][next]) {
		end, ok := m.time(need)
		if !ok {
			return 0, false
		}
		at = max(at, end)
	}
	return at, true
}

// needs returns the predecessors of an op: ops of its own stage, and receives.
func (m *machine) needs(op Op) []Op {
	own := func(a Action) Op { return Op{Action: a, Stage: op.Stage, Microbatch: op.Microbatch} }
	switch op.Action {
	case Forward:
		if op.Stage > 0 {
			return []Op{own(ReceiveForward)}
		}
	case Backward, BackwardInput:
		if op.Stage < m.Stages-1 {
			return []Op{own(Forward), own(ReceiveBackward)}
		}
		return []Op{own(Forward)}
	case BackwardWeight:
		return []Op{own(BackwardInput)}
	case SendForward:
		return []Op{own(Forward)}
	case SendBackward:
		return []Op{m.backward(op.Stage, op.Microbatch)}
	}
	return nil
}

// backward returns the op that gives δ: I where the table has it, else B.
func (m *machine) backward(stage, microbatch int) Op {
	op := Op{Action: BackwardInput, Stage: stage, Microbatch: microbatch}
	if !m.scheduled[op] {
		op.Action = Backward
	}
	return op
}

// time returns when what an op needs is there.
func (m *machine) time(need Op) (at float64, ok bool) {
	if need.Action == ReceiveForward || need.Action == ReceiveBackward {
		at, ok = m.arrived[need]
		return at, ok
	}
	at, ok = m.done[need]
	return at, ok
}

func (m *machine) do(rank int, start float64) {
	r := m.run
	op := m.Rows[rank][len(r.Start[rank])].key()
	end := start
	if op.Action.Compute() {
		seconds := m.costs.Compute[op.Action][op.Stage]
		end += seconds
		r.Busy[rank] += seconds
		r.Makespan = max(r.Makespan, end)
		m.count(rank, op.Action)
	}
	m.free[rank] = end
	m.done[op] = end
	m.note(rank, len(r.Start[rank]), op)
	r.Start[rank], r.End[rank] = append(r.Start[rank], start), append(r.End[rank], end)
	m.hand(op, end)
}

// note remembers when the result of a send can go: when the rank has reached it. If its op is in the pair that the rank
// has just run, the result can go when that op has ended, though the send stands after the pair.
func (m *machine) note(rank, index int, op Op) {
	row := m.Rows[rank]
	switch op.Action {
	case SendForward, SendBackward:
		m.sent[op] = m.free[rank]
		of := m.needs(op)[0]
		for i := index - 1; i >= 0 && row[i].Cell >= m.pair[rank]; i-- {
			if row[i].key() == of {
				m.sent[op] = m.done[of]
			}
		}
	case ReceiveForward, ReceiveBackward:
	default:
		m.pair[rank] = row[index].Cell
	}
}

func (m *machine) count(rank int, a Action) {
	switch a {
	case Forward:
		m.live[rank]++
		m.run.PeakLive[rank] = max(m.run.PeakLive[rank], m.live[rank])
	case Backward, BackwardWeight:
		m.live[rank]--
	}
}

// hand passes on what an op gives to another stage.
func (m *machine) hand(op Op, end float64) {
	send := op
	switch op.Action {
	case Forward:
		send.Action = SendForward
	case Backward, BackwardInput:
		send.Action = SendBackward
	case ReceiveForward, ReceiveBackward:
		send = op.peer()
	case BackwardWeight:
		return
	}
	to := send.Stage + send.Action.direction()
	inside := func(stage int) bool { return stage >= 0 && stage < m.Stages && m.Rank[stage] != none }
	if !inside(to) || !inside(send.Stage) {
		return
	}
	receive := send.peer()
	if m.Rank[to] == m.Rank[send.Stage] {
		m.arrived[receive] = end
		return
	}
	if m.Lowered {
		sent, ok1 := m.sent[send]
		posted, ok2 := m.done[receive]
		if !ok1 || !ok2 || op.Action.Compute() {
			return
		}
		end = max(sent, posted)
	}
	m.request(send, end)
}

func (m *machine) request(send Op, at float64) {
	if m.seconds(send) == 0 {
		m.arrived[send.peer()] = at
		return
	}
	m.pending = append(m.pending, Transfer{Op: send, Start: at})
}

// seconds returns the time of a transfer by its sending end.
func (m *machine) seconds(send Op) float64 {
	if send.Action == SendForward {
		return m.costs.Forward[send.Stage]
	}
	return m.costs.Backward[send.Stage-1]
}

// linkOf returns the link of a transfer: two ranks, in order unless there is one for each direction.
func (m *machine) linkOf(send Op) [2]int {
	from, to := m.Rank[send.Stage], m.Rank[send.Stage+send.Action.direction()]
	if m.duplex {
		return [2]int{from, to}
	}
	return [2]int{min(from, to), max(from, to)}
}

// nextTransfer returns the pending transfer that can start first, of equals the one that was asked for first.
func (m *machine) nextTransfer() (index int, at float64) {
	index, at = none, math.Inf(1)
	for i, t := range m.pending {
		if start := max(t.Start, m.link[m.linkOf(t.Op)]); start < at {
			index, at = i, start
		}
	}
	return index, at
}

func (m *machine) transfer(index int, start float64) {
	t := m.pending[index]
	m.pending = slices.Delete(m.pending, index, index+1)
	t.Start, t.End = start, start+m.seconds(t.Op)
	m.link[m.linkOf(t.Op)] = t.End
	m.arrived[t.Op.peer()] = t.End
	m.run.Transfers = append(m.run.Transfers, t)
}

func (m *machine) finish() *Run {
	r := m.run
	var busy float64
	for _, b := range r.Busy {
		busy += b
	}
	if r.Makespan > 0 {
		r.Bubble = 1 - busy/(float64(len(m.Rows))*r.Makespan)
	}
	for rank, row := range m.Rows {
		if next := len(r.Start[rank]); next < len(row) {
			r.Stuck = append(r.Stuck, m.stuck(rank, next))
		}
	}
	slices.SortStableFunc(r.Stuck, func(a, b Stuck) int {
		if a.nobody != b.nobody {
			return map[bool]int{true: -1, false: 1}[a.nobody]
		}
		return cmp.Compare(a.since, b.since)
	})
	return r
}

// stuck says what the next op of a rank waits for.
func (m *machine) stuck(rank, next int) Stuck {
	s := Stuck{Rank: rank, Index: next, Op: m.Rows[rank][next], since: m.free[rank]}
	for _, need := range m.needs(s.Op) {
		if _, ok := m.time(need); !ok {
			s.WaitsFor = m.source(need)
			break
		}
	}
	s.Reason, s.nobody = m.whereabouts(rank, next, s.WaitsFor)
	return s
}

// source returns the op whose end is missing for what an op needs.
func (m *machine) source(need Op) Op {
	if need.Action.Compute() {
		return need
	}
	if _, posted := m.done[need]; m.Lowered && m.Rank[need.peer().Stage] != m.Rank[need.Stage] {
		if posted {
			return need.peer()
		}
		return need
	}
	if from := need.peer(); from.Action == SendBackward {
		return m.backward(from.Stage, from.Microbatch)
	}
	return Op{Action: Forward, Stage: need.Stage - 1, Microbatch: need.Microbatch}
}

// whereabouts says where the op is for which the one at a position of a row waits; nobody: in no row.
func (m *machine) whereabouts(rank, next int, op Op) (reason string, nobody bool) {
	for r, row := range m.Rows {
		at := slices.IndexFunc(row, func(o Op) bool { return o.key() == op })
		switch {
		case at < 0:
		case r == rank && at > next:
			return "which comes later in the same row", true
		default:
			return fmt.Sprintf("op %d of rank %d, which is stuck too", at, r), false
		}
	}
	return "which no rank runs", true
}
