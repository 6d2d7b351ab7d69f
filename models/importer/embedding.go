package importer

import (
	"fmt"

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
		op := kernels.Embedding{Vocabulary: int(x.tensor.Dims[0]), Width: int(x.tensor.Dims[1]), To: c.config.DType.Stored()}
		return c.push(c.Node, op, asImage, []source{from}, at)
	}
	if k := len(at.dims); k > 0 && at.dims[k-1] != len(at.numbers) {
		return nil, fmt.Errorf("rows of a table by constants of %v, and only one for each position is supported", at.dims)
	}
	for i, v := range at.numbers {
		if v != float64(i) {
			return nil, fmt.Errorf("rows %v of a table, and only the first ones, in order, are supported", at.numbers[:min(len(at.numbers), 8)])
		}
	}
	if len(at.numbers) == 0 {
		return nil, fmt.Errorf("a table is read neither with the tokens nor with constant positions, which alone is supported")
	}
	return &value{table: &table{from, len(at.numbers)}}, nil
}

// positions adds what input i has for each position to the Embedding that input j is; false: they are something else.
func (c *call) positions(i, j int) (v *value, is bool, err error) {
	p, x := c.at(i), c.at(j)
	if p == nil || x == nil || p.table == nil || x.step == nil {
		return nil, false, nil
	}
	op, is := x.step.op.(kernels.Embedding)
	if !is || op.Positions > 0 || x.step.reads != 1 || p.table.rows != x.shape[1] {
		return nil, true, fmt.Errorf("%d rows of %q are added to %v: only one for each token's position, to an embedding that nothing else reads, is supported",
			p.table.rows, p.table.name, x.shape)
	}
	op.Positions = int(p.table.tensor.Dims[0])
	return x, true, c.widen(x.step, op, p.table.source)
}
