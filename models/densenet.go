package models

import "fmt"

// dense returns DenseNets with bottlenecks and compression 1/2 (Huang et al. 2017, table 1, DenseNet-BC). Every
// dense layer hands on its input joined with its own new channels, so that each is a layer of the chain.
func dense(growth, width int, blocks ...int) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		b := c.builder(name)
		b.ConvStart, b.BiasStart = KaimingFanIn, Zeros
		b.Layer("stem", "features", func(g *Graph, x Value) Value {
			x = g.BNReLU("norm0", g.Conv("conv0", x, width, 7, 2))
			return g.MaxPool("pool0", x, 3, 2, 1)
		})
		for i, n := range blocks {
			if i > 0 {
				path := fmt.Sprintf("transition%d", i)
				b.Layer(path, "features."+path, transition)
			}
			for j := range n {
				path := fmt.Sprintf("denseblock%d.denselayer%d", i+1, j+1)
				b.Layer(path, "features."+path, denseLayer(growth))
			}
		}
		b.Layer("classifier", "", func(g *Graph, x Value) Value {
			x = g.GlobalAvgPool("avgpool", g.BNReLU("features.norm5", x))
			return g.Linear("classifier", x, c.Classes)
		})
		return b.Model()
	}
}

// denseLayer adds growth channels.
func denseLayer(growth int) func(g *Graph, x Value) Value {
	return func(g *Graph, x Value) Value {
		y := g.Conv("conv1", g.BNReLU("norm1", x), 4*growth, 1, 1)
		y = g.Conv("conv2", g.BNReLU("norm2", y), growth, 3, 1)
		return g.Concat("concat", x, y)
	}
}

// transition halves channels and image.
func transition(g *Graph, x Value) Value {
	y := g.Conv("conv", g.BNReLU("norm", x), g.Channels(x)/2, 1, 1)
	return g.AvgPool("pool", y, 2, 2)
}
