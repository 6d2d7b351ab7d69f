package models

import (
	"fmt"

	"plimsoll/kernels"
)

// endWith replaces the loss of a model, softmax cross entropy, by a loss of elements. Labels become targets, float32, one for each logit.
func (m *Model) endWith(c kernels.Criterion) error {
	last := m.Layers[len(m.Layers)-1]
	logits := last.Input().Shape
	switch {
	case c == kernels.CrossEntropy:
		return nil
	case len(logits) != 2:
		return fmt.Errorf("%w: %s has outputs %v: loss %v is for models with outputs N,C: give another model, or loss %v", ErrConfig, m.Name, logits, c, kernels.CrossEntropy)
	}
	m.Labels = kernels.F32(logits...)
	for _, l := range m.Layers {
		l.labels = m.Labels
	}
	last.Nodes[len(last.Nodes)-1].Op = kernels.ElementLoss{Of: c}
	return nil
}

// Logits returns the number of elements that the loss reads.
func (m *Model) Logits() int64 { return m.Layers[len(m.Layers)-1].Input().Elements() }
