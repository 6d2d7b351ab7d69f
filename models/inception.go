package models

import "plimsoll/kernels"

// inception3 is Inception v3 (Szegedy et al. 2016, Rethinking the Inception architecture for computer vision, table 1) as
// torchvision has it, without the auxiliary classifier. The chain has a layer for each convolution of the stem and each
// block. Images are to have at least 75x75 pixels.
func inception3(name string, c Config) (*Model, error) {
	b := c.builder(name)
	b.ConvStart, b.LinearStart = NormalTenth, NormalTenth
	b.Layer("Conv2d_1a_3x3", "", block(halving("Conv2d_1a_3x3", 32)))
	b.Layer("Conv2d_2a_3x3", "", block(valid("Conv2d_2a_3x3", 32)))
	b.Layer("Conv2d_2b_3x3", "", block(path(unit("Conv2d_2b_3x3", 64, 3, 3), halvingPool)))
	b.Layer("Conv2d_3b_1x1", "", block(unit("Conv2d_3b_1x1", 80, 1, 1)))
	b.Layer("Conv2d_4a_3x3", "", block(path(valid("Conv2d_4a_3x3", 192), halvingPool)))
	for _, mixed := range []struct {
		name string
		part part
	}{
		{"Mixed_5b", inceptionA(32)}, {"Mixed_5c", inceptionA(64)}, {"Mixed_5d", inceptionA(64)},
		{"Mixed_6a", inceptionB()},
		{"Mixed_6b", inceptionC(128)}, {"Mixed_6c", inceptionC(160)}, {"Mixed_6d", inceptionC(160)}, {"Mixed_6e", inceptionC(192)},
		{"Mixed_7a", inceptionD()},
		{"Mixed_7b", inceptionE()}, {"Mixed_7c", inceptionE()},
	} {
		b.Layer(mixed.name, mixed.name, block(mixed.part))
	}
	b.Layer("fc", "", func(g *Graph, x Value) Value {
		x = g.Dropout("dropout", g.GlobalAvgPool("avgpool", x), 0.5)
		return g.Linear("fc", x, c.Classes)
	})
	return b.Model()
}

// part is a piece of an Inception block. Its outputs are to be joined, or there is one for the next piece to read.
type part func(g *Graph, x Value) []Value

// block joins the outputs of a part.
func block(p part) func(g *Graph, x Value) Value {
	return func(g *Graph, x Value) Value {
		out := p(g, x)
		if len(out) == 1 {
			return out[0]
		}
		return g.Concat("concat", out...)
	}
}

// path puts parts behind one another; each but the last has one output.
func path(parts ...part) part {
	return func(g *Graph, x Value) []Value {
		out := []Value{x}
		for _, p := range parts {
			out = p(g, out[0])
		}
		return out
	}
}

// fork puts parts beside one another.
func fork(parts ...part) part {
	return func(g *Graph, x Value) (out []Value) {
		for _, p := range parts {
			out = append(out, p(g, x)...)
		}
		return out
	}
}

// unit is a convolution that keeps the image's size, with BatchNorm and ReLU.
func unit(name string, out, height, width int) part {
	return convUnit(name, kernels.Conv2D{Out: out, KernelH: height, KernelW: width, PadH: height / 2, PadW: width / 2})
}

// valid is a unit of 3x3 without padding.
func valid(name string, out int) part {
	return convUnit(name, kernels.Conv2D{Out: out, KernelH: 3, KernelW: 3})
}

// halving is a unit of 3x3 without padding that halves the image.
func halving(name string, out int) part {
	return convUnit(name, kernels.Conv2D{Out: out, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2})
}

func convUnit(name string, conv kernels.Conv2D) part {
	return func(g *Graph, x Value) []Value {
		x = g.Op(name+".conv", conv, x)
		return []Value{g.Op(name+".bn", kernels.BatchNorm{Epsilon: 1e-3, ReLU: true}, x)}
	}
}

func halvingPool(g *Graph, x Value) []Value { return []Value{g.MaxPool("maxpool", x, 3, 2, 0)} }

// mean is the average of 3x3 pixels around each, those outside of the image counted as zeros.
func mean(g *Graph, x Value) []Value {
	return []Value{g.Op("avgpool", kernels.AvgPool{KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1}, x)}
}

// inceptionA is figure 5, its first 3x3 a 5x5 again.
func inceptionA(pooled int) part {
	return fork(
		unit("branch1x1", 64, 1, 1),
		path(unit("branch5x5_1", 48, 1, 1), unit("branch5x5_2", 64, 5, 5)),
		path(unit("branch3x3dbl_1", 64, 1, 1), unit("branch3x3dbl_2", 96, 3, 3), unit("branch3x3dbl_3", 96, 3, 3)),
		path(mean, unit("branch_pool", pooled, 1, 1)),
	)
}

// inceptionB halves the image (section 5, figure 10).
func inceptionB() part {
	return fork(
		halving("branch3x3", 384),
		path(unit("branch3x3dbl_1", 64, 1, 1), unit("branch3x3dbl_2", 96, 3, 3), halving("branch3x3dbl_3", 96)),
		halvingPool,
	)
}

// inceptionC is figure 6 with n = 7: 7x7 in turns of 1x7 and 7x1.
func inceptionC(width int) part {
	return fork(
		unit("branch1x1", 192, 1, 1),
		path(unit("branch7x7_1", width, 1, 1), unit("branch7x7_2", width, 1, 7), unit("branch7x7_3", 192, 7, 1)),
		path(unit("branch7x7dbl_1", width, 1, 1), unit("branch7x7dbl_2", width, 7, 1), unit("branch7x7dbl_3", width, 1, 7),
			unit("branch7x7dbl_4", width, 7, 1), unit("branch7x7dbl_5", 192, 1, 7)),
		path(mean, unit("branch_pool", 192, 1, 1)),
	)
}

// inceptionD halves the image, as figure 10 does, with a 7x7 before one of the 3x3.
func inceptionD() part {
	return fork(
		path(unit("branch3x3_1", 192, 1, 1), halving("branch3x3_2", 320)),
		path(unit("branch7x7x3_1", 192, 1, 1), unit("branch7x7x3_2", 192, 1, 7), unit("branch7x7x3_3", 192, 7, 1),
			halving("branch7x7x3_4", 192)),
		halvingPool,
	)
}

// inceptionE is figure 7: 1x3 and 3x1 beside one another.
func inceptionE() part {
	return fork(
		unit("branch1x1", 320, 1, 1),
		path(unit("branch3x3_1", 384, 1, 1), fork(unit("branch3x3_2a", 384, 1, 3), unit("branch3x3_2b", 384, 3, 1))),
		path(unit("branch3x3dbl_1", 448, 1, 1), unit("branch3x3dbl_2", 384, 3, 3),
			fork(unit("branch3x3dbl_3a", 384, 1, 3), unit("branch3x3dbl_3b", 384, 3, 1))),
		path(mean, unit("branch_pool", 192, 1, 1)),
	)
}
