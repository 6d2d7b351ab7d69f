package kernels

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/runtime"
)

// Use is one operand of a call in memory and what the call does with it.
type Use struct {
	Operand
	Span  runtime.Span
	Bytes int64 // that the call touches, from the start of the span
	Read  bool
	Write bool
}

func (u Use) String() string { return fmt.Sprintf("%v at %v", u.Operand, u.Span) }

// touched returns the bytes that the call reads or writes.
func (u Use) touched() runtime.Span {
	return runtime.Span{Space: u.Span.Space, Offset: u.Span.Offset, Bytes: u.Bytes}
}

type uses []Use

func (l *uses) add(r Role, index int, s runtime.Span, bytes int64, read, write bool) {
	*l = append(*l, Use{Operand: Operand{r, index}, Span: s, Bytes: bytes, Read: read, Write: write})
}

func at(spans []runtime.Span, i int) runtime.Span {
	if i < len(spans) {
		return spans[i]
	}
	return runtime.Span{}
}

// check refuses an operand that is not in a space, too short or misaligned.
func (u Use) check(kind string, space runtime.Space) error {
	switch s := u.Span; {
	case s.Space != space:
		return bad(kind, u.Operand.String(), "%v is not in the space %v", s, space)
	case s.Bytes < u.Bytes:
		return bad(kind, u.Operand.String(), "%v has %d bytes, the call needs %d", s, s.Bytes, u.Bytes)
	case s.Offset < 0 || s.Offset%Alignment != 0:
		return bad(kind, u.Operand.String(), "%v does not start at a multiple of %d", s, Alignment)
	}
	return nil
}

// checkUses refuses operands that are not in a space, too short or misaligned, or that overlap.
func checkUses(kind string, space runtime.Space, uses []Use) error {
	for _, u := range uses {
		if err := u.check(kind, space); err != nil {
			return err
		}
	}
	placed := slices.DeleteFunc(slices.Clone(uses), func(u Use) bool { return u.Bytes == 0 })
	slices.SortStableFunc(placed, func(u, v Use) int { return cmp.Compare(u.Span.Offset, v.Span.Offset) })
	for i := 1; i < len(placed); i++ {
		if u, v := placed[i], placed[i-1]; u.touched().Overlaps(v.touched()) {
			return bad(kind, u.Operand.String(), "%v overlaps %v", u, v)
		}
	}
	return nil
}
