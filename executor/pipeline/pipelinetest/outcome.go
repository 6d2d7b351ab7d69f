package pipelinetest

import (
	"fmt"
	"math"
	"slices"
)

// Tensor holds the final values of one parameter, or of one of its states.
type Tensor struct {
	Role   string // "weight", "buffer", "constant", "state0", "state1"
	Name   string // the parameter's
	Values []float32
}

func (t *Tensor) key() string { return t.Role + " of " + t.Name }

// Outcome is the result of a run.
type Outcome struct {
	Losses  []float64 // by minibatch, before its update
	Correct []int     // correct predictions, likewise
	Norms   []float64 // by update, of all gradients together, before clipping; nil where nothing is clipped
	// Tensors are the latest weights, the buffers (BatchNorm's running statistics) and the optimizer's states, in the order
	// of the layers.
	Tensors []Tensor
}

// Tensor returns the values of a tensor, nil if there is none of that role and name.
func (o *Outcome) Tensor(role, name string) []float32 {
	for _, t := range o.Tensors {
		if t.Role == role && t.Name == name {
			return t.Values
		}
	}
	return nil
}

// FirstDifference names the first bit in which got differs from want, "" if there is none: losses, norms, then tensors, in the
// order of want. Nothing to compare is a difference, too.
func (o *Outcome) FirstDifference(got *Outcome) string {
	if len(o.Losses) != len(got.Losses) {
		return fmt.Sprintf("%d losses, want %d", len(got.Losses), len(o.Losses))
	}
	for m, want := range o.Losses {
		if math.Float64bits(want) != math.Float64bits(got.Losses[m]) {
			return fmt.Sprintf("the loss of minibatch %d is %v, want %v", m, got.Losses[m], want)
		}
	}
	if !slices.Equal(o.Norms, got.Norms) {
		return fmt.Sprintf("the norms are %v, want %v", got.Norms, o.Norms)
	}
	return FirstDifference(o.Tensors, got.Tensors)
}

// FirstDifference names the first element, in the order of want, that differs in its bits from the tensor of equal role and
// name in got. A tensor that only one of them has is named too. The result is "" if all are equal. Their order does not
// matter. Nothing to compare is a difference, too.
func FirstDifference(want, got []Tensor) string {
	if len(want) == 0 {
		return "there is nothing to compare with"
	}
	have := map[string][]float32{}
	for _, t := range got {
		if _, twice := have[t.key()]; twice {
			return t.key() + " is there twice"
		}
		have[t.key()] = t.Values
	}
	for _, t := range want {
		values, ok := have[t.key()]
		if !ok {
			return t.key() + " is missing"
		}
		if d := firstDifference(t.Values, values); d != "" {
			return t.key() + d
		}
		delete(have, t.key())
	}
	for _, t := range got {
		if _, extra := have[t.key()]; extra {
			return t.key() + " is not wanted"
		}
	}
	return ""
}

func firstDifference(want, got []float32) string {
	if len(want) != len(got) {
		return fmt.Sprintf(" has %d elements, want %d", len(got), len(want))
	}
	for i, w := range want {
		if a, b := math.Float32bits(got[i]), math.Float32bits(w); a != b {
			return fmt.Sprintf("[%d] is %v (%#08x), want %v (%#08x)", i, got[i], a, w, b)
		}
	}
	return ""
}
