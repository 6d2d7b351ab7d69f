package importer

import (
	"fmt"

	"plimsoll/kernels"
)

// numbered are whole numbers that follow from the tokens on the way to RoBERTa's positions: a token p has position p, and each other token p + the
// number of tokens other than p up to it.
type numbered struct {
	token int
	stage numberedStage
}

// numberedStage is a step of that way.
type numberedStage uint8

const (
	counted0   numberedStage = iota // 1 of tokens other than p, 0 of p
	summed                          // their sums along a sample
	zeroed                          // the sums, 0 for p itself
	positions0                      // the sums and p
)

// unequal compares constants, or the tokens with a number.
func unequal(c *call) (*value, error) {
	if x, y := c.at(0), c.at(1); x != nil && x.shape != nil && c.tokens(x) && isNumber(y) {
		p, err := whole(y.numbers)
		if err != nil || p[0] < 0 {
			return nil, fmt.Errorf("tokens are compared with %v, which is none", y.numbers[0])
		}
		return &value{numbered: &numbered{token: p[0]}, from: c.Node}, nil
	}
	return truth(func(x, y float64) bool { return x != y })(c)
}

// sums adds numbers up along a sample.
func (n *numbered) sums(axis int) (*value, error) {
	if n.stage != counted0 || axis != 1 && axis != -1 {
		return nil, fmt.Errorf("numbers of tokens are added up along axis %d, and only tokens that are counted, along a sample, are supported", axis)
	}
	return &value{numbered: &numbered{n.token, summed}}, nil
}

// timesNumbered makes the sums of the token that is not counted 0; nil: the inputs are something else.
func timesNumbered(x, y *value) *value {
	if x == nil || y == nil || x.numbered == nil || y.numbered == nil || x.numbered.token != y.numbered.token {
		return nil
	}
	if a, b := min(x.numbered.stage, y.numbered.stage), max(x.numbered.stage, y.numbered.stage); a != counted0 || b != summed {
		return nil
	}
	return &value{numbered: &numbered{x.numbered.token, zeroed}}
}

// addToNumbered adds 0, or p as the first position; nil, without an error: no input is numbers of tokens.
func addToNumbered(c *call) (*value, error) {
	for i := range 2 {
		x, y := c.at(i), c.at(1-i)
		if x == nil || x.numbered == nil {
			continue
		}
		n := *x.numbered
		switch {
		case isNumber(y) && y.numbers[0] == 0:
			return x, nil
		case isNumber(y) && n.stage == zeroed && y.numbers[0] == float64(n.token):
			return &value{numbered: &numbered{n.token, positions0}}, nil
		}
		return nil, fmt.Errorf("numbers of tokens are added to something else than 0 or the token %d that is not counted, which is not supported", n.token)
	}
	return nil, nil
}

// sameOfAll takes elements, by numbers of tokens, out of a constant whose elements are all the same; nil: the inputs are something else. An index
// outside the constant is an error in PyTorch.
func sameOfAll(c *call, x, at *value) *value {
	if x == nil || at == nil || at.numbered == nil || len(x.numbers) == 0 {
		return nil
	}
	for _, v := range x.numbers {
		if v != x.numbers[0] {
			return nil
		}
	}
	v, err := filled(c.input.desc.Shape, func([]int) float64 { return x.numbers[0] })
	if err != nil {
		return nil
	}
	return &value{constant: v}
}

// numberedRows are rows of a table by positions that follow from the tokens.
func numberedRows(c *call, from source, at *value) (*value, error) {
	n := at.numbered
	switch {
	case n.stage != positions0:
		return nil, fmt.Errorf("a table is read with numbers of tokens that are no positions, which is not supported")
	case c.int("fixed", -1) != n.token:
		return nil, fmt.Errorf("positions pass over token %d, and row %d of their table has no gradient (padding_idx): want the same", n.token, c.int("fixed", -1))
	}
	return &value{table: &table{source: from, rows: c.input.desc.Shape[1], uncounted: n.token + 1}}, nil
}

// addNumbered adds positions that follow from the tokens to input j, an Embedding, which rows for all positions may have been added to.
func addNumbered(c *call, j int, t *table) (v *value, is bool, err error) {
	x := c.at(j)
	s := x.step
	for s != nil && s.reads == 1 {
		op, rows := s.op.(kernels.AddRows)
		if !rows || op.Step != 0 {
			break
		}
		s = s.in[0]
	}
	if s == nil || len(x.shape) != 3 || s.reads != 1 || x.step.reads != 1 {
		return nil, true, fmt.Errorf("positions that pass over token %d are added to something else than an embedding of the tokens, which alone is supported", t.uncounted-1)
	}
	op, embeds := s.op.(kernels.Embedding)
	if !embeds || op.Positions > 0 || s.in[0] != c.input {
		return nil, true, fmt.Errorf("positions that pass over token %d are added to something else than an embedding of the tokens, which alone is supported", t.uncounted-1)
	}
	op.Positions, op.Uncounted = int(t.tensor.Dims[0]), t.uncounted
	return x, true, c.widen(s, op, t.source)
}

// fromOne reports whether y adds 1 to x, a parameter of one axis.
func fromOne(x, y *value) bool {
	return x != nil && x.tensor != nil && x.tensor.Trains && len(x.tensor.Dims) == 1 && x.flipped == "" && x.repeated == nil && isNumber(y) && (y.tensor == nil || !y.tensor.Trains) &&
		y.numbers[0] == 1 && len(y.dims) == 0
}
