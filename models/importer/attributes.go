package importer

import (
	"fmt"
	"slices"
)

// attributes reads those of a node, each with what it is when it is left out.
type attributes struct {
	*Node
	known []string
	err   error // the first of them that is wrong
}

func (t *attributes) fail(format string, a ...any) {
	if t.err == nil {
		t.err = fmt.Errorf(format, a...)
	}
}

// attribute returns one, nil when it is left out.
func (t *attributes) attribute(name string) *Attribute {
	if !slices.Contains(t.known, name) {
		panic("BUG: " + t.Op + " reads an attribute that its reader does not list: " + name)
	}
	a := t.Attributes[name]
	if a != nil && a.Other {
		t.fail("attribute %s is of a type that is not supported", name)
	}
	return a
}

func (t *attributes) int(name string, open int) int {
	a := t.attribute(name)
	switch {
	case a == nil:
		return open
	case a.I < -MostBytes || a.I > MostBytes:
		t.fail("attribute %s is %d, which is not supported", name, a.I)
		return open
	}
	return int(a.I)
}

func (t *attributes) float(name string, open float32) float32 {
	if a := t.attribute(name); a != nil {
		return a.F
	}
	return open
}

// ints returns a list of n numbers from 0, all open when it is left out.
func (t *attributes) ints(name string, n, open int) []int {
	all := slices.Repeat([]int{open}, n)
	a := t.attribute(name)
	if a == nil || len(a.Ints) == 0 {
		return all
	}
	if len(a.Ints) != n || slices.Min(a.Ints) < 0 || slices.Max(a.Ints) > MostBytes {
		t.fail("attribute %s is %v, want %d numbers from 0", name, a.Ints, n)
		return all
	}
	for i, v := range a.Ints {
		all[i] = int(v)
	}
	return all
}

// counts returns two numbers from 1, of rows and of columns.
func (t *attributes) counts(name string) []int {
	all := t.ints(name, 2, 1)
	if slices.Contains(all, 0) {
		t.fail("attribute %s is %v, want 2 numbers from 1", name, all)
	}
	return all
}

// listed returns a list of numbers of any length.
func (t *attributes) listed(name string, open []int) []int {
	a := t.attribute(name)
	if a == nil || len(a.Ints) == 0 {
		return open
	}
	all := make([]int, len(a.Ints))
	for i, v := range a.Ints {
		all[i] = int(max(min(v, MostBytes), -MostBytes))
	}
	return all
}

// only refuses any value of an attribute but one.
func (t *attributes) only(name string, want int) {
	if v := t.int(name, want); v != want {
		t.fail("attribute %s is %d, and only %d is supported", name, v, want)
	}
}

// onlyText refuses any text but one.
func (t *attributes) onlyText(name, want string) {
	if a := t.attribute(name); a != nil && a.S != want && a.S != "" {
		t.fail("attribute %s is %s, and only %s is supported", name, a.S, want)
	}
}

func (t *attributes) epsilon() float32 {
	epsilon := t.float("epsilon", 1e-5)
	if !(epsilon > 0) {
		t.fail("attribute epsilon is %v, and only positive numbers are supported", epsilon)
	}
	return epsilon
}

// pads returns the padding of rows and columns, the same at both ends.
func (t *attributes) pads() (h, w int) {
	t.onlyText("auto_pad", "NOTSET")
	p := t.ints("pads", 4, 0)
	if p[0] != p[2] || p[1] != p[3] {
		t.fail("attribute pads is %v, and only as much at both ends is supported", p)
	}
	return p[0], p[1]
}
