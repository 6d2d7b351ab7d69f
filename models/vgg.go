package models

import (
	"fmt"

	"plimsoll/kernels"
)

// vgg16 returns VGG-16 (Simonyan and Zisserman 2015, Very deep convolutional networks, table 1, column D), with
// BatchNorm after each convolution or without. Each convolution is a layer of the chain, with the pool that follows it;
// so is each linear layer. As torchvision has it, the classifier reads 7x7 means of each channel whatever the image.
func vgg16(norm bool) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		b := c.builder(name)
		b.BiasStart, b.LinearStart = Zeros, NormalHundredth
		at := 0 // torchvision counts convolutions, norms, ReLUs and pools
		for i, n := range []int{2, 2, 3, 3, 3} {
			for j := range n {
				v := vggConv{at: at, width: min(64<<i, 512), norm: norm, pool: j == n-1}
				b.Layer(fmt.Sprintf("features.%d", at), "features", v.graph)
				at = v.end()
			}
		}
		b.Layer("classifier.0", "classifier", func(g *Graph, x Value) Value {
			x = g.Op("avgpool", kernels.AdaptiveAvgPool{OutH: 7, OutW: 7}, x)
			return hidden(0)(g, x)
		})
		b.Layer("classifier.3", "classifier", hidden(3))
		b.Layer("classifier.6", "classifier", func(g *Graph, x Value) Value { return g.Linear("6", x, c.Classes) })
		return b.Model()
	}
}

// vggConv is a convolution of VGG with what follows it up to the next one. Its ops are called by their numbers in
// torchvision's list, the first of them at.
type vggConv struct {
	at, width  int
	norm, pool bool
}

// end returns the number of the next convolution.
func (v vggConv) end() int {
	end := v.at + 2
	for _, more := range []bool{v.norm, v.pool} {
		if more {
			end++
		}
	}
	return end
}

func (v vggConv) graph(g *Graph, x Value) Value {
	number := func(i int) string { return fmt.Sprint(v.at + i) }
	x = g.Op(number(0), kernels.Conv2D{Out: v.width, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Bias: true}, x)
	if v.norm {
		x = g.BNReLU(number(1), x)
	} else {
		x = g.ReLU(number(1), x)
	}
	if v.pool {
		x = g.MaxPool(fmt.Sprint(v.end()-1), x, 2, 2, 0)
	}
	return x
}

// hidden is a linear layer of 4096 with ReLU and dropout, number at of the classifier.
func hidden(at int) func(g *Graph, x Value) Value {
	return func(g *Graph, x Value) Value {
		x = g.ReLU(fmt.Sprint(at+1), g.Linear(fmt.Sprint(at), x, 4096))
		return g.Dropout(fmt.Sprint(at+2), x, 0.5)
	}
}
