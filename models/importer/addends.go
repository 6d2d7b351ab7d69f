package importer

import (
	"cmp"
	"slices"
)

// addends are what attention and linear layers add, made of parameters and constants: one of them, or none.
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

// terms are what attention adds to its scores besides a causal mask: rows of a parameter, and constants.
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
