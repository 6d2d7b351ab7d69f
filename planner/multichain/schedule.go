package multichain

// Kind is the kind of a step (table 1.1).
type Kind uint8

const (
	Store    Kind = iota // duplicate a_l of a branch, so that the next forward leaves it
	Forward              // F_l: a_{l-1} becomes a_l
	Backward             // B_l: a_{l-1} and δ_l become δ_{l-1}
	Loss                 // the last activations of all branches become their gradients
	Drop                 // forget δ_0 of a branch that has run to its end
)

// Op is one operation. Branch counts from 0; Layer is l, 0 for Loss and Drop.
type Op struct {
	Kind   Kind
	Branch int
	Layer  int
}

// Schedule is a valid order of steps.
type Schedule []Op
