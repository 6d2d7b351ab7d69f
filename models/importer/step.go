package importer

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll/kernels"
	"plimsoll/models"
)

// layout says how an initializer has the elements of a parameter.
type layout uint8

const (
	asIs       layout = iota
	channels1         // O,I,KH,KW of O,KH,KW,I
	transposed        // I,O of O,I
)

// source is an initializer that is a parameter.
type source struct {
	name   string
	tensor *Tensor
	layout layout
	tied   int // which of the further steps with this parameter has it; 0: it is the first one's
	axes   int // of the parameter, the last ones of the tensor: those before are 1; 0: all
	// constant is true for numbers that the graph has in place of a tensor of the file.
	constant bool
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

// parameters returns where an op's parameters are from.
func (s *step) parameters() (all []models.Source) {
	params := s.op.Params(s.inputs())
	for i, from := range s.sources {
		shape := params[i].Desc.Shape
		all = append(all, models.Source{Name: from.parameter(), Transposed: from.layout == transposed, Shape: from.stored(shape), Fill: from.fill(shape), Frozen: from.tensor.Frozen, Constant: from.constant})
	}
	return all
}

// inputs returns the descriptions of what a step reads.
func (s *step) inputs() []kernels.Desc {
	descs := make([]kernels.Desc, len(s.in))
	for i, in := range s.in {
		descs[i] = in.desc
	}
	return descs
}

// modules returns the paths of the modules that a step's code is in, or, where the format does not tell them, its parameters.
func (s *step) modules() (all [][]string) {
	if s.module != "" {
		return [][]string{strings.Split(s.module, ".")}
	}
	for _, from := range s.sources {
		path := strings.Split(from.name, ".")
		all = append(all, path[:len(path)-1])
	}
	return all
}

// parameter is the name of a source as a parameter: one that is tied has another one than what it is tied to.
func (s source) parameter() string {
	switch s.tied {
	case 0:
		return s.name
	case 1:
		return s.name + " (tied)"
	}
	return fmt.Sprintf("%s (tied %d)", s.name, s.tied)
}

// stored returns the shape of the file's tensor where it is another one than the parameter's, but for its order; nil: it is not.
func (s source) stored(shape kernels.Shape) (all []int) {
	dims := s.tensor.Dims
	if s.tensor.Stored != nil {
		dims = s.tensor.Stored
	}
	if s.layout == channels1 && s.tensor.Stored == nil || s.layout == transposed || s.layout == asIs && slices.EqualFunc(shape, dims, func(a int, b int64) bool { return int64(a) == b }) {
		return nil
	}
	for _, d := range dims {
		all = append(all, int(d))
	}
	return all
}

// fill returns the function that writes a parameter's elements.
func (s source) fill(shape kernels.Shape) func(dst []float32) {
	return func(dst []float32) {
		if s.layout == asIs {
			for i := range dst {
				dst[i] = s.tensor.Float(i)
			}
			return
		}
		outer, rows, columns := 1, shape[0], len(dst)/shape[0] // a matrix of the parameter is the file's, transposed
		if s.layout == channels1 {
			outer, rows, columns = shape[0], shape[1]*shape[2], shape[3]
		}
		for o := range outer {
			for i := range rows {
				for j := range columns {
					dst[(o*rows+i)*columns+j] = s.tensor.Float((o*columns+j)*rows + i)
				}
			}
		}
	}
}

// products counts the steps that multiply matrices, what takes time, and tables, which are layers of their own.
func products(steps []*step) (n int) {
	for _, s := range steps {
		switch s.op.(type) {
		case kernels.Conv2D, kernels.ConvTranspose2D, kernels.Linear, kernels.Attention, kernels.Embedding:
			n++
		}
	}
	return n
}

// plainNorm returns the BatchNorm of a step that is nothing else; nil: it is not.
func plainNorm(s *step) *kernels.BatchNorm {
	if norm, is := s.op.(kernels.BatchNorm); is && !norm.ReLU && !norm.Residual {
		return &norm
	}
	return nil
}
