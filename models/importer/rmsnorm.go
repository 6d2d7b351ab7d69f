package importer

import (
	"cmp"
	"math"
	"slices"

	"plimsoll/kernels"
)

// meanSquares are arguments in which a function of a mean of squares is told.
var meanSquares = []float64{0, 1e-6, 1e-3, 0.1, 0.7, 1, 3, 40}

// rows returns the tensor, and the op that norms its rows and scales them by a parameter, or by one and 1.
func (n *normed) rows(fromOne bool) (*value, kernels.Op) {
	if x := n.of.centered; x != nil {
		return x, kernels.LayerNorm{Epsilon: n.epsilon, FromOne: fromOne}
	}
	return n.of, kernels.RMSNorm{Epsilon: n.epsilon, FromOne: fromOne}
}

// meanSquare is the mean of a row's squares; nil: ReduceMean is of something else.
func meanSquare(c *call) *value {
	x := c.at(0)
	if x == nil || x.curve == nil || x.curve.hidden || c.int("keepdims", 1) == 0 {
		return nil
	}
	axes, err := c.axes(len(x.shape))
	if err != nil || !slices.Equal(axes, []int{len(x.shape) - 1}) {
		return nil
	}
	for i, s := range samples {
		if !near(x.curve.at[i], s*s) {
			return nil
		}
	}
	shape := append(slices.Clone(x.shape[:len(x.shape)-1]), 1)
	return &value{norms: norms{statistic: &statistic{x.curve.of, slices.Clone(meanSquares)}}, shape: shape, from: c.Node}
}

// ofStatistic is a function of a statistic.
func ofStatistic(c *call, s *value, g func(y float64) float64, written func() (*value, error)) *value {
	at := make([]float64, len(meanSquares))
	for i, y := range s.statistic.at {
		at[i] = g(y)
	}
	return &value{norms: norms{statistic: &statistic{s.statistic.of, at}}, shape: s.shape, from: c.Node, whole: written}
}

// divided is a tensor times the inverse root of its own mean square, or divided by the root; nil: it is something else.
func divided(c *call, x, s *value, inverse bool) *value {
	if x == nil || s == nil || s.statistic == nil || !x.is(s.statistic.of) {
		return nil
	}
	root := func(i int) float64 {
		if inverse {
			return 1 / s.statistic.at[i]
		}
		return s.statistic.at[i]
	}
	epsilon := root(0) * root(0)
	for i, m := range meanSquares {
		if want := math.Sqrt(m + epsilon); !(math.Abs(root(i)-want) <= 2e-6*want) {
			return nil
		}
	}
	rows := &normed{x, float32(epsilon)}
	whole := func() (*value, error) { return pushNorm(c, rows, false) }
	return &value{norms: norms{normed: rows}, whole: whole, shape: x.shape, from: c.Node}
}

// lessMean is rows less their means; nil: the inputs are something else.
func lessMean(c *call) *value {
	x, mean := c.at(0), c.at(1)
	if x != nil && x.view == nil && x.made != nil {
		x = x.made
	}
	if x == nil || mean == nil || mean.meaned == nil || !x.is(mean.meaned) {
		return nil
	}
	return &value{norms: norms{centered: x}, shape: x.shape, from: c.Node}
}

// meansOfRows notes that a value is the means of the rows of a tensor, along an axis that stays.
func meansOfRows(c *call, made *value) {
	x, axis := c.at(0), len(c.at(0).shape)-1
	if axes, err := c.axes(axis + 1); err != nil || !slices.Equal(axes, []int{axis}) || c.int("keepdims", 1) == 0 {
		return
	}
	if x.made != nil && x.view == nil {
		x = x.made
	}
	made.meaned = x
}

// scaledNorm is RMSNorm, or LayerNorm without a bias: rows that are divided, input j, times a parameter, input i; false: they are something else.
func scaledNorm(c *call, i, j int) (v *value, is bool, err error) {
	p, x := c.at(i), c.at(j)
	if p == nil || x == nil || x.normed == nil {
		return nil, false, nil
	}
	plusOne := p.fromOne != nil
	if plusOne {
		p = p.fromOne
	}
	if p.tensor == nil || len(p.tensor.Dims) != 1 {
		return nil, false, nil
	}
	from := source{name: cmp.Or(p.name, p.tensor.Name), tensor: p.tensor}
	if !plusOne {
		if from, err = c.param(i, asIs); err != nil {
			return nil, true, err
		}
	}
	v, err = pushNorm(c, x.normed, plusOne, from)
	return v, true, err
}

// pushNorm adds the op for rows that are divided, with a weight; without one, rows are scaled by 1.
func pushNorm(c *call, rows *normed, plusOne bool, weight ...source) (*value, error) {
	of, op := rows.rows(plusOne)
	x, seen, err := c.rowsOf(of)
	if err != nil {
		return nil, err
	}
	y, err := c.push(c.Node, op, as(x), completed(c, op, x, weight), x)
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}
