package interop

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/bounded"
	"plimsoll/internal/fields"
	"plimsoll/internal/visible"
)

// Action is the action of an op of a schedule. The set is closed.
type Action uint8

// The actions. B is a whole backward, I and W its halves: gradient of the input, gradient of the weights. A send puts the
// result of its stage on the link, a receive makes the stage take what the other end sends.
const (
	Forward Action = iota
	Backward
	BackwardInput
	BackwardWeight
	SendForward
	ReceiveForward
	SendBackward
	ReceiveBackward
)

var actionNames = [...]string{
	Forward: "F", Backward: "B", BackwardInput: "I", BackwardWeight: "W",
	SendForward: "SEND_F", ReceiveForward: "RECV_F", SendBackward: "SEND_B", ReceiveBackward: "RECV_B",
}

// untimed are PyTorch's other entries of a table: sharded weights, sums of gradients, ends of sends. They take no time
// here.
var untimed = []string{"UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD", "WAIT_UNSHARD", "WAIT_RESHARD",
	"WAIT_SEND_F", "WAIT_SEND_B", "WAIT_RECV_F", "WAIT_RECV_B"}

// Compute reports whether the action takes time on the device.
func (a Action) Compute() bool { return a <= BackwardWeight }

func (a Action) String() string { return actionNames[a] }

// Op is one op of a rank.
type Op struct {
	Action     Action
	Stage      int // from 0
	Microbatch int // from 0
	Cell       int // where it stands in its row, from 0; the two of an overlapping pair share a cell
}

// String returns the op as in a table: "3F2".
func (o Op) String() string {
	return fmt.Sprintf("%d%s%d", o.Stage, actionNames[o.Action], o.Microbatch)
}

// Schedule holds the ops of each rank of a pipeline in one minibatch, in the rank's order.
//
// Source: torch.distributed.pipelining, whose schedules print and read such tables.
type Schedule struct {
	Name         string
	File         string
	Rows         [][]Op // by rank
	Lines        []int  // of the file, by rank
	Stages       int    // one more than the largest stage named
	Microbatches int    // one more than the largest microbatch named
	Rank         []int  // of each stage; none where no rank computes it
	Lowered      bool   // sends and receives are ops of the table
}

// none is no rank and no op.
const none = -1

// Bounds of what a table may name: far above any real one.
const (
	maxStages       = 4096
	maxMicrobatches = 1 << 16
)

// LooksLikeSchedule reports whether a text begins as a table does: with an op, "0F0" or "0UNSHARD".
func LooksLikeSchedule(text string) bool {
	cell, _, _ := strings.Cut(strings.TrimLeft(text, ", \r\n"), ",")
	parts := split(strings.TrimSpace(cell))
	if len(parts) == 0 {
		return false
	}
	_, _, reason := parseOp(parts[0])
	return reason == ""
}

// ReadSchedule reads a table. Errors: *fields.FileError, those of the file system.
func ReadSchedule(path string) (*Schedule, error) {
	data, err := bounded.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseSchedule(path, data)
}

// ParseSchedule reads a table: a row for each rank, a cell for each op, "3F2" or the pair "(7F4;0B0)OVERLAP_F_B", whose ops
// run one after the other. Empty cells are bubbles of the printed table and mean nothing: a rank runs its row in order.
// Argument file is the table's name in errors; without folder and ".csv", it is the schedule's name.
func ParseSchedule(file string, data []byte) (*Schedule, error) {
	s := &Schedule{Name: visible.Name(file, ".csv"), File: file}
	for i, line := range bytes.Split(bytes.TrimRight(data, "\r\n"), []byte("\n")) {
		row, err := s.row(i+1, string(bytes.TrimRight(line, "\r")))
		if err != nil {
			return nil, err
		}
		s.Rows, s.Lines = append(s.Rows, row), append(s.Lines, i+1)
	}
	if s.Stages == 0 {
		return nil, &fields.FileError{File: file, Field: "op", Reason: "is missing: no rank computes anything"}
	}
	if len(s.Rows) > maxStages {
		return nil, &fields.FileError{File: file, Field: "rank", Value: fmt.Sprint(len(s.Rows)), Reason: fmt.Sprintf("is more than %d rows", maxStages)}
	}
	return s, s.place()
}

func (s *Schedule) row(line int, text string) (row []Op, err error) {
	for cell, token := range strings.Split(text, ",") {
		for _, part := range split(strings.TrimSpace(token)) {
			op, timed, reason := parseOp(part)
			if reason != "" {
				return nil, &fields.FileError{File: s.File, Line: line, Field: fmt.Sprintf("op %d", cell), Value: part, Reason: reason}
			}
			if timed {
				op.Cell = cell
				row = append(row, op)
				s.see(op)
			}
		}
	}
	return row, nil
}

func (s *Schedule) see(op Op) {
	s.Stages = max(s.Stages, op.Stage+1)
	s.Microbatches = max(s.Microbatches, op.Microbatch+1)
	s.Lowered = s.Lowered || !op.Action.Compute()
}

// split returns the ops of a cell; a cell without any has none.
func split(cell string) []string {
	if cell == "" {
		return nil
	}
	inner, ok := strings.CutPrefix(cell, "(")
	if inner, after, closed := strings.Cut(inner, ")"); ok && closed && strings.HasPrefix(after, "OVERLAP") {
		return strings.Split(inner, ";")
	}
	return []string{cell}
}

// parseOp reads "3F2"; timed is false for what takes no time.
func parseOp(text string) (op Op, timed bool, reason string) {
	digit := func(r rune) bool { return r >= '0' && r <= '9' }
	rest := strings.TrimLeftFunc(text, digit)
	name := strings.TrimRightFunc(rest, digit)
	stage, ok := number(text[:len(text)-len(rest)], maxStages)
	if !ok {
		return op, false, fmt.Sprintf("does not begin with a stage, 0 to %d", maxStages-1)
	}
	at := slices.Index(actionNames[:], name)
	if at < 0 && slices.Contains(untimed, name) {
		return op, false, ""
	}
	microbatch, ok := number(rest[len(name):], maxMicrobatches)
	switch {
	case at < 0:
		return op, false, "is no op: F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B or a pair (...;...)OVERLAP_F_B"
	case !ok:
		return op, false, fmt.Sprintf("does not end with a microbatch, 0 to %d", maxMicrobatches-1)
	}
	return Op{Action: Action(at), Stage: stage, Microbatch: microbatch}, true, ""
}

func number(digits string, below int) (int, bool) {
	n, err := strconv.ParseUint(digits, 10, 32)
	return int(n), err == nil && int(n) < below
}

// place finds the rank of each stage.
func (s *Schedule) place() error {
	s.Rank = slices.Repeat([]int{none}, s.Stages)
	for rank, row := range s.Rows {
		for _, op := range row {
			if !op.Action.Compute() {
				continue
			}
			if at := s.Rank[op.Stage]; at != none && at != rank {
				return &fields.FileError{File: s.File, Line: s.Lines[rank], Field: fmt.Sprintf("op %d", op.Cell), Value: op.String(),
					Reason: fmt.Sprintf("puts stage %d on rank %d, line %d has it on rank %d: a stage is on one rank", op.Stage, rank, s.Lines[at], at)}
			}
			s.Rank[op.Stage] = rank
		}
	}
	return nil
}

// Violation is an op that is there twice, is missing, or does not belong in its row.
type Violation struct {
	Rank   int // none when no rank has the stage
	Op     Op
	Reason string
}

func (v Violation) String() string {
	if v.Rank == none {
		return fmt.Sprintf("%v %s", v.Op, v.Reason)
	}
	return fmt.Sprintf("rank %d: %v %s", v.Rank, v.Op, v.Reason)
}

// Violations returns the first breaches of the rules that hold in any order of a table. Every stage must run the forward and the backward,
// whole or in halves, of every microbatch exactly once. A send and its receive belong together, on the ranks of their stages, and two ranks
// send and receive in the same order. The result is in the order of ranks and ops; missing and crossed ops come last.
func (s *Schedule) Violations() []Violation {
	var out []Violation
	seen := map[Op]int{}
	for rank, row := range s.Rows {
		for _, op := range row {
			key := op.key()
			if seen[key]++; seen[key] == 2 {
				out = append(out, Violation{rank, op, "is there twice"})
			}
			if reason := s.misplaced(rank, op); reason != "" {
				out = append(out, Violation{rank, op, reason})
			}
		}
	}
	return append(append(out, s.missing(seen)...), s.crossed()...)
}

// crossed returns, for each pair of ranks, the first receive that would get the message of another send. Between two
// ranks, messages arrive in the order in which they are sent.
func (s *Schedule) crossed() (out []Violation) {
	sent := map[[2]int][]Op{}
	for rank, row := range s.Rows {
		for _, op := range row {
			if to := s.other(rank, op); to != none && op.Action.sends() {
				sent[[2]int{rank, to}] = append(sent[[2]int{rank, to}], op.key())
			}
		}
	}
	for rank, row := range s.Rows {
		for _, op := range row {
			from := s.other(rank, op)
			if from == none || op.Action.sends() {
				continue
			}
			queue := sent[[2]int{from, rank}]
			if len(queue) > 0 && queue[0] != op.peer() {
				out = append(out, Violation{rank, op, fmt.Sprintf("takes what rank %d sends next, %v", from, queue[0])})
				queue = nil
			}
			sent[[2]int{from, rank}] = queue[min(1, len(queue)):]
		}
	}
	return out
}

// other returns the rank at the other end of a send or receive of a rank; none for other ops and for what is misplaced.
func (s *Schedule) other(rank int, op Op) int {
	if op.Action.Compute() || s.misplaced(rank, op) != "" {
		return none
	}
	return s.Rank[op.Stage+op.Action.direction()]
}

// sends reports whether the action is a send.
func (a Action) sends() bool { return a == SendForward || a == SendBackward }

// key is the op wherever it stands.
func (o Op) key() Op {
	o.Cell = 0
	return o
}

// misplaced says why a send or a receive cannot be in the row, or "".
func (s *Schedule) misplaced(rank int, op Op) string {
	if op.Action.Compute() {
		return ""
	}
	other := op.Stage + op.Action.direction()
	switch {
	case s.Rank[op.Stage] != rank:
		return fmt.Sprintf("is in the row of rank %d, stage %d is not there", rank, op.Stage)
	case other < 0 || other >= s.Stages:
		return "has no stage at the other end"
	case s.Rank[other] == rank:
		return fmt.Sprintf("goes to stage %d of the same rank", other)
	}
	return ""
}

// direction returns where the other end of a send or receive is: 1 for the next stage, -1 for the one before.
func (a Action) direction() int {
	if a == SendForward || a == ReceiveBackward {
		return 1
	}
	return -1
}

// peer returns the op at the other end of a send or receive.
func (o Op) peer() Op {
	return Op{Action: [...]Action{SendForward: ReceiveForward, ReceiveForward: SendForward, SendBackward: ReceiveBackward, ReceiveBackward: SendBackward}[o.Action],
		Stage: o.Stage + o.Action.direction(), Microbatch: o.Microbatch}
}

func (s *Schedule) missing(seen map[Op]int) (out []Violation) {
	for stage := range s.Stages {
		for m := range s.Microbatches {
			if len(out) > mostViolations {
				return out
			}
			out = append(out, s.lacks(seen, stage, m)...)
		}
	}
	return append(out, s.alone(seen)...)
}

// mostViolations bounds what is said about a table that lacks nearly everything.
const mostViolations = 20

// lacks returns the violations by the ops of one microbatch in one stage.
func (s *Schedule) lacks(seen map[Op]int, stage, m int) (out []Violation) {
	op := func(a Action) Op { return Op{Action: a, Stage: stage, Microbatch: m} }
	add := func(a Action, reason string) { out = append(out, Violation{s.Rank[stage], op(a), reason}) }
	if seen[op(Forward)] == 0 {
		add(Forward, "is missing")
	}
	whole, in, weight := seen[op(Backward)], seen[op(BackwardInput)], seen[op(BackwardWeight)]
	switch {
	case whole > 0 && in+weight > 0:
		add(Backward, "is there beside a half of it")
	case whole+in+weight == 0:
		add(Backward, "is missing")
	case whole == 0 && in == 0:
		add(BackwardInput, "is missing")
	case whole == 0 && weight == 0:
		add(BackwardWeight, "is missing")
	}
	return out
}

// alone returns the missing ends of sends and receives.
func (s *Schedule) alone(seen map[Op]int) (out []Violation) {
	for op := range seen {
		if op.Action.Compute() {
			continue
		}
		if end := op.peer(); seen[end] == 0 && end.Stage >= 0 && end.Stage < s.Stages {
			out = append(out, Violation{s.Rank[end.Stage], end, fmt.Sprintf("is missing, %v is there", op)})
		}
	}
	slices.SortFunc(out, func(v, w Violation) int { return v.Op.compare(w.Op) })
	return out[:min(len(out), mostViolations)]
}

func (o Op) compare(p Op) int {
	return cmp.Or(cmp.Compare(o.Stage, p.Stage), cmp.Compare(o.Microbatch, p.Microbatch), cmp.Compare(o.Action, p.Action))
}

// Costs are the times of the ops of a schedule, in seconds.
type Costs struct {
	Compute [4][]float64 // by F, B, I, W and stage
	// Forward and Backward are the communications of the boundary behind a stage: a_l and δ_l, l its last layer.
	Forward, Backward []float64
}
