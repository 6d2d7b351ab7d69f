package world

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ErrLeft is the cause of the end of a world that everybody has left.
var ErrLeft = errors.New("the world has ended: every rank has left it")

// Why says how a rank ended the world.
type Why string

// How a rank ends the world.
const (
	Died   Why = "died"   // its connection was lost
	Silent Why = "silent" // for longer than Patience
	Failed Why = "failed" // it said so
	Left   Why = "left"   // while others went on
)

// RankError says which rank ended the world, and how. It is the same on all ranks.
type RankError struct {
	Rank    int           `json:"rank"`
	Host    string        `json:"host"`
	Status  string        `json:"status,omitempty"` // what it did last
	Why     Why           `json:"why"`
	Silence time.Duration `json:"silence,omitempty"`
	Text    string        `json:"text,omitempty"` // of the error that it failed with

	err error // which it failed with, on the rank itself
}

// Error is one line.
func (e *RankError) Error() string {
	text := fmt.Sprintf("rank %d on %s ", e.Rank, e.Host)
	switch e.Why {
	case Died:
		text += "died: its connection was lost"
	case Silent:
		text += fmt.Sprintf("was silent for %v", e.Silence)
	case Left:
		text += "left while others went on"
	default:
		text += "failed: " + e.Text
	}
	if e.Status != "" && e.Why != Failed {
		text += "; the last it said: " + e.Status
	}
	return text
}

// Unwrap returns the error that this rank failed with.
func (e *RankError) Unwrap() error { return e.err }

// DisagreementError says that two ranks differ in what must be the same everywhere.
type DisagreementError struct {
	What   string    `json:"what"`
	Ranks  [2]int    `json:"ranks"`
	Hosts  [2]string `json:"hosts"`
	Values [2]string `json:"values"` // "" where a rank has none
}

func (e *DisagreementError) Error() string {
	return fmt.Sprintf("ranks %d on %s and %d on %s differ in %s: %s and %s; all need the same",
		e.Ranks[0], e.Hosts[0], e.Ranks[1], e.Hosts[1], e.What, orNone(e.Values[0]), orNone(e.Values[1]))
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return clip(value, 64)
}

// MissingError says who has not come to the rendezvous.
type MissingError struct {
	Missing []int         `json:"missing"` // sorted
	Size    int           `json:"size"`
	Timeout time.Duration `json:"timeout"`
	Address string        `json:"address"` // of rank 0
	Refused []string      `json:"refused"` // who came and was turned away, and why
	last    error         // of this rank's attempts to reach rank 0
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("%s of %d missing after %v at %s", ranks(e.Missing), e.Size, e.Timeout, e.Address)
	if e.last != nil {
		text += ": " + e.last.Error()
	}
	if len(e.Refused) > 0 {
		text += "; turned away: " + strings.Join(e.Refused, ", ")
	}
	return text
}

// Unwrap returns why rank 0 was not reached, if it was not.
func (e *MissingError) Unwrap() error { return e.last }

// ranks names ranks in a text, in ranges: "ranks 1, 3 to 7".
func ranks(all []int) string {
	var parts []string
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && all[j] == all[j-1]+1 {
			j++
		}
		if part := fmt.Sprint(all[i]); j-i > 2 {
			parts = append(parts, part+" to "+fmt.Sprint(all[j-1]))
		} else {
			parts, j = append(parts, part), i+1
		}
		i = j
	}
	return map[bool]string{false: "ranks ", true: "rank "}[len(all) == 1] + strings.Join(parts, ", ")
}

// Reason says why rank 0 turned a process away.
type Reason string

// Why rank 0 turns a process away.
const (
	OtherSecret   Reason = "secret"
	OtherSize     Reason = "size"
	OtherProtocol Reason = "protocol"
	BadRank       Reason = "rank"
	Duplicate     Reason = "duplicate"
	Busy          Reason = "busy" // its world has started
)

// RefusalError says that a process cannot be part of this world. But for Busy, rank 0 gives up, too.
type RefusalError struct {
	Reason Reason `json:"reason"`
	Text   string `json:"text"`
}

func (e *RefusalError) Error() string { return e.Text }

// clip shortens what others said to at most n bytes.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "..."
}

// compare returns the first name in which another rank differs from rank 0, nil when there is none.
func compare(zero, other map[string]string) *DisagreementError {
	names := maps.Clone(zero)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, other)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, inA := zero[name]
		if b, inB := other[name]; a != b || inA != inB {
			return &DisagreementError{What: name, Values: [2]string{a, b}}
		}
	}
	return nil
}
