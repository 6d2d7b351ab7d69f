package models

import (
	"fmt"

	"plimsoll/kernels"
)

// amoebaNet returns the AmoebaNet-D (L, F) of GPipe's and torchgpipe's tables (Huang et al. 2018, GPipe, table 1; Kim et
// al. 2020, torchgpipe, section 4.2.1). The architecture is from Real et al. 2018, Regularized evolution for image
// classifier architecture search, figure 6. It has a stem of one convolution and two reduction cells, three groups of L/3
// normal cells with a reduction cell between them, and a classifier. A cell reads the outputs of the two cells before it,
// so the activation between two cells holds both. The first convolution has F/4 channels; every reduction cell halves the
// image and doubles the channels of a state.
//
// Cells are wired as in torchgpipe, which takes the states that a normal cell joins from TensorFlow's implementation and
// not from the paper's figure. GPipe's counts of parameters follow from that. Some parts differ from torchgpipe. Its
// pools named max_pool_3x3 average; ours take the maximum, as the paper has it. Its average pools leave padding out of
// the divisor; ours count it. It has a ReLU before the first convolution, which we leave out, as TensorFlow's does not
// have it either. Here each state is rectified once, for all readers that need it so.
func amoebaNet(cells, filters int) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		const least = 32 // five times the image is halved
		switch {
		case cells < 3 || cells%3 != 0 || filters < 8 || filters%8 != 0 || max(cells, filters) > mostSize:
			return nil, fmt.Errorf("%w: %s has %d normal cells and %d filters: want multiples of 3 and of 8, up to %d", ErrConfig, name, cells, filters, mostSize)
		case c.Image%least != 0:
			return nil, fmt.Errorf("%w: %s halves images 5 times: image is %d, want a multiple of %d", ErrConfig, name, c.Image, least)
		}
		a := &amoebaBuilder{Builder: c.builder(name), width: filters / 4, left: cells + 4}
		a.Layer("stem1", "stem1", func(g *Graph, x Value) Value { return g.BN("bn", g.Conv("conv", x, a.width, 3, 2)) })
		a.reduction("stem2")
		a.reduction("stem3")
		a.normal("cell1", cells/3)
		a.reduction("cell2")
		a.normal("cell3", cells/3)
		a.reduction("cell4")
		a.normal("cell5", cells/3)
		a.Layer("classify", "classify", classifier(c))
		return a.Model()
	}
}

// amoebaBuilder adds cells.
type amoebaBuilder struct {
	*Builder
	width   int  // channels of a state
	left    int  // cells to come
	reduced bool // the latest cell was a reduction
	carry   carry
}

// reduction adds a reduction cell.
func (a *amoebaBuilder) reduction(name string) {
	a.width *= 2
	a.cell(name, true, func(c *cell) []Value {
		c.sum("a", c.maxPool(0, 2), c.maxPool(0, 3))
		c.sum("b", c.none(2), c.narrow("conv1", 1, [2]int{3, 3}))
		c.sum("c", c.narrow("conv2", 2, [2]int{1, 7}, [2]int{7, 1}), c.maxPool(2, 3))
		c.sum("d", c.none(3), c.maxPool(1, 2))
		c.sum("e", c.avgPool(2), c.pointwise("conv3", 3))
		return c.states[4:]
	})
}

// normal adds so many normal cells.
func (a *amoebaBuilder) normal(name string, n int) {
	for i := range n {
		a.cell(fmt.Sprintf("%s.%d", name, i+1), false, func(c *cell) []Value {
			c.sum("a", c.pointwise("conv1", 1), c.maxPool(1, 3))
			c.sum("b", c.none(1), c.narrow("conv2", 0, [2]int{1, 7}, [2]int{7, 1}))
			c.sum("c", c.pointwise("conv3", 0), c.narrow("conv4", 0, [2]int{1, 7}, [2]int{7, 1}))
			c.sum("d", c.maxPool(2, 3), c.none(2))
			c.sum("e", c.avgPool(1), c.pointwise("conv5", 5))
			return []Value{c.states[0], c.states[3], c.states[4], c.states[6]}
		})
	}
}

// cell adds a cell, the states that steps returns joined. States 0 and 1 are made of the outputs of the cell before it and
// of the one before that, or both of the stem's.
func (a *amoebaBuilder) cell(name string, reduces bool, steps func(c *cell) []Value) {
	a.left--
	a.Layer(name, name, func(g *Graph, x Value) Value {
		c := &cell{Graph: g, width: a.width, reduces: reduces, rectified: map[Value]Value{}}
		in, _ := a.carry.take(g, x, 2)
		latest, earlier := in[0], in[len(in)-1]
		c.states = []Value{g.BN("bn1", g.Conv("reduce1", c.relu(latest), c.width, 1, 1)), earlier}
		switch {
		case a.reduced:
			c.states[1] = c.halved(earlier)
		case g.Channels(earlier) != c.width:
			c.states[1] = g.BN("bn2", g.Conv("reduce2", c.relu(earlier), c.width, 1, 1))
		}
		out := []Value{g.Concat("concat", steps(c)...)}
		if a.left > 0 {
			out = append(out, latest)
		}
		return a.carry.put(g, out, nil)
	})
	a.reduced = reduces
}

// cell is the graph of one cell.
type cell struct {
	*Graph
	width     int
	reduces   bool // states 0 and 1 are read with stride 2
	states    []Value
	rectified map[Value]Value
}

// relu returns max(x, 0), computed once.
func (c *cell) relu(x Value) Value {
	if _, have := c.rectified[x]; !have {
		c.rectified[x] = c.ReLU("relu", x)
	}
	return c.rectified[x]
}

// halved is the projection to half the image (torchgpipe's FactorizedReduce). One half of the channels comes from the
// pixels in even rows and columns, the other half from those in odd ones.
func (c *cell) halved(x Value) Value {
	s := c.layer.Desc(x).Shape
	h, w, depth := s[1]/2, s[2]/2, s[3]
	x = c.relu(x)
	rows := c.Op("rows", kernels.Slice{Rows: h, From: s[2] * depth, H: h, W: s[2], C: depth}, x)
	odd := c.Op("columns", kernels.Slice{Rows: h * w, From: depth, H: h, W: w, C: depth}, rows)
	both := c.Concat("halves", c.Conv("reduce2.even", x, c.width/2, 1, 2), c.Conv("reduce2.odd", odd, c.width/2, 1, 1))
	return c.BN("bn2", both)
}

// term is one of two that make a state; raw, it is a convolution that is still to be normalized.
type term struct {
	Value
	raw string // the name of the norm, or nothing
}

// sum adds the state that is the sum of two terms; the last BatchNorm of one adds the other.
func (c *cell) sum(name string, t, u term) {
	if t.raw == "" {
		t, u = u, t
	}
	if u.raw != "" {
		u.Value = c.BN(u.raw, u.Value)
	}
	if t.raw != "" {
		c.states = append(c.states, c.Op(t.raw, kernels.BatchNorm{Residual: true}, t.Value, u.Value))
	} else {
		c.states = append(c.states, c.Add(name, t.Value, u.Value))
	}
}

// stride is the stride of an op that reads a state.
func (c *cell) stride(state int) int {
	if c.reduces && state < 2 {
		return 2
	}
	return 1
}

func (c *cell) none(state int) term { return term{Value: c.states[state]} }

func (c *cell) maxPool(state, kernel int) term {
	return term{Value: c.MaxPool("maxpool", c.states[state], kernel, c.stride(state), (kernel-1)/2)}
}

func (c *cell) avgPool(state int) term {
	return term{Value: c.Op("avgpool", kernels.AvgPool{KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1}, c.states[state])}
}

// pointwise is a 1x1 convolution of a rectified state.
func (c *cell) pointwise(name string, state int) term {
	return term{c.Conv(name, c.relu(c.states[state]), c.width, 1, c.stride(state)), name + ".bn"}
}

// narrow is convolutions of a rectified state on a quarter of its channels, between two 1x1.
func (c *cell) narrow(name string, state int, windows ...[2]int) term {
	x := c.BNReLU(name+".bn0", c.Conv(name+".conv0", c.relu(c.states[state]), c.width/4, 1, 1))
	for i, k := range windows {
		conv := kernels.Conv2D{Out: c.width / 4, KernelH: k[0], KernelW: k[1], PadH: k[0] / 2, PadW: k[1] / 2}
		if i == 0 {
			conv.StrideH, conv.StrideW = c.stride(state), c.stride(state)
		}
		x = c.BNReLU(fmt.Sprintf("%s.bn%d", name, i+1), c.Op(fmt.Sprintf("%s.conv%d", name, i+1), conv, x))
	}
	return term{c.Conv(name+".out", x, c.width, 1, 1), name + ".bn"}
}
