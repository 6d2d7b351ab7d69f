// Package importer makes models of the graphs that files have, whatever the format. A package for each format decodes its files into a
// Graph, and all that follows is here, once. Constants are folded, patterns such as attention and written-out activations are found, layers
// are cut, and the tensors of the file become the weights that training begins with.
//
// It knows no format, no device, and runs nothing. Nodes of a graph beyond the ops of kernels are refused, each by its label.
package importer

import "errors"

var (
	// ErrFormat: the file is no model of its format, or is damaged.
	ErrFormat = errors.New("bad model file")
	// ErrUnsupported: the graph has nodes, inputs or outputs that no model here has; the message names them.
	ErrUnsupported = errors.New("unsupported model")
)

// Graph is a model as a file has it. Nodes are in topological order. Shapes of images are N,C,H,W.
type Graph struct {
	Nodes           []*Node
	Tensors         map[string]*Tensor // parameters, buffers and constants
	Inputs, Outputs []Port
	Mask            string // the name of an input that says which tokens are no padding: see causal.go; "": there is none
	Advice          Advice
}

// Advice says, in the words of a format, what to export otherwise where a graph is refused.
type Advice struct {
	Outputs string // it has several inputs or outputs
	Frozen  string // a BatchNorm computes with its running statistics
	Shared  string // two nodes have one parameter
	Batch   string // the export holds its batch
}

// Port is an input or output of the graph. An axis whose extent is open is 0.
type Port struct {
	Name  string
	DType DType
	Shape []int64
}

// Node is an op of the graph. Ops have the names and attributes of ONNX's; those that ONNX lacks, such as linear, begin with a small letter.
type Node struct {
	Op         string
	Label      string // that messages call it by
	Module     string // path of the module whose code it is, which layers are named by; "": the format does not tell
	Name       string // for a layer that has neither modules nor parameters
	In, Out    []string
	Attributes map[string]*Attribute
	Err        error // the format has no op for it: the node is refused with this reason
}

// Attribute is a value of a node that is no tensor of the graph: one of its fields.
type Attribute struct {
	I      int64
	F      float32
	S      string
	Ints   []int64
	Tensor *Tensor
	Other  bool // it is of a type that no op here has
}

// axes returns the number of axes of a sample of numbers, N,F or N,C,T; 0 for images and tokens.
func (g *Graph) axes() int {
	if in := g.Inputs[0]; in.DType == Float32 && (len(in.Shape) == 2 || len(in.Shape) == 3) {
		return len(in.Shape) - 1
	}
	return 0
}

// openLength reports whether the tokens of a sample, or T of N,C,T, are open.
func (g *Graph) openLength() bool {
	shape := g.Inputs[0].Shape
	return g.text() && shape[1] == 0 || g.axes() == 2 && shape[2] == 0
}

// text reports whether the model reads tokens N,T.
func (g *Graph) text() bool {
	in := g.Inputs[0]
	return (in.DType == Int64 || in.DType == Int32) && len(in.Shape) == 2
}
