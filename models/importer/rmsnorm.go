package importer

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
)

// meanSquares are arguments in which a function of a mean of squares is told.
var meanSquares = []float64{0, 1e-6, 1e-3, 0.1, 0.7, 1, 3, 40}

// statistic is a function of the mean of the squares of each row of a tensor, by its values at meanSquares.
type statistic struct {
	of *value
	at []float64
}

// normed is rows divided by the root of their mean square and epsilon.
type normed struct {
	of      *value
	epsilon float32
}

// meanSquare is the mean of a row's squares; nil: ReduceMean is of something else.
func meanSquare(c *call) *value {
	x := c.at(0)
	if x == nil || x.curve == nil || c.int("keepdims", 1) == 0 {
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
	return &value{statistic: &statistic{x.curve.of, slices.Clone(meanSquares)}, shape: shape, from: c.Node}
}

// ofStatistic is a function of a statistic.
func ofStatistic(c *call, s *value, g func(y float64) float64) *value {
	at := make([]float64, len(meanSquares))
	for i, y := range s.statistic.at {
		at[i] = g(y)
	}
	return &value{statistic: &statistic{s.statistic.of, at}, shape: s.shape, from: c.Node}
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
	return &value{normed: &normed{x, float32(epsilon)}, shape: x.shape, from: c.Node}
}

// scaledNorm is RMSNorm: rows that are divided, input j, times a parameter, input i; false: they are something else.
func scaledNorm(c *call, i, j int) (v *value, is bool, err error) {
	p, x := c.at(i), c.at(j)
	if p == nil || x == nil || x.normed == nil {
		return nil, false, nil
	}
	op := kernels.RMSNorm{Epsilon: x.normed.epsilon, FromOne: p.fromOne != nil}
	if op.FromOne {
		p = p.fromOne
	}
	if p.tensor == nil || len(p.tensor.Dims) != 1 {
		return nil, true, fmt.Errorf("rows that are divided by their root mean square are scaled by something else than a parameter, which alone is supported")
	}
	from := source{name: cmp.Or(p.name, p.tensor.Name), tensor: p.tensor}
	if !op.FromOne {
		if from, err = c.param(i, asIs); err != nil {
			return nil, true, err
		}
	}
	rows, seen, err := c.rowsOf(x.normed.of)
	if err != nil {
		return nil, true, err
	}
	y, err := c.push(c.Node, op, as(rows), []source{from}, rows)
	if err != nil {
		return nil, true, err
	}
	return seen(y), true, nil
}
