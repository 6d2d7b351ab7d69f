package torchexport

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"plimsoll/models/importer"
)

// call lowers one node.
type call struct {
	*lowering
	*arguments
	node   *node
	remade string // the value whose memory the node changes, which has a new name: it is as new
}

// tensor returns the graph's name of an argument that is a tensor; "": it is left out.
func (c *call) tensor(name string) string {
	a, given := c.argument(name)
	if !given {
		return ""
	}
	value, err := a.name()
	if err != nil || a.kind != "as_tensor" || c.names[value] == "" {
		c.fail("argument %.100s is no tensor that is made before: %.40s %.100s", name, a.kind, a.raw)
	}
	return c.names[value]
}

// operand returns the graph's name of an argument that is a tensor or a number.
func (c *call) operand(name string) string {
	a, given := c.argument(name)
	if given && a.kind == "as_tensor" {
		return c.tensor(name)
	}
	return c.scalar(a, name)
}

// scalar returns the name of a number: a constant, or a symbol.
func (c *call) scalar(a argument, name string) string {
	if a.kind == "as_sym_int" {
		if value, err := a.name(); err == nil && c.names[value] != "" {
			return c.names[value]
		}
		v := extent{}
		if json.Unmarshal(a.raw, &v) == nil && v.Int != nil {
			return c.constant(float64(*v.Int))
		}
	}
	v, err := a.number()
	if err != nil {
		c.fail("argument %.100s: %w", name, err)
	}
	return c.constant(v)
}

// numbers returns the name of a list of numbers, some of which may be symbols.
func (c *call) numbers(name string) string {
	a, given := c.argument(name)
	if !given || a.kind != "as_sym_ints" {
		return c.list(c.ints(name))
	}
	var all list[json.RawMessage]
	if err := json.Unmarshal(a.raw, &all); err != nil {
		c.fail("argument %.100s: %w", name, err)
	}
	var parts []string
	for _, raw := range all {
		parts = append(parts, c.scalar(argument{"as_sym_int", raw}, name))
	}
	return c.emit("Concat", attributes{"axis": number(0)}, parts...)
}

// rank returns how many axes the argument "self" has.
func (c *call) rank() int64 { return int64(len(c.sizes("self"))) }

// sizes returns the extents of an argument when it was exported; -1: it is open.
func (c *call) sizes(name string) []int64 {
	value, err := c.args[name].name()
	if err == nil {
		var all []int64
		if all, err = c.extents(value); err == nil {
			return all
		}
	}
	c.fail("argument %.100s: %w", name, err)
	return nil
}

// extents returns the extents of a value.
func (c *call) extents(value string) ([]int64, error) {
	m, err := c.meta(value)
	if err != nil {
		return nil, err
	}
	all := make([]int64, len(m.Sizes))
	for i, e := range m.Sizes {
		if all[i] = -1; e.Int != nil {
			all[i] = *e.Int
		}
	}
	return all, nil
}

// axis returns an axis of the argument "self", counted from the front.
func (c *call) axis(axis int64) int64 {
	rank := c.rank()
	if axis < 0 {
		axis += rank
	}
	if axis < 0 || axis >= max(rank, 1) {
		c.fail("axis %d of a tensor of %d", axis, rank)
		return 0
	}
	return axis
}

// attributes are a node's.
type attributes map[string]*importer.Attribute

func number(v int64) *importer.Attribute     { return &importer.Attribute{I: v} }
func numbers(v ...int64) *importer.Attribute { return &importer.Attribute{Ints: v} }
func decimal(v float64) *importer.Attribute  { return &importer.Attribute{F: float32(v)} }
func texts(v string) *importer.Attribute     { return &importer.Attribute{S: v} }
func flag(v bool) (a *importer.Attribute) {
	if a = number(0); v {
		a.I = 1
	}
	return a
}

// emit adds a node of one output to the graph, and returns its name.
func (c *call) emit(op string, a attributes, in ...string) string {
	return c.emitAll(1, op, a, in...)[0]
}

// emitAll adds a node of several outputs.
func (c *call) emitAll(outputs int, op string, a attributes, in ...string) (all []string) {
	c.made++
	for i := range outputs {
		all = append(all, fmt.Sprintf("%%%d.%d", c.made, i))
	}
	c.to.Nodes = append(c.to.Nodes, &importer.Node{
		Op: op, Label: c.node.label(), Module: c.node.module(), Name: c.node.op(), In: in, Out: all, Attributes: a,
	})
	return all
}

// constant adds a number.
func (c *call) constant(v float64) string {
	raw := binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))
	return c.emit("Constant", attributes{"value": {Tensor: &importer.Tensor{DType: importer.Float64, Raw: raw}}})
}

// list adds a list of numbers.
func (c *call) list(all []int64) string {
	return c.emit("Constant", attributes{"value_ints": numbers(all...)})
}
