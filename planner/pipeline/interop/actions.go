package interop

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"plimsoll/internal/fields"
)

// Storage is where checkpoint_schedules keeps data.
type Storage string

// The storages. Work is memory that is used at once, RAM memory for checkpoints: both are device memory here; Disk is the
// host.
const (
	RAM  Storage = "RAM"
	Disk Storage = "DISK"
	Work Storage = "WORK"
	None Storage = "NONE"
)

// Instruction is one action of checkpoint_schedules. Steps count from 0; step k is layer k+1.
//
//	Forward(n0, n1, write_ics, write_adj_deps, storage)  steps n0..n1-1; keep a_n0, keep the saved sets of the steps
//	Reverse(n1, n0, clear_adj_deps)                      backwards of steps n1-1..n0
//	Copy(n, from, to), Move(n, from, to)                 the data of step n; Move leaves none behind
//	EndForward(), EndReverse()
type Instruction struct {
	Line      int    // of the file
	Name      string // Forward, Reverse, Copy, Move, EndForward, EndReverse
	First     int    // n0; n of Copy and Move
	Last      int    // n1; Unbounded for sys.maxsize
	KeepInput bool   // write_ics
	KeepSets  bool   // write_adj_deps; clear_adj_deps of Reverse
	From, To  Storage
}

// Unbounded is the end of a Forward that goes to the end of whatever chain.
const Unbounded = math.MaxInt32

// Actions are the lines that checkpoint_schedules prints: the actions of a schedule, in order.
//
// Source: checkpoint_schedules, the Python package of the Firedrake project, its user guide.
type Actions struct {
	File  string
	Steps []Instruction
}

// LooksLikeActions reports whether a text begins as a list of actions does.
func LooksLikeActions(text string) bool {
	text = strings.TrimLeft(text, "[( \t\r\n")
	return strings.HasPrefix(text, "Forward(")
}

// ParseActions reads actions as Python prints them, one a line or as a list: "Forward(0, 2, True, False, StorageType.RAM)",
// "[Forward(...), ...]". Storages may be "StorageType.RAM", "<StorageType.RAM: 0>" or 'RAM'. A # begins a comment.
func ParseActions(file string, data []byte) (*Actions, error) {
	a := &Actions{File: file}
	for i, line := range bytes.Split(data, []byte("\n")) {
		text, _, _ := strings.Cut(string(line), "#")
		if err := a.line(i+1, text); err != nil {
			return nil, err
		}
	}
	if len(a.Steps) == 0 {
		return nil, &fields.FileError{File: file, Field: "action", Reason: "is missing: the file holds none"}
	}
	return a, nil
}

// line takes the actions of a line.
func (a *Actions) line(number int, text string) error {
	for {
		text = strings.TrimLeft(text, "[], \t\r")
		if text == "" {
			return nil
		}
		name, rest, open := strings.Cut(text, "(")
		arguments, after, closed := strings.Cut(rest, ")")
		if !open || !closed {
			return &fields.FileError{File: a.File, Line: number, Field: "action", Value: text, Reason: "is not a name with its arguments in ( )"}
		}
		step, err := a.step(number, name, arguments)
		if err != nil {
			return err
		}
		a.Steps, text = append(a.Steps, step), after
	}
}

// parameters are the names of the arguments of every action.
var parameters = map[string][]string{
	"Forward":    {"n0", "n1", "write_ics", "write_adj_deps", "storage"},
	"Reverse":    {"n1", "n0", "clear_adj_deps"},
	"Copy":       {"n", "from_storage", "to_storage"},
	"Move":       {"n", "from_storage", "to_storage"},
	"EndForward": {},
	"EndReverse": {},
}

func (a *Actions) step(line int, name, arguments string) (Instruction, error) {
	step := Instruction{Line: line, Name: name}
	names, known := parameters[name]
	if !known {
		return step, &fields.FileError{File: a.File, Line: line, Field: "action", Value: name, Reason: "is none of Forward, Reverse, Copy, Move, EndForward, EndReverse"}
	}
	var values []string
	if strings.TrimSpace(arguments) != "" {
		values = strings.Split(arguments, ",")
	}
	if len(values) != len(names) {
		return step, &fields.FileError{File: a.File, Line: line, Field: name, Value: arguments, Reason: fmt.Sprintf("is not %d arguments: %s", len(names), strings.Join(names, ", "))}
	}
	for i, field := range names {
		value := strings.TrimSpace(values[i])
		if reason := step.set(field, value); reason != "" {
			return step, &fields.FileError{File: a.File, Line: line, Field: field, Value: value, Reason: reason}
		}
	}
	if step.First > step.Last && (name == "Forward" || name == "Reverse") {
		return step, &fields.FileError{File: a.File, Line: line, Field: "n0", Value: fmt.Sprint(step.First), Reason: fmt.Sprintf("is larger than n1, %d", step.Last)}
	}
	return step, nil
}

// set sets an argument; it returns why it cannot, or "".
func (s *Instruction) set(field, value string) (reason string) {
	switch field {
	case "n0", "n":
		s.First, reason = stepNumber(value)
	case "n1":
		s.Last, reason = stepNumber(value)
	case "write_ics":
		s.KeepInput, reason = boolean(value)
	case "write_adj_deps", "clear_adj_deps":
		s.KeepSets, reason = boolean(value)
	case "from_storage":
		s.From, reason = storage(value)
	default:
		s.To, reason = storage(value)
	}
	return reason
}

func stepNumber(text string) (int, string) {
	if text == "sys.maxsize" || text == strconv.Itoa(math.MaxInt64) {
		return Unbounded, ""
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n >= Unbounded {
		return 0, "is not the number of a step"
	}
	return int(n), ""
}

func boolean(text string) (value bool, reason string) {
	switch text {
	case "True":
		return true, ""
	case "False":
		return false, ""
	}
	return false, "is not True or False"
}

func storage(text string) (Storage, string) {
	name := strings.Trim(text, `<>'"`)
	name = strings.TrimPrefix(name, "StorageType.")
	name, _, _ = strings.Cut(name, ":")
	switch s := Storage(strings.ToUpper(name)); s {
	case RAM, Disk, Work, None:
		return s, ""
	}
	return "", "is none of StorageType.RAM, DISK, WORK, NONE"
}
