package importer

import (
	"cmp"
	"slices"
)

// addends are the terms that attention and linear layers add, made of parameters and constants: one of them, or none.
type addends struct {
	picks  *picks
	pieces pieces
}

// picks are rows of a parameter that constants choose, such as Swin's table of relative positions: of each position of rows, all columns.
type picks struct {
	source
	columns int
	rows    constant  // which row each position has
	axis    int       // of the value, which is the columns'; the others are those of rows
	plus    *constant // what is added; nil: nothing
}

// dims returns the extents of the value.
func (p *picks) dims() []int { return slices.Insert(slices.Clone(p.rows.dims), p.axis, p.columns) }

// nameOf is a parameter's name for messages.
func (p *picks) nameOf() string { return cmp.Or(p.name, "of a table") }

// terms are the terms that attention adds to its scores besides a causal mask: rows of a parameter, and constants.
type terms struct {
	table *picks
	masks *masks
}

// masks are matrices of positions: sample n has the one that is n mod their number, each head its own or the same.
type masks struct {
	all     [][]float64
	byHead  bool
	samples int
}

// pieces are vectors that are joined: parameters, and zeros where there is no tensor.
type pieces []piece

type piece struct {
	source
	n int
}

// leastHidden is the largest term that hides a score: its exponential is 0.
const leastHidden = -1e4

// norms are parts of RMSNorm and of LayerNorm that are written out: one of them, or none.
type norms struct {
	meaned    *value // the tensor that a tensor has the mean of each row of
	centered  *value // the tensor whose rows a value is, less their means
	statistic *statistic
	normed    *normed
}

// statistic is a function of the mean of the squares of each row of a tensor, by its values at meanSquares.
type statistic struct {
	of *value
	at []float64
}

// normed is rows divided by the root of their mean square and epsilon. They may be rows less their means.
type normed struct {
	of      *value
	epsilon float32
}
