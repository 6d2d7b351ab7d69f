package models

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/planner/chain"
)

// Compile returns the programs of every layer, the loss included, for one kernel library.
func (m *Model) Compile(lib kernels.Library) ([]*Programs, error) {
	all, err := m.CompileUnsplit(lib)
	if err != nil {
		return nil, err
	}
	late := m.readLate()
	for i, l := range m.Layers {
		if err := l.compileHalves(all[i], lib, m.DifferentiatesInput(i+1), late[i+1]); err != nil {
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
			return m.DifferentiatesInput(i+1) == m.DifferentiatesInput(j+1) && l.like(m.Layers[j])
		})
		if same >= 0 {
			p := *all[unlike[same]]
			all[i] = &p
			continue
		}
		p, err := l.compile(lib, m.DifferentiatesInput(i+1))
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

// DifferentiatesInput reports whether the backward of layer ℓ computes the gradient of its input. It does not where no layer before it is
// trained, and tokens have none.
func (m *Model) DifferentiatesInput(l int) bool {
	return m.InputGradient && m.Input.DType.Float() || !m.Wiring().Begins(l) && slices.ContainsFunc(m.Layers[:l-1], trains)
}

// readLate returns, by activation, whether a BackParams reads it.
func (m *Model) readLate() []bool {
	wiring := m.Wiring()
	late := make([]bool, wiring.Activations())
	for i, l := range m.Layers {
		if l.readsLate(l.wanted(m.DifferentiatesInput(i + 1))) {
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
