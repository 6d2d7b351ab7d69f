package torchexport

import (
	"encoding/json"
	"fmt"
	"slices"

	"plimsoll/models/importer"
)

// arguments reads those of a node, each with what it is when it is left out. The first error stays.
type arguments struct {
	args map[string]argument
	read map[string]bool
	err  error
}

// arguments returns a reader of a node's arguments.
func (n *node) arguments() *arguments {
	c := &arguments{args: map[string]argument{}, read: map[string]bool{}}
	for _, in := range n.Inputs {
		c.args[in.Name] = in.Arg
	}
	return c
}

func (c *arguments) fail(format string, a ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, a...)
	}
}

// argument returns an argument; false: it is left out, or none.
func (c *arguments) argument(name string) (argument, bool) {
	c.read[name] = true
	a, given := c.args[name]
	return a, given && a.kind != "as_none"
}

// ignore reads arguments that change nothing here.
func (c *arguments) ignore(names ...string) {
	for _, name := range names {
		c.read[name] = true
	}
}

// decode reads an argument of one of some kinds.
func (c *arguments) decode(name string, to any, kinds ...string) (given bool) {
	a, given := c.argument(name)
	if !given {
		return false
	}
	if !slices.Contains(kinds, a.kind) || json.Unmarshal(a.raw, to) != nil {
		c.fail("argument %.100s is %.100s of kind %.40s, which is not supported", name, a.raw, a.kind)
		return false
	}
	return true
}

func (c *arguments) int(name string, open int64) int64 {
	c.decode(name, &open, "as_int")
	if open < -importer.MostBytes || open > importer.MostBytes {
		open = min(max(open, -importer.MostBytes), importer.MostBytes) // the end of a slice is the largest integer
	}
	return open
}

func (c *arguments) bool(name string, open bool) bool {
	c.decode(name, &open, "as_bool")
	return open
}

func (c *arguments) text(name, open string) string {
	c.decode(name, &open, "as_string")
	return open
}

// float returns a number; PyTorch writes those that JSON lacks as texts.
func (c *arguments) float(name string, open float64) float64 {
	a, given := c.argument(name)
	if !given {
		return open
	}
	v, err := a.number()
	if err != nil {
		c.fail("argument %.100s: %w", name, err)
	}
	return v
}

// ints returns a list of numbers.
func (c *arguments) ints(name string, open ...int64) []int64 {
	var all list[int64]
	if !c.decode(name, &all, "as_ints") {
		return open
	}
	for _, v := range all {
		if v < -importer.MostBytes || v > importer.MostBytes {
			c.fail("argument %.100s is %v, which is not supported", name, all[:min(len(all), 8)])
			return open
		}
	}
	return all
}

// pair returns numbers for rows and columns, of which one may stand for both.
func (c *arguments) pair(name string, open ...int64) []int64 {
	all := c.ints(name, open...)
	switch len(all) {
	case 0:
		if len(open) == 2 { // an empty list, as of a stride that is the kernel
			return open
		}
	case 1:
		return []int64{all[0], all[0]}
	case 2:
		return all
	}
	c.fail("argument %.100s is %v, want one number or two", name, all)
	return []int64{0, 0}
}
