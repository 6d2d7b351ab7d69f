package torchexport

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/models/importer"
)

// call lowers one node. The first error of its arguments stays.
type call struct {
	*lowering
	node *node
	args map[string]argument
	read map[string]bool
	err  error
}

// newCall returns a call that can read a node's arguments.
func newCall(n *node) *call {
	c := &call{node: n, args: map[string]argument{}, read: map[string]bool{}}
	for _, in := range n.Inputs {
		c.args[in.Name] = in.Arg
	}
	return c
}

// errUnknownOp is the refusal of an op that there is no rule for.
var errUnknownOp = errors.New("the op is not supported")

// add lowers a node. One that cannot be becomes a node with its reason, which is refused where the output needs it.
func (l *lowering) add(n *node) {
	c := newCall(n)
	c.lowering = l
	inputs, outputs := c.tensors(), n.outputs()
	for _, in := range inputs {
		if l.aliases.stale(in) {
			c.fail("it reads a tensor that %s has changed in place under another name, which is not supported: use what the change returns",
				l.aliases.changed[l.aliases.root[in]])
		}
	}
	made := c.lower()
	for _, in := range n.Inputs {
		if c.err == nil && !c.read[in.Name] {
			c.fail("argument %.100s is not supported", in.Name)
		}
	}
	if c.err == nil && len(made) < len(outputs) {
		c.err = errUnknownOp
	}
	l.aliases.follow(n, inputs)
	if c.err == nil {
		for i, out := range outputs {
			l.names[out] = made[i]
		}
		return
	}
	refused := &importer.Node{Op: n.op(), Label: n.label(), Err: c.err}
	for _, in := range inputs {
		refused.In = append(refused.In, l.names[in])
	}
	for _, out := range outputs {
		refused.Out = append(refused.Out, l.named(out))
	}
	l.to.Nodes = append(l.to.Nodes, refused)
}

// lower returns the names of what a node makes.
func (c *call) lower() []string {
	rule := rules[c.node.Target]
	if rule == nil {
		rule = rules[c.node.op()]
	}
	if rule == nil {
		c.err = errUnknownOp
		return nil
	}
	return rule(c)
}

// tensors returns the names of all tensors that the node reads, in the order of its arguments.
func (c *call) tensors() (all []string) {
	for _, in := range c.node.Inputs {
		switch in.Arg.kind {
		case "as_tensor":
			if name, err := in.Arg.name(); err == nil {
				all = append(all, name)
			}
		case "as_tensors":
			all = append(all, in.Arg.list()...)
		case "as_optional_tensors":
			var several list[argument]
			if json.Unmarshal(in.Arg.raw, &several) == nil {
				for _, one := range several {
					if name, err := one.name(); err == nil {
						all = append(all, name)
					}
				}
			}
		}
	}
	return all
}

// list returns the names of a list of tensors.
func (a argument) list() (all []string) {
	var several list[struct{ Name string }]
	if json.Unmarshal(a.raw, &several) == nil {
		for _, one := range several {
			all = append(all, one.Name)
		}
	}
	return all
}

func (c *call) fail(format string, a ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, a...)
	}
}

// argument returns an argument; false: it is left out, or none.
func (c *call) argument(name string) (argument, bool) {
	c.read[name] = true
	a, given := c.args[name]
	return a, given && a.kind != "as_none"
}

// ignore reads arguments that change nothing here.
func (c *call) ignore(names ...string) {
	for _, name := range names {
		c.read[name] = true
	}
}

// decode reads an argument of one of some kinds.
func (c *call) decode(name string, to any, kinds ...string) (given bool) {
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

func (c *call) int(name string, open int64) int64 {
	c.decode(name, &open, "as_int")
	if open < -importer.MostBytes || open > importer.MostBytes {
		open = min(max(open, -importer.MostBytes), importer.MostBytes) // the end of a slice is the largest integer
	}
	return open
}

func (c *call) bool(name string, open bool) bool {
	c.decode(name, &open, "as_bool")
	return open
}

func (c *call) text(name, open string) string {
	c.decode(name, &open, "as_string")
	return open
}

// float returns a number; PyTorch writes those that JSON lacks as texts.
func (c *call) float(name string, open float64) float64 {
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

// number returns a constant.
func (a argument) number() (v float64, err error) {
	switch a.kind {
	case "as_float", "as_int":
		if json.Unmarshal(a.raw, &v) == nil {
			return v, nil
		}
		var text string
		if json.Unmarshal(a.raw, &text) == nil {
			if v, is := map[string]float64{"Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}[text]; is {
				return v, nil
			}
		}
	case "as_bool":
		var is bool
		if err = json.Unmarshal(a.raw, &is); is {
			v = 1
		}
		return v, err
	}
	return 0, fmt.Errorf("want a number, have %.40s %.100s", a.kind, a.raw)
}

// ints returns a list of numbers.
func (c *call) ints(name string, open ...int64) []int64 {
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
func (c *call) pair(name string, open ...int64) []int64 {
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

// extents returns those of a value.
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
