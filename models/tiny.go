package models

// mlp is four linear layers, the first three with ReLU and dropout.
func mlp(name string, c Config) (*Model, error) {
	b := c.builder(name)
	for _, hidden := range []string{"hidden1", "hidden2", "hidden3"} {
		b.Layer(hidden, hidden, func(g *Graph, x Value) Value {
			return g.Dropout("dropout", g.ReLU("relu", g.Linear("fc", x, 128)), 0.1)
		})
	}
	b.Layer("fc", "", func(g *Graph, x Value) Value { return g.Linear("fc", x, c.Classes) })
	return b.Model()
}

// tiny uses most ops at least once: small enough to be differentiated by hand.
func tiny(name string, c Config) (*Model, error) {
	b := c.builder(name)
	b.Layer("stem", "", func(g *Graph, x Value) Value {
		x = g.BNReLU("bn1", g.Conv("conv1", x, 8, 3, 1))
		return g.MaxPool("maxpool", x, 3, 2, 1)
	})
	b.Layer("dense", "dense", denseLayer(4))
	b.Layer("block", "block", basicBlock(16, 2))
	b.Layer("preact", "preact", func(g *Graph, x Value) Value {
		y := g.ReLU("relu", g.BN("bn", x))
		return g.AvgPool("avgpool", g.Add("add", x, g.Conv("conv", y, 16, 3, 1)), 2, 2)
	})
	b.Layer("fc", "", func(g *Graph, x Value) Value {
		x = g.Dropout("dropout", g.GlobalAvgPool("pool", x), 0.25)
		return g.Linear("fc", x, c.Classes)
	})
	return b.Model()
}
