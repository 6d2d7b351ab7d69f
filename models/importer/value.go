package importer

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// value stands for a tensor of the graph. It is the output of a step, a tensor that follows from it without a step so far, a
// constant to compute with, or an initializer. If it is made of something unsupported, no field is set.
type value struct {
	shape  []int // of what follows from the input, as ONNX has it: N,C,H,W of an image that is N,H,W,C here
	step   *step
	view   *view
	curve  *curve
	scores *scores
	turned *turned
	from   *Node                  // that made it
	made   *value                 // the tensor that it has become, for something that reads it
	whole  func() (*value, error) // makes it a tensor or a view, if the value alone can be read

	constant
	addends
	norms

	tensor   *Tensor
	flipped  string // the name of the matrix that tensor is, transposed
	name     string // of tensor, where the node gives it other axes
	repeated []int  // the shape to which tensor is repeated along axes of 1
	table    *table
	fromOne  *value    // the parameter that 1 is added to
	numbered *numbered // of each token

	rest []*value // outputs of the node behind the first
}

// table is rows of an initializer, one for each position: from the first on, in order or, without a step, the same one.
type table struct {
	source
	rows, first, step int
	uncounted         int // 1 + the token that positions pass over; 0: none
}

// numbered are whole numbers that follow from the tokens on the way to RoBERTa's positions. A token p has the position p. Each other token has
// p and the number of tokens other than p up to it.
type numbered struct {
	token int
	stage numberedStage
}

// numberedStage is a step of that way.
type numberedStage uint8

const (
	counted0   numberedStage = iota // 1 of tokens other than p, 0 of p
	summed                          // their sums along a sample
	zeroed                          // the sums, 0 for p itself
	positions0                      // the sums and p
)

// scores are attention's tensor before it multiplies values: queries times keys, scaled, masked, or their softmax.
type scores struct {
	queries, keys heads
	scale         float64
	causal, soft  bool
	terms         terms
}

// curve is a function of each element of a tensor, by its values at samples: what elementwise ops with constants, or with the tensor
// itself, make of it. One that is an activation of kernels becomes its op when something reads it.
//
// Exports write activations out, each version in its own way. Two functions of so few ops that are equal at all samples are taken for equal.
type curve struct {
	of      *value // a tensor or a view
	at      []float64
	factors []float64 // that the tensor was multiplied by on the way
	// hidden: its values at samples do not tell all of it, such as a bound that they do not reach. It is made of what its nodes say.
	hidden bool
	// written makes it of what its nodes say, where no activation has its values; nil: nothing does.
	written func() (*value, error)
}

// kind says what a value is; "" of what is made of something unsupported.
func (v *value) kind() string {
	switch {
	case v.shape != nil:
		return "a tensor"
	case v.tensor != nil, v.table != nil, v.fromOne != nil, v.picks != nil, v.pieces != nil:
		return "an initializer"
	case v.numbered != nil:
		return "numbers of tokens"
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
	return viewOfValue(v).hasRows()
}

// seen returns a step's value as a view.
func (v *value) seen() view {
	if v.view != nil {
		return *v.view
	}
	return viewOfValue(v)
}

// isImage reports whether a value is a step of four axes.
func (v *value) isImage() bool {
	return v.step != nil && len(v.shape) == 4 && len(v.step.desc.Shape) == 4
}

// is reports whether two values are one tensor or view.
func (v *value) is(w *value) bool {
	if v.view != nil && w.view != nil {
		return v.view.same(*w.view)
	}
	if v.centered != nil && w.centered != nil {
		return v.centered.is(w.centered)
	}
	return v.step != nil && v.step == w.step
}

func isNumber(v *value) bool { return v != nil && len(v.numbers) == 1 }

// known returns a constant as a value.
func known(c constant, err error) (*value, error) { return &value{constant: c}, err }

// value returns an initializer.
func (t *Tensor) value() (*value, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if t.Trains {
		return &value{tensor: t}, nil
	}
	v, most := &value{tensor: t, constant: constant{mask: t.mask()}}, int64(64)
	switch k := len(t.Dims); {
	case t.Frozen:
	case t.DType == Int64 || t.DType == Int32 || t.DType == Bool:
		most = mostConstant
	case k > 1 && t.Dims[k-1] == t.Dims[k-2]: // masks of positions
		most = mostConstant
	}
	if n, err := t.Elements(); err == nil && n <= most && v.mask == nil {
		if v.constant, err = t.numbers(); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// untrained reports whether a value is a tensor of the file that nothing trains, and that is not computed with so far.
func (v *value) untrained() bool {
	return v != nil && v.tensor != nil && !v.tensor.Trains && v.numbers == nil && v.mask == nil
}

// asImage is N,C,H,W of N,H,W,C, and that of others.
func asImage(d kernels.Desc) []int {
	s := slices.Clone(d.Shape)
	if len(s) == 4 {
		s[1], s[2], s[3] = s[3], s[1], s[2]
	}
	return s
}

// as is the shape of a value.
func as(v *value) func(kernels.Desc) []int {
	return func(kernels.Desc) []int { return slices.Clone(v.shape) }
}

// numbers returns the elements of a tensor that was checked, as a constant that is computed with.
func (t *Tensor) numbers() (constant, error) {
	n, err := t.Elements()
	if err != nil || n > mostConstant {
		return constant{}, fmt.Errorf("tensor %q of shape %v has more than %d elements, too many for a constant that is computed with", t.Name, t.Dims, mostConstant)
	}
	c := constant{numbers: make([]float64, n)}
	for i := range c.numbers {
		c.numbers[i] = t.number(i)
	}
	for _, d := range t.Dims {
		c.dims = append(c.dims, int(d))
	}
	return c, nil
}
