package importer

import (
	"fmt"
	"plimsoll/kernels"
	"slices"
)

// call reads a node: its attributes, each with what it is when it is left out, and its inputs.
type call struct {
	*importer
	*Node
	known []string // attributes
	err   error    // the first of them that is wrong
}

func (c *call) fail(format string, a ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, a...)
	}
}

// attribute returns one, nil when it is left out.
func (c *call) attribute(name string) *Attribute {
	if !slices.Contains(c.known, name) {
		panic("BUG: " + c.Op + " reads an attribute that its reader does not list: " + name)
	}
	a := c.Attributes[name]
	if a != nil && a.Other {
		c.fail("attribute %s is of a type that is not supported", name)
	}
	return a
}

func (c *call) int(name string, open int) int {
	a := c.attribute(name)
	switch {
	case a == nil:
		return open
	case a.I < -MostBytes || a.I > MostBytes:
		c.fail("attribute %s is %d, which is not supported", name, a.I)
		return open
	}
	return int(a.I)
}

func (c *call) float(name string, open float32) float32 {
	if a := c.attribute(name); a != nil {
		return a.F
	}
	return open
}

// ints returns a list of n numbers from 0, all open when it is left out.
func (c *call) ints(name string, n, open int) []int {
	all := slices.Repeat([]int{open}, n)
	a := c.attribute(name)
	if a == nil || len(a.Ints) == 0 {
		return all
	}
	if len(a.Ints) != n || slices.Min(a.Ints) < 0 || slices.Max(a.Ints) > MostBytes {
		c.fail("attribute %s is %v, want %d numbers from 0", name, a.Ints, n)
		return all
	}
	for i, v := range a.Ints {
		all[i] = int(v)
	}
	return all
}

// counts is ints of numbers from 1.
func (c *call) counts(name string, n int) []int {
	all := c.ints(name, n, 1)
	if slices.Contains(all, 0) {
		c.fail("attribute %s is %v, want %d numbers from 1", name, all, n)
	}
	return all
}

// listed returns a list of numbers of any length.
func (c *call) listed(name string, open []int) []int {
	a := c.attribute(name)
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
func (c *call) only(name string, want int) {
	if v := c.int(name, want); v != want {
		c.fail("attribute %s is %d, and only %d is supported", name, v, want)
	}
}

// onlyText refuses any text but one.
func (c *call) onlyText(name, want string) {
	if a := c.attribute(name); a != nil && a.S != want && a.S != "" {
		c.fail("attribute %s is %s, and only %s is supported", name, a.S, want)
	}
}

// at returns input i, nil when it is left out.
func (c *call) at(i int) *value {
	if i >= len(c.In) {
		return nil
	}
	return c.values[c.In[i]]
}

// tensor returns input i, what a step makes, with so many axes in ONNX and here: of 4 an image, of 3 a sequence, of 2 a matrix.
func (c *call) tensor(i int, axes ...int) (*value, error) {
	v := c.at(i)
	if v == nil || v.shape == nil {
		return nil, fmt.Errorf("input %d is no tensor that follows from the model's input", i)
	}
	v, err := c.plain(v, i)
	if err != nil {
		return nil, err
	}
	if c.tokens(v) {
		return nil, fmt.Errorf("input %d is the tokens, which only the table of an embedding is read with", i)
	}
	if pooled := len(v.shape) == 4 && len(v.step.desc.Shape) == 2; pooled && slices.Equal(axes, []int{4}) {
		return nil, fmt.Errorf("input %d is %v, the mean of an image, behind which layers of images are not supported: a linear layer is, in place of a 1x1 convolution", i, v.shape)
	}
	if len(axes) > 0 && (!slices.Contains(axes, len(v.shape)) || len(v.shape) != len(v.step.desc.Shape)) {
		return nil, fmt.Errorf("input %d is %v (%v here), want one of %v axes", i, v.shape, v.step.desc, axes)
	}
	return v, nil
}

// plain returns input i as a tensor: a function of one becomes its op.
func (c *call) plain(v *value, i int) (*value, error) {
	switch {
	case v.step != nil:
		return v, nil
	case v.made != nil:
		return v.made, nil
	case v.view != nil:
		return nil, c.reorderedBy(i, v)
	case v.scores != nil:
		return nil, fmt.Errorf("input %d is scores of attention, by %s, which only their mask, softmax and values are read with", i, v.from.Label)
	}
	op := v.curve.activation()
	if op == nil {
		return nil, fmt.Errorf("input %d is a function of a tensor by %s, and it is neither GELU nor SiLU", i, v.from.Label)
	}
	x, err := c.plain(v.curve.of, i)
	if err != nil {
		return nil, err
	}
	v.made, err = c.push(v.from, op, as(x), nil, x)
	return v.made, err
}

// tokens reports whether a value is the tokens that the model reads.
func (c *call) tokens(v *value) bool { return v.step == c.input && c.text() }

func sameShape(x, y *value) bool { return slices.Equal(x.shape, y.shape) }

// param returns input i, an initializer, as the source of a parameter.
func (c *call) param(i int, l layout) (source, error) {
	v := c.at(i)
	if v == nil || v.tensor == nil {
		return source{}, fmt.Errorf("input %d is no initializer", i)
	}
	switch {
	case v.flipped == "":
		return source{name: c.In[i], tensor: v.tensor, layout: l}, nil
	case l == asIs:
		return source{name: v.flipped, tensor: v.tensor, layout: transposed}, nil
	case l == transposed:
		return source{name: v.flipped, tensor: v.tensor, layout: asIs}, nil
	}
	return source{}, fmt.Errorf("input %d is transposed, which is not supported", i)
}

// constants returns the numbers of input i, or of the attribute that older versions have in its place; nil when both are left out.
func (c *call) constants(i int, name string) ([]int, error) {
	var numbers []float64
	var a *Attribute
	if name != "" {
		a = c.attribute(name)
	}
	if a != nil {
		for _, v := range a.Ints {
			numbers = append(numbers, float64(v))
		}
	} else if v := c.at(i); v != nil {
		if v.numbers == nil {
			return nil, fmt.Errorf("input %d is no constant", i)
		}
		numbers = v.numbers
	}
	return whole(numbers)
}

// whole returns numbers as integers.
func whole(numbers []float64) ([]int, error) {
	all := make([]int, len(numbers))
	for i, v := range numbers {
		if all[i] = int(max(min(v, MostBytes), -MostBytes)); float64(all[i]) != v && v < MostBytes && v > -MostBytes || v != v {
			return nil, fmt.Errorf("%v is no integer", v)
		}
	}
	return all, nil
}

// flat returns an image as a matrix, channel by channel, as PyTorch flattens it.
func (c *call) flat(x *value) (*value, error) {
	switch d := x.step.desc.Shape; {
	case len(d) == 4:
		return c.push(c.Node, kernels.AdaptiveAvgPool{OutH: d[1], OutW: d[2]}, asImage, nil, x)
	case len(d) == 2:
		return &value{step: x.step, shape: slices.Clone(d)}, nil
	}
	return nil, fmt.Errorf("input 0 is %v, which is not flattened", x.shape)
}

// embedding looks up rows of a table by the tokens, or one for each position.
func (c *call) embedding(x, at *value, axis int) (*value, error) {
	from, err := c.param(0, asIs)
	if err != nil {
		return nil, err
	}
	if axis != 0 || from.layout != asIs {
		return nil, fmt.Errorf("of axis %d of a table, or a transposed one, is not supported", axis)
	}
	if at.shape != nil && c.tokens(at) {
		op := kernels.Embedding{Vocabulary: int(x.tensor.Dims[0]), Width: int(x.tensor.Dims[1]), To: c.config.DType.Stored()}
		return c.push(c.Node, op, asImage, []source{from}, at)
	}
	if k := len(at.dims); k > 0 && at.dims[k-1] != len(at.numbers) {
		return nil, fmt.Errorf("rows of a table by constants of %v, and only one for each position is supported", at.dims)
	}
	for i, v := range at.numbers {
		if v != float64(i) {
			return nil, fmt.Errorf("rows %v of a table, and only the first ones, in order, are supported", at.numbers[:min(len(at.numbers), 8)])
		}
	}
	if len(at.numbers) == 0 {
		return nil, fmt.Errorf("a table is read neither with the tokens nor with constant positions, which alone is supported")
	}
	return &value{table: &table{from, len(at.numbers)}}, nil
}
