// Package models describes neural networks as chains of layers, each a small graph of ops, and compiles them.
//
// A layer's derivative is derived once, statically. Which tensors are saved for it, which are temporary and where
// each of them lies follow from the graph, and with them the exact bytes of a_ℓ, ā_ℓ and of every overhead.
// The package runs nothing and knows no device: it hands kernel calls over block references to the executor.
//
// Choices that save memory at no cost are always taken: BatchNorm carries the residual sum and ReLU of a block, so
// neither has a tensor of its own; the mask of a ReLU is read from its output, which the next op needs anyway;
// the gradient of a sum is handed on, not copied; dropout masks are recomputed; elementwise ops run in place;
// a backward keeps its temporaries in the parts of ā_ℓ, δ_ℓ and δ_{ℓ-1} that hold nothing at that moment, and, cut in two,
// the gradients that wait for its second half on what only the first reads.
package models

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/planner/chain"
)

// Model is a chain of layers 1..L and the loss, layer L+1.
type Model struct {
	Name    string
	Input   kernels.Desc // N, H, W, C: a_0, float32 whatever the type of the other activations; or tokens N, T, int32
	Labels  kernels.Desc // N, int32; of tokens N, T; N, H, W where each pixel has one
	Classes int
	Layers  []*Layer // Layers[ℓ-1] is layer ℓ; the last one is the loss
	// InputGradient makes the backward of layer 1 compute δ_0. Otherwise GradInput of layer 1 exists and is never
	// filled: training does not need it.
	InputGradient bool
	// Branches are the layers of each branch of a model whose branches meet, nil for a chain. Layers lists the branches one
	// after the other, then those behind them. Every branch has an input of its own, all like Input.
	Branches []int
	// Lasts and Portals say for which stages a model is, one whose skips go straight past stages (Straight): the last
	// layers of all stages but the last, and the ways of the skips. Only a pipeline of these stages can run it.
	Lasts   []int
	Portals []Portal
}

// Parameter is a trained parameter or a buffer (running statistics) of a model.
type Parameter struct {
	Name    string // unique in the model, as torchvision calls it: "layer1.0.conv1.weight"
	Layer   int    // ℓ, whose Params block holds it
	Desc    kernels.Desc
	Trained bool // false for buffers: no gradient, no update
	Value   Ref  // in Params
	Grad    Ref  // in Grads; zero for buffers

	// Of is the parameter of an earlier layer that this one is, and whose gradient gets the sum of both; nil: it is its own. Where
	// one memory has both layers, Value and Grad of the two are one tensor and two gradients; else each has a copy at Value.
	Of *Parameter
	// Parts are how files hold it; nil: as one tensor with its name and shape, that of a convolution with the channels in front. The
	// weight of a Linear behind an image always has one: see Part.Area.
	Parts []Part

	// Matrix is the extent of a weight of a linear layer or a convolution (outputs x rest) but the model's last, the head; zero: the
	// parameter is none of these. It is what an optimizer for hidden layers' matrices goes by.
	Matrix kernels.Matrix

	Start         Distribution // what Init fills it with
	StartScale    float64      // of its deviation; 0 means 1
	FanIn, FanOut int
	// Fill writes the elements that it starts with, in place of Start; nil: Start does. See Source.
	Fill func(dst []float32)
}

// Matrices are the extents that an optimizer for hidden layers' matrices goes by, row by row of the parameter: of a matrix that files
// have as several tensors, theirs; zero where the parameter is no such matrix.
func (p Parameter) Matrices() []kernels.Matrix {
	if !p.Matrix.Is() || len(p.Parts) < 2 {
		return []kernels.Matrix{p.Matrix}
	}
	all := make([]kernels.Matrix, len(p.Parts))
	for i, part := range p.Parts {
		all[i] = kernels.Matrix{Rows: int64(part.Rows), Columns: p.Matrix.Columns}
	}
	return all
}

// Updates cuts an update of a parameter, or of some of its elements, into updates by rule u: one of each of Matrices where u
// orthogonalizes them, otherwise one.
func (p Parameter) Updates(u kernels.Update, o kernels.UpdateOperands) (all []kernels.UpdateOperands) {
	o.Vector = len(p.Desc.Shape) < 2
	if !p.Matrix.Muons(u) {
		return []kernels.UpdateOperands{o}
	}
	at := int64(0)
	for _, m := range p.Matrices() {
		all = append(all, o.Rows(m, at))
		at += m.Rows * m.Columns * kernels.Float32.Size()
	}
	return all
}

// Source says what a parameter is called and where its first values are, of models that a file has with weights.
type Source struct {
	Name string
	// Transposed is that of a matrix whose columns files have as rows; see Part.
	Transposed bool
	Fill       func(dst []float32) // writes the elements, in the order in which the op has them
}

// Part is a tensor of a file that holds a parameter, or some of its rows.
type Part struct {
	Name string
	Rows int // of the parameter's first axis, behind those of the parts before
	// Transposed is that of a matrix whose columns the file has as rows.
	Transposed bool
	// Area is the number of pixels of the image that a Linear reads. Memory has a row as H*W,C; the file has it as C,H*W, because
	// PyTorch flattens an image in that order. 0: the file has rows as memory has them.
	Area int
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

// Compile returns the programs of every layer, the loss included, for one kernel library.
func (m *Model) Compile(lib kernels.Library) ([]*Programs, error) {
	all, err := m.CompileUnsplit(lib)
	if err != nil {
		return nil, err
	}
	late := m.readLate()
	for i, l := range m.Layers {
		if err := l.compileHalves(all[i], lib, m.differentiatesInput(i+1), late[i+1]); err != nil {
			return nil, m.at(i, err)
		}
	}
	return all, nil
}

// CompileUnsplit is Compile without BackInput and BackParams.
func (m *Model) CompileUnsplit(lib kernels.Library) ([]*Programs, error) {
	all := make([]*Programs, len(m.Layers))
	var unlike []int // layers of which each is unlike those before it
	for i, l := range m.Layers {
		same := slices.IndexFunc(unlike, func(j int) bool {
			return m.differentiatesInput(i+1) == m.differentiatesInput(j+1) && l.like(m.Layers[j])
		})
		if same >= 0 {
			p := *all[unlike[same]]
			all[i] = &p
			continue
		}
		p, err := l.compile(lib, m.differentiatesInput(i+1))
		if err != nil {
			return nil, m.at(i, err)
		}
		all[i], unlike = p, append(unlike, i)
	}
	return all, nil
}

// at says in which layer an error arose.
func (m *Model) at(i int, err error) error {
	return fmt.Errorf("%s: layer %d (%s): %w", m.Name, i+1, m.Layers[i].Name, err)
}

// differentiatesInput reports whether the backward of layer ℓ computes the gradient of its input; tokens have none.
func (m *Model) differentiatesInput(l int) bool {
	return m.InputGradient && m.Input.DType.Float() || !m.Wiring().Begins(l)
}

// readLate returns, by activation, whether a BackParams reads it.
func (m *Model) readLate() []bool {
	wiring := m.Wiring()
	late := make([]bool, wiring.Activations())
	for i, l := range m.Layers {
		if l.readsLate(l.wanted(m.differentiatesInput(i + 1))) {
			for _, a := range wiring.Reads(i + 1) {
				late[a] = true
			}
			for _, p := range m.Portals {
				if m.Lasts[p.To-1] == i {
					late[m.Lasts[p.From]] = true
				}
			}
		}
	}
	return late
}

// Footprints returns the sizes of the compiled model as a chain whose times are all zero.
func (m *Model) Footprints(programs []*Programs) *chain.Chain {
	c := &chain.Chain{
		Name: m.Name, InputBytes: m.Input.Storage(), DType: m.DType().String(), Batch: m.Input.Shape[0],
		Branches: m.Branches,
		Layers:   make([]chain.Layer, len(programs)),
	}
	for i, p := range programs {
		forget, weights := p.Forget.Scratch, p.ParamBytes
		if m.Layers[i].Twin > 0 {
			weights = 0
		}
		c.Layers[i] = chain.Layer{
			Name:                  m.Layers[i].Name,
			OutputBytes:           p.OutputBytes,
			SavedBytes:            p.SavedBytes,
			GradientBytes:         p.GradientBytes,
			ForwardOverheadBytes:  p.Save.Scratch,
			DiscardOverheadBytes:  &forget,
			BackwardOverheadBytes: p.Back.Scratch,
			WeightBytes:           weights,
		}
	}
	return c
}
