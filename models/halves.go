package models

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// halves is a backward in two: the input's gradient, then, when the executor pleases, the parameters'.
//
// A gradient that both read is kept where the second finds it: in a free part of Output, in GradOutput, or in Kept. A part
// of Output is free when nobody reads it any more, as the input of a BatchNorm, on which its gradient lies anyway. Kept
// ones come first: they are to take little memory, because they live long. Then come the temporaries of the first half,
// also where Kept is not written yet.
type halves struct {
	input, params *routine
	saved         savedSet
	gradOutput    bool // GradOutput lives on, δ_ℓ or other kept gradients in it; before these are placed: it may
	kept          int64
	scratch       int64 // of the first half
}

// halved derives the two routines. late says that the second half of another layer still reads a_ℓ; gradOutput, that kept
// gradients may lie in GradOutput.
func (l *Layer) halved(want *gradients, saved savedSet, late, gradOutput bool) *halves {
	h := &halves{input: &routine{}, params: &routine{}, saved: saved, gradOutput: gradOutput}
	d := l.derive(want, saved, h.input, h.params)
	for _, x := range l.outputs() {
		if late {
			output := d.saved[x.value]
			output.liveOut = true
			h.input.spared, h.params.spared = append(h.input.spared, output), append(h.params.spared, output)
		}
	}
	for _, b := range h.keepers() {
		if b.fixed {
			h.input.spared = append(h.input.spared, b)
			h.gradOutput = h.gradOutput || b.ref.Block == GradOutput
		}
	}
	return h
}

// keepers returns the buffers that the second half reads and the first must leave.
func (h *halves) keepers() []*buffer {
	var all []*buffer
	for i := range h.params.steps {
		for _, a := range h.params.steps[i].args {
			if a.buf.kept && !slices.Contains(all, a.buf) {
				all = append(all, a.buf)
			}
		}
	}
	return all
}

// layoutKept is the layout of the gradients that both halves read.
func (l *Layer) layoutKept(h *halves) *layout {
	spare := []region{{Output, h.saved.bytes}}
	if h.gradOutput {
		spare = append(spare, region{GradOutput, l.gradientBytes()})
	}
	return layoutOf(h.input, spare, Kept, func(b *buffer) bool { return b.kept })
}

// backwardSpare returns the blocks whose free parts a backward may use.
func (l *Layer) backwardSpare(saved savedSet) []region {
	spare := []region{{GradOutput, l.gradientBytes()}, {Output, saved.bytes}}
	if len(l.joined) == 0 || l.entries != nil { // otherwise GradInput is several blocks, and small
		spare = append(spare, region{GradInput, l.inputBytes()})
	}
	return spare
}

// gradientBytes returns δ_ℓ without what comes by portals; the loss has none.
func (l *Layer) gradientBytes() (bytes int64) {
	for _, x := range l.outputs() {
		if !l.loss() && x.branch == 0 {
			bytes += l.Desc(x.value).Storage()
		}
	}
	return bytes
}

// inputBytes returns the storage of the inputs in the first block of the Input.
func (l *Layer) inputBytes() (bytes int64) {
	if l.entries == nil {
		return l.Input().Storage()
	}
	for k, r := range l.entries {
		if r.Branch == 0 {
			bytes += l.Desc(InputOf(k)).Storage()
		}
	}
	return bytes
}

// layoutInput is the layout of the other temporaries of the first half, once the kept ones have their places.
func (l *Layer) layoutInput(h *halves) *layout {
	return newLayout(h.input, append(l.backwardSpare(h.saved), region{Kept, h.kept}))
}

// layoutParams is the layout of the second half, which has workspaces only.
func (l *Layer) layoutParams(h *halves) *layout {
	spare := []region{{Output, h.saved.bytes}, {Kept, h.kept}}
	if h.gradOutput {
		spare = append(spare, region{GradOutput, l.gradientBytes()})
	}
	return newLayout(h.params, spare)
}

// place places everything that the first half touches.
func (h *halves) place(l *Layer) {
	kept := l.layoutKept(h)
	h.kept = kept.place()
	for _, b := range kept.temporaries {
		b.fixed = true
	}
	h.gradOutput = slices.ContainsFunc(h.keepers(), func(b *buffer) bool { return b.ref.Block == GradOutput })
	h.scratch = l.layoutInput(h).place()
}

// handOver turns what the first half keeps into what the second finds. The first is to be written down before it.
func (h *halves) handOver() {
	for _, b := range h.keepers() {
		b.liveIn, b.liveOut = true, false
	}
}

// held returns the bytes that live between the halves beside the layer's input and ā_ℓ.
func (h *halves) held(l *Layer) int64 {
	if h.gradOutput {
		return h.kept + l.gradientBytes()
	}
	return h.kept
}

// lessHeld compares by what is held, then by what the first half takes beyond the other blocks.
func (l *Layer) lessHeld(a, b *halves) bool {
	return cmp.Or(cmp.Compare(a.held(l), b.held(l)), cmp.Compare(a.kept+a.scratch, b.kept+b.scratch)) < 0
}

// bestHalves returns the halves that hold least. Where δ_ℓ's block lives on, other gradients can lie in it without taking
// more memory; otherwise that pays when it saves as much of Kept, or saves Scratch.
func (l *Layer) bestHalves(lib kernels.Library, want *gradients, saved savedSet, late bool) (*halves, error) {
	var best *halves
	for _, gradOutput := range []bool{false, true} {
		h := l.halved(want, saved, late, gradOutput)
		if err := h.input.workspaces(lib); err != nil {
			return nil, err
		}
		h.place(l)
		if best == nil || l.lessHeld(h, best) {
			best = h
		}
		if best.kept == 0 || best.gradOutput {
			break
		}
	}
	return best, best.params.workspaces(lib)
}

// compileHalves adds the programs of the two halves. late says that a BackParams of another layer reads a_ℓ.
func (l *Layer) compileHalves(p *Programs, lib kernels.Library, inputGradient, late bool) error {
	want := l.wanted(inputGradient)
	h, err := l.bestHalves(lib, want, l.saves(want), late)
	if err != nil {
		return fmt.Errorf("backward in halves: %w", err)
	}
	p.KeptBytes = h.kept
	p.BackInput = h.input.program(h.scratch)
	h.handOver()
	p.BackParams = h.params.program(l.layoutParams(h).place())
	return nil
}

// readsLate reports whether BackParams reads an input of the layer.
func (l *Layer) readsLate(want *gradients) bool {
	for i := range l.Nodes {
		n := &l.Nodes[i]
		for j, v := range n.In {
			if want.active[i] && n.Op.Split() && n.trains() && n.Op.Needs().Input(j) && v.branch() >= 0 {
				return true
			}
		}
	}
	return false
}

// Halves returns BackInput and, directly behind it, BackParams as one program that can stand in for Back. Kept is the
// beginning of its Scratch.
func (p *Programs) Halves() Program {
	h := Program{Scratch: p.KeptBytes + max(p.BackInput.Scratch, p.BackParams.Scratch)}
	for _, s := range slices.Concat(p.BackInput.Steps, p.BackParams.Steps) {
		s.Refs = s.Refs.moved(func(r Ref) Ref {
			switch r.Block {
			case Kept:
				r.Block = Scratch
			case Scratch:
				r.Offset += p.KeptBytes
			}
			return r
		})
		h.Steps = append(h.Steps, s)
	}
	return h
}

// moved returns the references, each of them moved.
func (r *Refs) moved(move func(Ref) Ref) Refs {
	all := func(refs []Ref) []Ref {
		out := slices.Clone(refs)
		for i := range out {
			out[i] = move(out[i])
		}
		return out
	}
	return Refs{
		X: all(r.X), Y: move(r.Y), DX: all(r.DX), DY: move(r.DY), Saved: all(r.Saved),
		Params: all(r.Params), DParams: all(r.DParams), Workspace: move(r.Workspace),
	}
}
