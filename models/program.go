package models

import "plimsoll/kernels"

// Block names a piece of memory that a layer's program works on. The executor gives each block one place in the
// arena for the time the program runs.
type Block uint8

const (
	// Input holds the layer's input at offset 0: a_{ℓ-1}, or ā_{ℓ-1}, which begins with it.
	Input Block = iota
	// Output holds what a forward leaves: ā_ℓ after forward_all (the output at offset 0, then the saved tensors),
	// a_ℓ otherwise; until a part of it is written, a forward may keep temporaries there. Backward reads ā_ℓ from it
	// and may overwrite it.
	Output
	// GradOutput holds δ_ℓ; backward may overwrite it. Empty for the loss.
	GradOutput
	// GradInput receives δ_{ℓ-1}; until it is written, backward may keep temporaries in it.
	GradInput
	// Scratch holds temporaries and workspaces while the program runs.
	Scratch
	// Params holds the layer's parameters and buffers, Grads the gradients of the trained ones.
	Params
	Grads
	// Labels holds the labels of the batch, int32.
	Labels
	// Scalars holds the step's kernels.Scalars.
	Scalars
)

// Ref is a range of bytes of a block.
type Ref struct {
	Block  Block
	Offset int64
	Bytes  int64
	Branch int // of Input and GradInput, in a layer that joins branches: whose end it is
}

// Step is one kernel call of a program with its operands placed.
type Step struct {
	Name string // the op's name in the layer: "conv1", "bn1"
	Call kernels.Call
	Refs Refs
}

// Refs mirrors kernels.Operands with block references. A zero Ref (Bytes 0) is an operand that the call does not use.
type Refs struct {
	X         []Ref
	Y         Ref
	DX        []Ref
	DY        Ref
	Saved     []Ref
	Params    []Ref
	DParams   []Ref
	Workspace Ref
}

// Program is what one op of a sequence does for one layer: kernel calls in order. It is compiled once, for one
// kernel library, and knows the exact bytes of everything it touches.
type Program struct {
	Steps   []Step
	Scratch int64 // bytes of the Scratch block: the op's overhead
}

// Programs are the compiled forms of one layer and the sizes that follow from them.
type Programs struct {
	// Save is forward_all; Forget is forward_checkpoint and forward_discard; Back is backward.
	// Forget computes the same bits as Save. Eval is the forward of evaluation: running statistics, no dropout.
	Save, Forget, Back, Eval Program

	OutputBytes   int64 // a_ℓ
	SavedBytes    int64 // ā_ℓ, the extent of the Output block after Save
	GradientBytes int64 // δ_ℓ; 0 for the loss
	ParamBytes    int64 // extent of the Params block
	GradBytes     int64 // extent of the Grads block
}
