package chain

import (
	"encoding/json"
	"fmt"
	"slices"

	"plimsoll/internal/fields"
)

// MostBranches is how many branches may meet in one loss.
const MostBranches = 8

// Wiring says which activations each layer reads. The first layer of a branch reads the branch's input. The layer after
// all branches reads the ends of all branches. Any other layer reads the output of the layer before it.
//
// Activation ℓ is the output of layer ℓ, activation 0 the input of the first branch, or of the chain.
type Wiring struct {
	branches []int
	layers   int
}

// NewWiring returns the wiring of so many layers, of which the first ones are those of the branches; without branches,
// that of a chain.
func NewWiring(branches []int, layers int) Wiring { return Wiring{branches, layers} }

// Wiring returns the wiring of the chain's layers.
func (c *Chain) Wiring() Wiring { return NewWiring(c.Branches, c.Len()) }

// Joins reports whether branches meet, if only one.
func (w Wiring) Joins() bool { return len(w.branches) > 0 }

// Activations returns the number of activations, which count from 0.
func (w Wiring) Activations() int { return w.layers + w.Inputs() }

// Inputs returns the number of inputs: one for each branch.
func (w Wiring) Inputs() int { return max(1, len(w.branches)) }

// Input returns the activation that is the input of a branch.
func (w Wiring) Input(branch int) int {
	if branch == 0 {
		return 0
	}
	return w.layers + branch
}

// IsInput reports whether an activation is the input of a branch.
func (w Wiring) IsInput(i int) bool { return i == 0 || i > w.layers }

// Reads returns the activations that layer l reads.
func (w Wiring) Reads(l int) []int {
	var ends []int
	before := 0
	for k, n := range w.branches {
		if l == before+1 {
			return []int{w.Input(k)}
		}
		before += n
		ends = append(ends, before)
	}
	if l == before+1 && len(ends) > 0 {
		return ends
	}
	return []int{l - 1}
}

// Begins reports whether layer l reads the input of a branch.
func (w Wiring) Begins(l int) bool { return w.IsInput(w.Reads(l)[0]) }

// AllInputBytes returns the size of the inputs of all branches, which are alike.
func (c *Chain) AllInputBytes() int64 { return c.InputBytes * int64(c.Wiring().Inputs()) }

// takeBranches reads the field of the branches.
func takeBranches(o *fields.Object) (branches []int) {
	for _, raw := range o.Array("branches") {
		n := 0
		if json.Unmarshal(raw, &n) != nil {
			o.Refuse("branches", string(raw), "is not a number of layers")
		}
		branches = append(branches, n)
	}
	return branches
}

// checkBranches refuses branches that have no layers, or leave none for the loss.
func (c *Chain) checkBranches() error {
	left := c.Len()
	for _, n := range c.Branches {
		left -= min(max(n, 0), left)
	}
	var reason string
	switch {
	case slices.ContainsFunc(c.Branches, func(n int) bool { return n < 1 }):
		reason = "has a branch without layers"
	case len(c.Branches) > MostBranches:
		reason = fmt.Sprintf("has more than %d branches", MostBranches)
	case left < 1:
		reason = fmt.Sprintf("leaves none of the %d layers for the loss", c.Len())
	default:
		return nil
	}
	return &fields.Error{Field: "branches", Value: fmt.Sprint(c.Branches), Reason: reason}
}
