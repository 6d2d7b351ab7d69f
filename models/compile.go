package models

import (
	"fmt"

	"plimsoll/kernels"
)

// compile derives the layer's programs, without the halves of its backward, and lays out their memory.
func (l *Layer) compile(lib kernels.Library, inputGradient bool) (*Programs, error) {
	want := l.wanted(inputGradient)
	saved := l.saves(want)
	p := &Programs{
		OutputBytes: l.outputBytes(), SavedBytes: saved.bytes, GradientBytes: l.gradientBytes(),
		ParamBytes: l.paramBytes, GradBytes: l.gradBytes,
	}
	into := []*Program{&p.Save, &p.Forget, &p.Eval, &p.Back}
	for i, u := range l.routines(want, saved) {
		if err := u.routine.workspaces(lib); err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
		*into[i] = u.routine.program(newLayout(u.routine, u.spare).place())
	}
	return p, nil
}

// unplaced is a routine and the blocks whose free parts it may use.
type unplaced struct {
	name    string
	routine *routine
	spare   []region
}

// routines returns forward_all, the forward that forgets, that of evaluation, and backward.
func (l *Layer) routines(want *gradients, saved savedSet) []unplaced {
	output := []region{{Output, l.outputBytes()}}
	return []unplaced{
		{"forward_all", l.forward(saving, saved), []region{{Output, saved.bytes}}},
		{"forward_checkpoint", l.forward(forgetting, saved), output},
		{"evaluation", l.forward(evaluating, saved), output},
		{"backward", l.backward(want, saved), l.backwardSpare(saved)},
	}
}

// backwardSpare returns the blocks whose free parts a backward may use.
func (l *Layer) backwardSpare(saved savedSet) []region {
	spare := []region{{GradOutput, l.gradientBytes()}, {Output, saved.bytes}}
	if len(l.joined) == 0 || l.entries != nil { // otherwise GradInput is several blocks, and small
		spare = append(spare, region{GradInput, l.inputBytes()})
	}
	return spare
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

// gradientBytes returns δ_ℓ without what comes by portals; the loss has none.
func (l *Layer) gradientBytes() (bytes int64) {
	for _, x := range l.outputs() {
		if !l.loss() && x.branch == 0 {
			bytes += l.Desc(x.value).Storage()
		}
	}
	return bytes
}
