package importer

import (
	"fmt"
	"slices"
)

// pickRows returns rows of input 0, a parameter, by a constant.
func pickRows(c *call, at *constant) (*value, error) {
	from, err := c.param(0, asIs)
	if err != nil {
		return nil, err
	}
	if len(from.tensor.Dims) != 2 || from.layout != asIs || len(at.dims) == 0 {
		return nil, fmt.Errorf("rows of parameter %q of %v by constants of %v, and only those of a matrix are supported", from.name, from.tensor.Dims, at.dims)
	}
	rows, err := indicesOf(at, int(from.tensor.Dims[0]))
	if err != nil {
		return nil, err
	}
	p := &picks{source: from, columns: int(from.tensor.Dims[1]), rows: constant{numbers: make([]float64, len(rows)), dims: at.dims}, axis: len(at.dims)}
	for i, row := range rows {
		p.rows.numbers[i] = float64(row)
	}
	return pickedAs(c, p), nil
}

func pickedAs(c *call, p *picks) *value { return &value{addends: addends{picks: p}, from: c.Node} }

// ofPicks lets a reader that moves elements of constants move picked rows.
func ofPicks(move func(c *call, p *picks) (*picks, error), read func(c *call) (*value, error)) func(c *call) (*value, error) {
	return func(c *call) (*value, error) {
		x := c.at(0)
		if x == nil || x.picks == nil {
			return read(c)
		}
		if x.picks.plus != nil {
			return nil, fmt.Errorf("input 0 is rows of parameter %q with a mask, by %s, which only scores of attention are supported with", x.picks.name, x.from.Label)
		}
		p := *x.picks
		moved, err := move(c, &p)
		if err != nil {
			return nil, err
		}
		return pickedAs(c, moved), nil
	}
}

// reshapePicks gives picked rows other axes; the columns stay an axis of their own.
func reshapePicks(c *call, p *picks) (*picks, error) {
	to, err := c.constants(1, "shape")
	if err != nil {
		return nil, err
	}
	have := p.dims()
	want, err := reshaped(have, to)
	if err != nil {
		return nil, err
	}
	ahead, axis := extents(have[:p.axis]), 0
	for axis < len(want) && extents(want[:axis]) < ahead {
		axis++
	}
	for axis < len(want)-1 && want[axis] == 1 && p.columns > 1 {
		axis++
	}
	if axis >= len(want) || extents(want[:axis]) != ahead || want[axis] != p.columns {
		return nil, fmt.Errorf("rows of parameter %q from %v to %v, which does not keep its %d columns", p.name, have, want, p.columns)
	}
	p.axis, p.rows.dims = axis, slices.Delete(slices.Clone(want), axis, axis+1)
	return p, nil
}

// upTo returns the numbers below one, in their order.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// permutePicks gives picked rows another order of their axes.
func permutePicks(c *call, p *picks) (*picks, error) {
	axes := len(p.rows.dims) + 1
	perm := c.listed("perm", backwards(axes))
	if sorted := slices.Sorted(slices.Values(perm)); !slices.Equal(sorted, upTo(axes)) {
		return nil, fmt.Errorf("attribute perm is %v, no order of %d axes", perm, axes)
	}
	column := slices.Index(perm, p.axis)
	var rows []int
	for i, axis := range perm {
		switch {
		case i == column:
		case axis > p.axis:
			rows = append(rows, axis-1)
		default:
			rows = append(rows, axis)
		}
	}
	moved, err := permuted(&p.rows, rows)
	if err != nil {
		return nil, err
	}
	p.axis, p.rows = column, moved
	return p, nil
}

// unsqueezePicks adds an axis of 1.
func unsqueezePicks(c *call, p *picks) (*picks, error) {
	list, err := c.constants(1, "axes")
	if err != nil {
		return nil, err
	}
	axes := len(p.rows.dims) + 1
	if len(list) != 1 || axes >= MostAxes {
		return nil, fmt.Errorf("axes %v, and only one is supported", list)
	}
	axis := positive(list[0], axes+1)
	if axis < 0 || axis > axes {
		return nil, fmt.Errorf("axes %v of %d", list, axes)
	}
	if axis <= p.axis {
		p.rows.dims, p.axis = slices.Insert(slices.Clone(p.rows.dims), axis, 1), p.axis+1
	} else {
		p.rows.dims = slices.Insert(slices.Clone(p.rows.dims), axis-1, 1)
	}
	return p, nil
}

// maskedPicks adds a constant to picked rows; nil: the inputs are something else.
func maskedPicks(c *call, x, y *value) (*value, error) {
	if x == nil || y == nil || x.picks == nil || y.numbers == nil && y.mask == nil {
		return nil, nil
	}
	if x.picks.plus != nil {
		return nil, fmt.Errorf("a second constant is added to rows of parameter %q, which is not supported", x.picks.name)
	}
	dense, err := y.dense()
	if err != nil {
		return nil, err
	}
	p := *x.picks
	p.plus = &dense
	return pickedAs(c, &p), nil
}

// hiddenPicks adds to picked rows a constant that hides some scores: where a condition does not hold, a number stands in their place; nil: the
// inputs are something else.
func hiddenPicks(c *call, seen, x, fill *value) (*value, error) {
	if seen == nil || seen.numbers == nil && seen.mask == nil || x == nil || x.picks == nil || !isNumber(fill) {
		return nil, nil
	}
	dense, err := seen.dense()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(dense.numbers, 0) {
		return x, nil
	}
	hidden := fill.numbers[0]
	if !(hidden <= leastHidden) {
		return nil, fmt.Errorf("rows of parameter %q are replaced by %v, and only by a number up to %v, which hides them, is supported", x.picks.nameOf(), hidden, leastHidden)
	}
	plus, err := computed([]constant{dense}, func(v []float64) float64 {
		if v[0] != 0 {
			return 0
		}
		return hidden
	})
	if err != nil {
		return nil, err
	}
	return maskedPicks(c, x, &value{constant: plus})
}

// expandPicks repeats picked rows along axes ahead of heads and positions, which all samples have the same ones for.
func expandPicks(c *call, p *picks) (*picks, error) {
	to, err := c.constants(1, "")
	if err != nil {
		return nil, err
	}
	have := p.dims()
	k := len(have) - 3
	if len(to) != len(have) || k < 0 || p.axis != k {
		return nil, fmt.Errorf("rows of parameter %q of %v to %v, and only along axes ahead of heads and positions is supported", p.name, have, to)
	}
	for i, n := range to {
		if n != -1 && n != have[i] && (i >= k || have[i] != 1) {
			return nil, fmt.Errorf("rows of parameter %q of %v to %v, and only along axes ahead of heads and positions is supported", p.name, have, to)
		}
	}
	return p, nil
}
