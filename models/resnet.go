package models

import "fmt"

// imageNet returns ResNets with four groups of blocks after a stem that divides the image by 4 (He et al. 2015,
// Deep residual learning, table 1). Stride 2 is in a bottleneck's 3x3, as torchvision has it.
func imageNet(block residual, blocks ...int) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		b := c.builder(name)
		b.Layer("stem", "", func(g *Graph, x Value) Value {
			x = g.BNReLU("bn1", g.Conv("conv1", x, 64, 7, 2))
			return g.MaxPool("maxpool", x, 3, 2, 1)
		})
		groups(b, block, 64, blocks)
		b.Layer("fc", "", classifier(c))
		return b.Model()
	}
}

// small returns ResNets of 6n+2 layers for small images (section 4.2). Where a shortcut changes shape it is a 1x1
// convolution with BatchNorm, option B of section 3.3, where the paper pads with zeros: 1 % more parameters.
func small(depth int) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		b := c.builder(name)
		b.Layer("stem", "", func(g *Graph, x Value) Value {
			return g.BNReLU("bn1", g.Conv("conv1", x, 16, 3, 1))
		})
		n := (depth - 2) / 6
		groups(b, basicBlock, 16, []int{n, n, n})
		b.Layer("fc", "", classifier(c))
		return b.Model()
	}
}

// preActivation returns ResNets of 9n+2 layers for small images whose blocks normalize first (He et al. 2016,
// Identity mappings in deep residual networks, figure 4e and appendix).
func preActivation(depth int) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		b := c.builder(name)
		b.Layer("stem", "", func(g *Graph, x Value) Value { return g.Conv("conv1", x, 16, 3, 1) })
		n := (depth - 2) / 9
		groups(b, preActivationBottleneck, 16, []int{n, n, n})
		b.Layer("fc", "", func(g *Graph, x Value) Value {
			return classifier(c)(g, g.BNReLU("bn", x))
		})
		return b.Model()
	}
}

// residual returns the graph of one block.
type residual func(width, stride int) func(g *Graph, x Value) Value

// groups adds groups of blocks. Each group but the first halves the image and doubles the width.
func groups(b *Builder, block residual, width int, blocks []int) {
	for i, n := range blocks {
		for j := range n {
			stride := 1
			if i > 0 && j == 0 {
				stride = 2
			}
			name := fmt.Sprintf("layer%d.%d", i+1, j)
			b.Layer(name, name, block(width<<i, stride))
		}
	}
}

// basicBlock is two 3x3 convolutions (figure 5, left).
func basicBlock(width, stride int) func(g *Graph, x Value) Value {
	return func(g *Graph, x Value) Value {
		y := g.BNReLU("bn1", g.Conv("conv1", x, width, 3, stride))
		y = g.Conv("conv2", y, width, 3, 1)
		return g.BNAddReLU("bn2", y, shortcut(g, x, width, stride))
	}
}

// bottleneck is 1x1, 3x3 and 1x1 convolutions (figure 5, right).
func bottleneck(width, stride int) func(g *Graph, x Value) Value {
	return func(g *Graph, x Value) Value {
		y := g.BNReLU("bn1", g.Conv("conv1", x, width, 1, 1))
		y = g.BNReLU("bn2", g.Conv("conv2", y, width, 3, stride))
		y = g.Conv("conv3", y, 4*width, 1, 1)
		return g.BNAddReLU("bn3", y, shortcut(g, x, 4*width, stride))
	}
}

// shortcut is the identity, or a projection where the block changes shape (option B of section 3.3).
func shortcut(g *Graph, x Value, out, stride int) Value {
	if stride == 1 && g.Channels(x) == out {
		return x
	}
	return g.BN("downsample.1", g.Conv("downsample.0", x, out, 1, stride))
}

// preActivationBottleneck adds to its input, unchanged, what three convolutions make of the normalized input. Where
// the shape changes, the shortcut is a convolution of the normalized input.
func preActivationBottleneck(width, stride int) func(g *Graph, x Value) Value {
	return func(g *Graph, x Value) Value {
		z := g.BNReLU("bn1", x)
		if stride > 1 || g.Channels(x) != 4*width {
			x = g.Conv("downsample.0", z, 4*width, 1, stride)
		}
		y := g.BNReLU("bn2", g.Conv("conv1", z, width, 1, stride))
		y = g.BNReLU("bn3", g.Conv("conv2", y, width, 3, 1))
		return g.Add("add", x, g.Conv("conv3", y, 4*width, 1, 1))
	}
}

// classifier is the mean of each channel and a linear layer.
func classifier(c Config) func(g *Graph, x Value) Value {
	return func(g *Graph, x Value) Value {
		return g.Linear("fc", g.GlobalAvgPool("avgpool", x), c.Classes)
	}
}
