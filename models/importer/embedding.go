package importer

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// embedding looks up rows of a table by the tokens, or one for each position.
func (c *call) embedding(x, at *value, axis int) (*value, error) {
	from, err := c.param(0, asIs)
	if err != nil {
		return nil, err
	}
	if axis != 0 || from.layout != asIs {
		return nil, fmt.Errorf("of axis %d of a table, or a transposed one, is not supported", axis)
	}
	if at.shape != nil && c.tokens(at) {
		op := kernels.Embedding{Vocabulary: int(x.tensor.Dims[0]), Width: int(x.tensor.Dims[1]), To: c.config.DType.Stored(), Fixed: c.int("fixed", -1) + 1}
		return c.push(c.Node, op, asImage, []source{from}, at)
	}
	if len(at.numbers) == 0 {
		return nil, fmt.Errorf("a table is read neither with the tokens nor with constants, which alone is supported")
	}
	rows, err := whole(at.numbers)
	if err != nil {
		return nil, err
	}
	if k := len(at.dims); k > 0 { // the same ones for each sample
		for i, v := range rows {
			if v != rows[i%at.dims[k-1]] {
				return relativeRows(c, at)
			}
		}
		rows = rows[:at.dims[k-1]]
	}
	for i, v := range rows {
		rows[i] = positive(v, int(x.tensor.Dims[0]))
	}
	t := &table{source: from, rows: len(rows), first: rows[0], step: 1}
	if len(rows) > 1 {
		t.step = rows[1] - rows[0]
	}
	for i, v := range rows {
		if v != t.first+i*t.step || t.step != 0 && t.step != 1 {
			return nil, fmt.Errorf("rows %v of a table, and only rows in order, or one for all positions, are supported", rows[:min(len(rows), 8)])
		}
	}
	if c.int("fixed", -1) >= 0 && (t.step == 0 || c.int("fixed", -1) >= t.first && c.int("fixed", -1) < t.first+len(rows)) {
		return nil, fmt.Errorf("row %d of a table has no gradient (padding_idx), and is that of a position, which is not supported", c.int("fixed", -1))
	}
	made := &value{table: t}
	if !x.tensor.Trains && x.tensor.Frozen { // it may be read as a constant, too
		if all, err := x.tensor.numbers(); err == nil {
			made.constant, err = picked(&all, &at.constant, 0)
			return made, err
		}
	}
	return made, nil
}

// relativeRows are rows of a table by constants of two positions and more, as those of T5's relative positions.
func relativeRows(c *call, at *value) (*value, error) {
	if row := c.int("fixed", -1); slices.Contains(at.numbers, float64(row)) {
		return nil, fmt.Errorf("row %d of a table of relative positions has no gradient (padding_idx), which is not supported", row)
	}
	return pickRows(c, &at.constant)
}

// positions adds what input i has for each position to input j, to an Embedding as a part of it; false: they are something else.
func positions(c *call, i, j int) (v *value, is bool, err error) {
	p, x := c.at(i), c.at(j)
	if p == nil || x == nil || p.table == nil || x.shape == nil {
		return nil, false, nil
	}
	if len(x.shape) != 3 || p.table.rows != x.shape[1] && p.table.rows != 1 {
		return nil, true, fmt.Errorf("%d rows of %q are added to %v: only one for each position of a sequence, or one for all, is supported", p.table.rows, p.table.name, x.shape)
	}
	t := p.table
	if x.step != nil && t.first == 0 && t.step == 1 && t.rows == x.shape[1] {
		if op, embeds := x.step.op.(kernels.Embedding); embeds && op.Positions == 0 && x.step.reads == 1 {
			op.Positions = int(t.tensor.Dims[0])
			return x, true, c.widen(x.step, op, t.source)
		}
	}
	if x, err = c.tensor(j, 3); err != nil {
		return nil, true, err
	}
	op := kernels.AddRows{Rows: int(t.tensor.Dims[0]), First: t.first, Step: t.step}
	if t.rows == 1 {
		op.Step = 0
	}
	v, err = c.push(c.Node, op, as(x), []source{t.source}, x)
	return v, true, err
}
