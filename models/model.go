// Package models describes neural networks as chains of layers, each a small graph of ops, and compiles them.
//
// A layer's derivative is derived once, statically. The graph determines which tensors are saved for it, which are
// temporary and where each of them lies. The exact bytes of a_ℓ, ā_ℓ and of every overhead follow from that. The
// package runs nothing and knows no device: it hands kernel calls over block references to the executor.
//
// Choices that save memory at no cost are always taken:
//
//   - BatchNorm carries the residual sum and ReLU of a block, so neither has a tensor of its own.
//   - The mask of a ReLU is read from its output, which the next op needs anyway.
//   - The gradient of a sum is handed on, not copied.
//   - Dropout masks are recomputed.
//   - Elementwise ops run in place.
//   - A backward keeps its temporaries in the parts of ā_ℓ, δ_ℓ and δ_{ℓ-1} that hold nothing at that moment.
//   - If a backward is cut in two, it keeps the gradients that wait for its second half on tensors that only the first
//     half reads.
package models

import (
	"slices"

	"plimsoll/kernels"
	"plimsoll/planner/chain"
)

// Model is a chain of layers 1..L and the loss, layer L+1.
type Model struct {
	Name    string
	Input   kernels.Desc // N, H, W, C: a_0, float32 whatever the type of the other activations; or tokens N, T, int32
	Labels  kernels.Desc // N, int32; of tokens N, T; N, H, W where each pixel has one; of losses of elements targets, float32, like the logits
	Classes int
	Layers  []*Layer // Layers[ℓ-1] is layer ℓ; the last one is the loss
	// InputGradient makes the backward of layer 1 compute δ_0. Otherwise GradInput of layer 1 exists and is never
	// filled: training does not need it.
	InputGradient bool
	// Branches are the layers of each branch of a model whose branches meet, nil for a chain. Layers lists the branches one
	// after the other, then those behind them. Every branch has an input of its own, all like Input.
	Branches []int
	// Lasts and Portals describe the stages that a model with straight skips is made for (Straight). Lasts has the
	// last layers of all stages but the last; Portals has the portals of skips past stages. Only a pipeline of these
	// stages can run the model.
	Lasts   []int
	Portals []Portal
}

// Source says what a parameter is called and where its first values are, of models that a file has with weights.
type Source struct {
	Name string
	// Transposed says that files have the matrix's columns as rows; see Part.
	Transposed bool
	// Shape goes to Part.Shape.
	Shape []int
	Fill  func(dst []float32) // writes the elements, in the order in which the op has them
	// Frozen is true for a weight that does not train.
	Frozen bool
	// Constant is true for a frozen weight that no file has.
	Constant bool
}

// Portal takes skips from the stage that makes them straight to the stage that reads them, past all stages between, and
// their gradients back. Source: Kim et al. 2020, torchgpipe, section 3.3.
type Portal struct {
	From, To int   // stages
	Bytes    int64 // of all its skips, one behind the other
	Offset   int64 // of them in the Output block of From's last layer
	Exit     int   // the Branch of that layer's GradOutput that their gradient is
	Entry    int   // the Branch of Input and GradInput of To's first layer that they and their gradient are
}

// DType returns the type of the activations, that of a_1; TF32 where products use it.
func (m *Model) DType() kernels.DType {
	for _, l := range m.Layers {
		if slices.ContainsFunc(l.Nodes, func(n Node) bool { return kernels.UsesTF32(n.Op) }) {
			return kernels.TF32
		}
	}
	l := m.Layers[0]
	return l.Desc(l.Output()).DType
}

// Wiring says what each layer reads.
func (m *Model) Wiring() chain.Wiring { return chain.NewWiring(m.Branches, len(m.Layers)) }

// Params returns all parameters and buffers in the order of the layers.
func (m *Model) Params() []Parameter {
	var ps []Parameter
	for _, l := range m.Layers {
		ps = append(ps, l.Params()...)
	}
	return ps
}

// ParamCount returns the number of trained elements: buffers do not count.
func (m *Model) ParamCount() int64 {
	var n int64
	for _, p := range m.Params() {
		if p.Trained {
			n += p.Desc.Elements()
		}
	}
	return n
}

// Tied returns the parameters that are those of other layers.
func (m *Model) Tied() (all []Parameter) {
	for _, l := range m.Layers {
		all = append(all, l.Tied()...)
	}
	return all
}
