package importer

import (
	"cmp"
	"fmt"

	"plimsoll/kernels"
)

// unequal lets a reader of comparisons compare the tokens with a number.
func unequal(read func(c *call) (*value, error)) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if x, y := c.at(0), c.at(1); x != nil && x.shape != nil && c.tokens(x) && isNumber(y) {
			return uncounted(c, y)
		}
		return read(c)
	}
}

// uncounted counts the tokens that are not a number.
func uncounted(c *call, y *value) (*value, error) {
	p, err := whole(y.numbers)
	if err != nil || p[0] < 0 {
		return nil, fmt.Errorf("tokens are compared with %v, which is none", y.numbers[0])
	}
	return &value{numbered: &numbered{token: p[0]}, from: c.Node}, nil
}

// castOfTexts lets a reader of conversions pass numbers of tokens and parameters, and makes scaled embeddings tensors.
func castOfTexts(read func(c *call) (*value, error)) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		to, x := DType(c.int("to", 0)), c.at(0)
		switch {
		case x == nil:
		case x.numbered != nil && (to == Int32 || to == Int64 || to == Bool && x.numbered.stage == counted0):
			return x, nil
		case x.tensor != nil && x.tensor.DType == Float32 && to == Float32 && x.flipped == "" && x.repeated == nil:
			same := *x
			same.name = cmp.Or(x.name, c.In[0])
			return &same, nil
		case x.curve != nil && x.curve.of.step != nil && to == Float32 && x.curve.affine() != nil:
			return c.plain(x, 0)
		}
		return read(c)
	}
}

// sumsOf lets a reader of cumulative sums count tokens.
func sumsOf(read func(c *call) (*value, error)) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if x := c.at(0); x != nil && x.numbered != nil {
			return x.numbered.sums(c.int("axis", 0))
		}
		return read(c)
	}
}

// sameOr lets a reader of gathered constants pass numbers of tokens as indices.
func sameOr(read func(c *call) (*value, error)) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if v := sameOfAll(c, c.at(0), c.at(1)); v != nil {
			return v, nil
		}
		return read(c)
	}
}

// productOfTexts lets a reader of products multiply numbers of tokens.
func productOfTexts(read func(c *call) (*value, error)) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if v := timesNumbered(c.at(0), c.at(1)); v != nil {
			return v, nil
		}
		return read(c)
	}
}

// rowsOfTexts lets a reader of tables read rows by positions that follow from the tokens.
func rowsOfTexts(read func(c *call) (*value, error)) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		x, at := c.at(0), c.at(1)
		if x == nil || x.tensor == nil || at == nil || at.numbered == nil {
			return read(c)
		}
		from, err := c.param(0, asIs)
		if err == nil && (c.int("axis", 0) != 0 || from.layout != asIs || len(x.tensor.Dims) != 2 || x.tensor.DType != Float32) {
			err = fmt.Errorf("numbers of tokens choose rows of %v, which is no table", x.tensor.Dims)
		}
		if err != nil {
			return nil, err
		}
		return numberedRows(c, from, at)
	}
}

// sumOfTexts lets a reader of sums add to numbers of tokens, add 1 to a parameter, and add positions that follow from the tokens.
func sumOfTexts(read func(c *call) (*value, error)) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		if v, err := addToNumbered(c); v != nil || err != nil {
			return v, err
		}
		for i := range 2 {
			x, y := c.at(i), c.at(1-i)
			if fromOne(x, y) {
				return &value{fromOne: x, from: c.Node}, nil
			}
			if y != nil && y.table != nil && y.table.uncounted > 0 {
				return addNumbered(c, x, y.table)
			}
		}
		return read(c)
	}
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
		case isNumber(y) && n.stage == zeroed && y.numbers[0] == float64(n.token):
			return &value{numbered: &numbered{n.token, positions0}}, nil
		case isNumber(y) && y.numbers[0] == 0:
			return x, nil
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

// addNumbered adds positions that follow from the tokens to an Embedding, which rows for all positions may have been added to.
func addNumbered(c *call, x *value, t *table) (*value, error) {
	refused := fmt.Errorf("positions that pass over token %d are added to something else than an embedding of the tokens, which alone is supported", t.uncounted-1)
	if x == nil || x.step == nil || len(x.shape) != 3 {
		return nil, refused
	}
	s := x.step
	for s.reads == 1 {
		op, rows := s.op.(kernels.AddRows)
		if !rows || op.Step != 0 {
			break
		}
		s = s.in[0]
	}
	op, embeds := s.op.(kernels.Embedding)
	if !embeds || op.Positions > 0 || s.in[0] != c.input || s.reads != 1 {
		return nil, refused
	}
	op.Positions, op.Uncounted = int(t.tensor.Dims[0]), t.uncounted
	return x, c.widen(s, op, t.source)
}

// fromOne reports whether y adds 1 to x, a parameter of one axis.
func fromOne(x, y *value) bool {
	return x != nil && x.tensor != nil && x.tensor.Trains && len(x.tensor.Dims) == 1 && x.flipped == "" && x.repeated == nil && isNumber(y) && (y.tensor == nil || !y.tensor.Trains) &&
		y.numbers[0] == 1 && len(y.dims) == 0
}
