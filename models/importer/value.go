package importer

import "plimsoll/kernels"

// value is what a tensor of the graph is here: the output of a step, what follows from it without a step so far, a constant that is
// computed with, or an initializer. Of one that is made of something unsupported, none of it is set.
type value struct {
	shape  []int // of what follows from the input, as ONNX has it: N,C,H,W of an image that is N,H,W,C here
	step   *step
	view   *view
	curve  *curve
	scores *scores
	from   *Node  // that made it
	made   *value // the tensor that it has become, for something that reads it

	numbers []float64
	dims    []int // of numbers; nil: a scalar
	mask    *mask

	tensor  *Tensor
	flipped string // the name of the matrix that tensor is, transposed
	table   *table

	rest []*value // outputs of the node behind the first
}

// table is the first rows of an initializer, one for each position.
type table struct {
	source
	rows int
}

// step is an op of the model.
type step struct {
	op      kernels.Op // nil: the model's input
	in      []*step
	desc    kernels.Desc
	sources []source
	node    string  // that it comes from
	label   string  // of that node
	module  string  // and its module
	joined  []*step // of a Concat, what it joins, all told

	at    int // its number in the order of the steps
	reads int // of its elements, by nodes that make more of them than another name
}

// source is an initializer that is a parameter.
type source struct {
	name   string
	tensor *Tensor
	layout layout
	tied   bool // it is the table of an embedding, too
}

// layout says how an initializer has the elements of a parameter.
type layout uint8

// kind says what a value is; "" of what is made of something unsupported.
func (v *value) kind() string {
	switch {
	case v.shape != nil:
		return "a tensor"
	case v.tensor != nil, v.table != nil:
		return "an initializer"
	case v.numbers != nil, v.mask != nil:
		return "a constant"
	}
	return ""
}

// base returns the step that makes a value's elements, all of them or some in another order; nil: none does.
func (v *value) base() *step {
	switch {
	case v == nil:
		return nil
	case v.view != nil:
		return v.view.step
	}
	return v.step
}

// hasRows reports whether the last axis of a step's value is the last axis of the step.
func (v *value) hasRows() bool {
	if v.view != nil {
		return v.view.hasRows()
	}
	return last(v.shape) == last(v.step.desc.Shape)
}

func isNumber(v *value) bool { return v != nil && len(v.numbers) == 1 }

func last(shape []int) int { return shape[len(shape)-1] }

// positive returns an axis that may be counted from the end.
func positive(axis, axes int) int {
	if axis < 0 {
		return axis + axes
	}
	return axis
}

// view is the elements of a sequence in another order, or some of them: what Reshape, Transpose, Split, Slice and Gather make of it. It
// is no tensor of its own. Attention reads heads through views, and Linear rows; other ops what is a tensor again.
type view struct {
	step *step
	from int      // the first element
	axes [][]loop // an index along an axis counts through its loops, the last one fastest
}

// loop is n elements that are stride apart.
type loop struct{ n, stride int }

// scores are what attention makes before it multiplies values: queries times keys, scaled, masked, or their softmax.
type scores struct {
	queries, keys heads
	scale         float64
	causal, soft  bool
}

// mask is a square matrix, low on the diagonal and below it, high above; both are the same where it is one number.
type mask struct {
	n         int
	low, high float64
	dims      []int // the last two are n
}

// curve is a function of each element of a tensor, by its values at samples: what elementwise ops with constants, or with the tensor
// itself, make of it. One that is an activation of kernels becomes its op when something reads it.
//
// Exports write activations out, each version in its own way. Two functions of so few ops that are equal at all samples are taken for equal.
type curve struct {
	of *value // a tensor or a view
	at []float64
}

// text reports whether the model reads tokens N,T.
func (g *Graph) text() bool {
	in := g.Inputs[0]
	return (in.DType == Int64 || in.DType == Int32) && len(in.Shape) == 2
}
