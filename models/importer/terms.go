package importer

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
)

// addTerms adds picked rows, or a constant, to scores; nil: the inputs are something else.
func addTerms(c *call, x, y *value) (*value, error) {
	if x == nil || y == nil || x.scores == nil {
		return nil, nil
	}
	s := *x.scores
	switch {
	case y.picks != nil:
		if err := s.addTable(y.picks); err != nil {
			return nil, err
		}
		if y.picks.plus != nil {
			if err := s.addMasks(x.shape, y.picks.plus); err != nil {
				return nil, err
			}
		}
	case y.numbers != nil:
		if err := s.addMasks(x.shape, &y.constant); err != nil {
			return nil, err
		}
	default:
		return nil, nil
	}
	return &value{scores: &s, shape: x.shape, from: c.Node}, nil
}

// addTable adds rows of a parameter: heads, T, T.
func (s *scores) addTable(p *picks) error {
	dims, t := p.dims(), s.queries.length
	own := slices.Clone(dims)
	for len(own) > 3 && own[0] == 1 {
		own = own[1:]
	}
	switch {
	case s.soft:
		return fmt.Errorf("rows of parameter %q are added behind the softmax, which is not supported", p.nameOf())
	case s.terms.table != nil:
		return fmt.Errorf("rows of parameter %q are added to scores that have some of %q, and only one is supported", p.nameOf(), s.terms.table.nameOf())
	case !slices.Equal(own, []int{s.queries.number, t, t}) || p.axis != len(dims)-3:
		return fmt.Errorf("rows of parameter %q of %v are added to scores of %d heads of %d positions: want %v", p.nameOf(), dims, s.queries.number, t, []int{s.queries.number, t, t})
	}
	s.terms.table = p
	return nil
}

// addMasks adds a constant that is broadcast to scores of a shape, whose last two axes are positions.
func (s *scores) addMasks(shape []int, v *constant) error {
	t, heads := s.queries.length, s.queries.number
	if !s.soft && !slices.ContainsFunc(v.numbers, func(x float64) bool { return x != 0 }) {
		return nil
	}
	if s.soft || s.terms.masks != nil {
		return fmt.Errorf("a constant of %v is added behind the softmax, or to scores that have one, which is not supported", v.dims)
	}
	dims := v.dims
	for len(dims) > len(shape) && dims[0] == 1 {
		dims = dims[1:]
	}
	padded := slices.Concat(slices.Repeat([]int{1}, max(len(shape)-len(dims), 0)), dims)
	k := len(shape)
	for i, n := range padded {
		if len(padded) != k || n != 1 && n != shape[i] {
			return fmt.Errorf("a constant of %v is added to scores of %v", v.dims, shape)
		}
	}
	flat, m := constant{numbers: v.numbers, dims: padded}, &masks{samples: extents(shape[:k-2]) / heads}
	known, places := map[string]int{}, map[int]int{} // matrices, by their elements and by where the constant has them
	ids := make([]int, extents(shape[:k-2]))         // which matrix each head of each sample has
	for i := range ids {
		indices := leading(shape, i)
		place := flat.at(indices)
		if id, seen := places[place]; seen {
			ids[i] = id
			continue
		}
		matrix, key, err := matrixOf(&flat, indices, t)
		if err != nil {
			return err
		}
		id, seen := known[key]
		if !seen {
			id = len(m.all)
			known[key], m.all = id, append(m.all, matrix)
		}
		ids[i], places[place] = id, id
	}
	m.arrange(ids, heads)
	s.terms.masks = m
	return nil
}

// leading returns the indices of the first element of matrix i of a shape.
func leading(shape []int, i int) []int {
	indices := make([]int, len(shape))
	for k := len(shape) - 3; k >= 0; k-- {
		indices[k], i = i%shape[k], i/shape[k]
	}
	return indices
}

// matrixOf returns the matrix of a constant from indices on, and a text that tells it from others.
func matrixOf(v *constant, indices []int, t int) ([]float64, string, error) {
	k := len(indices)
	matrix, key := make([]float64, t*t), make([]byte, 0, 4*t*t)
	for q := range t {
		hidden := 0
		for s := range t {
			indices[k-2], indices[k-1] = q, s
			x := v.numbers[v.at(indices)]
			switch {
			case math.IsNaN(x) || math.IsInf(x, 1):
				return nil, "", fmt.Errorf("%v is added to a score, and only numbers below infinity are supported", x)
			case x <= leastHidden:
				hidden++
			}
			matrix[q*t+s] = max(x, kernels.Hidden)
			key = binary.LittleEndian.AppendUint32(key, math.Float32bits(float32(matrix[q*t+s])))
		}
		if hidden == t {
			return nil, "", fmt.Errorf("the mask hides all positions from position %d, whose softmax is of rounded numbers, or of none", q)
		}
	}
	return matrix, string(key), nil
}

// arrange orders matrices by sample, and by head where they differ: the fewest samples after which they repeat.
func (m *masks) arrange(ids []int, heads int) {
	for i, id := range ids {
		m.byHead = m.byHead || id != ids[i/heads*heads]
	}
	period := 1
	repeats := func(i int) bool { return ids[i] == ids[i%(period*heads)] }
	for ; period < m.samples; period++ {
		all := m.samples%period == 0
		for i := range ids {
			all = all && repeats(i)
		}
		if all {
			break
		}
	}
	of, by := m.all, heads
	if m.byHead {
		by = 1
	}
	m.all = nil
	for i := 0; i < period*heads; i += by {
		m.all = append(m.all, of[ids[i]])
	}
	m.samples = period
}

// withTerms returns the parameters of an attention's terms, and the op with them.
func withTerms(c *call, t *terms, op kernels.Attention, length int) (kernels.Attention, []source) {
	var all []source
	if t.table != nil {
		op.Table = int(t.table.tensor.Dims[0])
		all = append(all, t.table.source, constantSource(c, "relative_position_index", t.table.rows.numbers, length, length))
	}
	if t.masks != nil {
		op.Masks, op.MaskHeads = t.masks.samples, t.masks.byHead
		dims := []int{len(t.masks.all), length, length}
		if op.MaskHeads {
			dims = []int{op.Masks, op.Heads, length, length}
		}
		all = append(all, constantSource(c, "attn_mask", slices.Concat(t.masks.all...), dims...))
	}
	return op, all
}

// reshapedScores gives scores other axes ahead of the heads: those of windows, say.
func reshapedScores(c *call, x *value, want []int) (*value, error) {
	k, n := len(x.shape), len(want)
	if n < 3 || !slices.Equal(x.shape[k-2:], want[n-2:]) || n > 3 && x.scores.queries.number != want[n-3] {
		return nil, fmt.Errorf("of scores from %v to %v, which are not of heads, T, T any more", x.shape, want)
	}
	return &value{scores: x.scores, shape: want, from: c.Node}, nil
}

// checkCausal refuses masks that hide all positions which a position sees with a causal mask.
func (m *masks) checkCausal(t int) error {
	for _, matrix := range m.all {
		for q := range t {
			if slices.Max(matrix[q*t:q*t+q+1]) <= leastHidden {
				return fmt.Errorf("the masks together hide all positions from position %d, whose softmax is of rounded numbers, or of none", q)
			}
		}
	}
	return nil
}

// hiddenScores hides scores by a constant condition that is no causal mask: where it holds, the first of two inputs stands, else the second. One
// of them is the scores, the other a number that hides; nil: the inputs are something else.
func hiddenScores(c *call, condition, x, y *value) (*value, error) {
	if condition == nil || condition.numbers == nil || condition.asMask() != nil || x == nil || y == nil {
		return nil, nil
	}
	all, fill, sees := x, y, 1.0
	if y.scores != nil {
		all, fill, sees = y, x, 0
	}
	if all.scores == nil || !isNumber(fill) {
		return nil, nil
	}
	hidden := fill.numbers[0]
	if !(hidden <= leastHidden) {
		return nil, fmt.Errorf("scores are replaced by %v, and only by a number up to %v, which hides them, is supported", hidden, leastHidden)
	}
	plus, err := computed([]constant{condition.constant}, func(v []float64) float64 {
		if truthOf(v[0] != 0) == sees {
			return 0
		}
		return hidden
	})
	if err != nil {
		return nil, err
	}
	return addTerms(c, all, &value{constant: plus})
}
