package models

import "fmt"

// siamese returns networks that say whether two images are of one class. A classifier compares the ends of two
// branches of convolutions with the same weights (Bromley et al. 1993, Signature verification using a "siamese" time
// delay neural network). The classifier of concatenated ends with a cross entropy of two classes is from Han et al.
// 2015, MatchNet, section 3.1. Class 1 is "the same". Its images are those of the first branch, then those of the
// second.
func siamese(groups ...int) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		if c.Classes != 2 {
			return nil, fmt.Errorf("%w: %s tells the same from others: classes is %d, want 2", ErrConfig, name, c.Classes)
		}
		b := c.builder(name)
		b.ConvStart = KaimingFanIn
		for i, n := range groups {
			for j := range n {
				tower(b, fmt.Sprintf("tower%d.%d", i+1, j), 16<<i, j == n-1)
			}
		}
		b.Twins(1)
		b.Join("join", "", func(g *Graph, ends []Value) Value {
			return g.BNReLU("bn", g.Linear("fc1", g.Concat("concat", ends...), 128))
		})
		b.Layer("fc2", "", func(g *Graph, x Value) Value { return g.Linear("fc2", x, c.Classes) })
		return b.Model()
	}
}

// tower adds one convolution of a branch; the last of a group halves the image where there is something to halve.
func tower(b *Builder, name string, width int, last bool) {
	b.Layer(name, name, func(g *Graph, x Value) Value {
		y := g.ReLU("relu", g.Conv("conv", x, width, 3, 1))
		if last && min(g.layer.Desc(y).Shape[1], g.layer.Desc(y).Shape[2]) > 1 {
			return g.MaxPool("maxpool", y, 2, 2, 0)
		}
		return y
	})
}
