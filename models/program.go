package models

import (
	"slices"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// Block names a piece of memory that a layer's program works on. The executor gives each block one place in the
// arena for the time the program runs.
type Block uint8

const (
	// Input holds the layer's input at offset 0: a_{ℓ-1}, or ā_{ℓ-1}, which begins with it.
	Input Block = iota
	// Output holds the results of a forward: ā_ℓ after forward_all (the output at offset 0, then the saved tensors),
	// a_ℓ otherwise. A forward may keep temporaries in any part of it that is not yet written. Backward reads ā_ℓ
	// from it and may overwrite it.
	Output
	// GradOutput holds δ_ℓ; backward may overwrite it. Empty for the loss.
	GradOutput
	// GradInput receives δ_{ℓ-1}; until it is written, backward may keep temporaries in it.
	GradInput
	// Scratch holds temporaries and workspaces while the program runs.
	Scratch
	// Kept holds gradients between BackInput and BackParams. See Programs.
	Kept
	// Params holds the layer's parameters and buffers, Grads the gradients of the trained ones.
	Params
	Grads
	// Labels holds the labels of the batch, int32, or its targets, float32.
	Labels
	// Scalars holds the step's kernels.Scalars.
	Scalars
)

// Ref is a range of bytes of a block.
type Ref struct {
	Block  Block
	Offset int64
	Bytes  int64
	// Branch is of Input and GradInput, in a layer that joins branches: whose end it is. In a model with portals Input, GradInput
	// and GradOutput have a block for each Portal.Entry and Portal.Exit, besides that of the stage next to it, 0.
	Branch int
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

// Operands returns the operands of the call, whose memory at finds. A reference of 0 bytes needs none.
func (r *Refs) Operands(scalars runtime.Span, at func(Ref) runtime.Span) kernels.Operands {
	one := func(ref Ref) (span runtime.Span) {
		if ref.Bytes > 0 {
			span = at(ref)
		}
		return span
	}
	all := func(refs []Ref) []runtime.Span {
		spans := make([]runtime.Span, len(refs))
		for i, ref := range refs {
			spans[i] = one(ref)
		}
		return spans
	}
	return kernels.Operands{
		X: all(r.X), Y: one(r.Y), DX: all(r.DX), DY: one(r.DY), Saved: all(r.Saved),
		Params: all(r.Params), DParams: all(r.DParams), Workspace: one(r.Workspace), Scalars: scalars,
	}
}

// Program is one op of a sequence for one layer: kernel calls in order. It is compiled once, for one kernel
// library, and knows the exact bytes of everything it touches.
type Program struct {
	Steps   []Step
	Scratch int64 // bytes of the Scratch block: the op's overhead
}

// Uses reports whether a step reads or writes the block.
func (p *Program) Uses(b Block) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Refs.uses(b) })
}

func (r *Refs) uses(b Block) bool {
	one := func(ref Ref) bool { return ref.Bytes > 0 && ref.Block == b }
	for _, refs := range [][]Ref{r.X, r.DX, r.Saved, r.Params, r.DParams, {r.Y, r.DY, r.Workspace}} {
		if slices.ContainsFunc(refs, one) {
			return true
		}
	}
	return false
}

// Programs are the compiled forms of one layer and the sizes that follow from them.
//
// Back is one program, or two: BackInput (B), then, any time later, BackParams (W). Together they leave the bits in
// GradInput and Grads that Back leaves. BackInput computes δ_{ℓ-1} and the gradients of those parameters whose ops have
// one pass for all gradients (kernels.Op.Split); BackParams computes the others. Either may have no steps.
//
// An executor of programs keeps these rules. They hold for any order of the layers' BackParams.
//
//   - From the start of BackInput to the end of BackParams it keeps Kept (KeptBytes) at its place. The same holds for Input,
//     Output and GradOutput if BackParams.Uses them. The other blocks, δ_ℓ's among them unless BackParams uses it, end with
//     BackInput as they do with Back. Scratch never lives between the two.
//   - BackInput may overwrite its operands, in Output too, except those that some BackParams reads: its own, and the one of
//     the layer that reads a_ℓ. So Output stays as well until that one has run, if it uses its Input.
//   - Back spares nothing: it runs only after the BackParams of the layers behind.
type Programs struct {
	// Save is forward_all; Forget is forward_checkpoint and forward_discard; Back is backward.
	// Forget computes the same bits as Save. Eval is the forward of evaluation: running statistics, no dropout.
	Save, Forget, Back, Eval Program
	// BackInput and BackParams are the two halves of Back.
	BackInput, BackParams Program

	OutputBytes   int64 // a_ℓ, with what leaves by portals
	SavedBytes    int64 // ā_ℓ, the extent of the Output block after Save
	GradientBytes int64 // δ_ℓ, without what comes back by portals, and so what of a_ℓ the next layer reads; 0 for the loss
	ParamBytes    int64 // extent of the Params block
	GradBytes     int64 // extent of the Grads block
	KeptBytes     int64 // extent of the Kept block
}

// HeldBytes returns the memory that a backward in two halves holds between them beside the layer's input and ā_ℓ: Kept,
// and δ_ℓ where BackParams uses it.
func (p *Programs) HeldBytes() int64 {
	if p.BackParams.Uses(GradOutput) {
		return p.KeptBytes + p.GradientBytes
	}
	return p.KeptBytes
}

// next takes the storage of a tensor from the end of a block.
func next(block Block, end *int64, d kernels.Desc) Ref {
	r := Ref{Block: block, Offset: *end, Bytes: d.Bytes()}
	*end += d.Storage()
	return r
}
