package models

import (
	"fmt"

	"plimsoll/kernels"
)

// The U-Net of torchgpipe's tables (Kim et al. 2020, torchgpipe, section 4.2.2; Ronneberger et al. 2015, U-Net). It has
// five levels on the way down and five on the way up, each of B convolutions 3x3, and B more at the bottom between
// them. Level 1 has C channels, every other one twice as many as the one above it. On the way up an image is enlarged
// (nearest neighbour) and joined with the end of the level on the same height, which is the skip. The last convolution
// of the bottom, and all of a level on the way up, make half as many channels as that level has. So does torchgpipe's
// benchmark, and the paper's counts of parameters confirm it.
//
// The last convolution makes a score of each class for each pixel. In a model that segments these are the logits. For data with a
// class for each image, the logits are their means over it: a classifier of C/2 features, which needs many channels for many
// classes.
//
// Different from torchgpipe: behind a convolution come BatchNorm and ReLU, the zoo's own, in place of dropout of whole
// channels, instance normalization and a leaky ReLU.
//
// A layer of the chain is one convolution at the top, and at most twice as many on every level further down. A map has
// half as many elements there, and more skips pass it. So a layer keeps at least about as much of its own as it copies of
// what passes. But it never has more than unetMost: convolutions far down have the most weights, and a layer is not
// divided between devices.
const (
	unetLevels = 5
	unetMost   = 4
)

// unet returns the U-Net of (B, C) that classifies images.
func unet(convs, width int) func(string, Config) (*Model, error) {
	return unetOf(convs, width, func(g *Graph, scores Value) Value { return g.GlobalAvgPool("mean", scores) })
}

// segmentingUnet returns the U-Net of (B, C) that gives each pixel a class.
func segmentingUnet(convs, width int) func(string, Config) (*Model, error) {
	return unetOf(convs, width, nil)
}

// unetOf returns the U-Net of (B, C) whose logits head makes of the scores of the pixels; nil: they are the logits.
func unetOf(convs, width int, head func(g *Graph, scores Value) Value) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		const least = 1 << unetLevels
		switch {
		case convs < 1 || width < 2 || width%2 != 0 || max(convs, width) > mostSize:
			return nil, fmt.Errorf("%w: %s has %d convolutions a level and %d channels: want at least 1 and an even number, up to %d", ErrConfig, name, convs, width, mostSize)
		case c.Image%least != 0:
			return nil, fmt.Errorf("%w: %s halves images %d times: image is %d, want a multiple of %d", ErrConfig, name, unetLevels, c.Image, least)
		}
		u := &unetBuilder{Builder: c.builder(name), convs: convs}
		u.ConvStart = KaimingFanIn
		if head == nil {
			u.PerPixel()
		}
		for i := range unetLevels {
			u.level(fmt.Sprintf("down%d", i+1), min(1<<i, unetMost), width<<i, width<<i, pass, descend)
		}
		u.level("bottom", unetMost, width<<unetLevels, width<<(unetLevels-1), pass, nil)
		for i := unetLevels - 1; i >= 0; i-- {
			u.level(fmt.Sprintf("up%d", i+1), min(1<<i, unetMost), width<<i/2, width<<i/2, ascend, nil)
		}
		u.Layer("segment", "", func(g *Graph, x Value) Value {
			scores := g.Conv("segment", x, c.Classes, 1, 1)
			if head == nil {
				return scores
			}
			return head(g, scores)
		})
		return u.Model()
	}
}

// unetBuilder adds levels.
type unetBuilder struct {
	*Builder
	convs int
	carry carry
}

// level adds the layers of a level, each with at most a given number of convolutions. Function enter takes the first
// convolution's input from the carried tensors. The last convolution has out channels and the others mid. Function leave
// makes the parts that go on of the level's end.
func (u *unetBuilder) level(name string, most, mid, out int, enter func(c *carry, g *Graph, x Value) (Value, []Value), leave func(g *Graph, x Value) []Value) {
	for first := 1; first <= u.convs; first += most {
		last := min(first+most-1, u.convs)
		u.Layer(fmt.Sprintf("%s.%d", name, (first-1)/most+1), name, func(g *Graph, x Value) Value {
			x, rest := enter(&u.carry, g, x)
			for i := first; i <= last; i++ {
				width := mid
				if i == u.convs {
					width = out
				}
				x = g.BNReLU(fmt.Sprintf("norm%d", i), g.Conv(fmt.Sprintf("conv%d", i), x, width, 3, 1))
			}
			if last == u.convs && leave != nil {
				return u.carry.put(g, leave(g, x), rest)
			}
			return u.carry.put(g, []Value{x}, rest)
		})
		enter = pass
	}
}

// pass lets all skips pass.
func pass(c *carry, g *Graph, x Value) (Value, []Value) {
	parts, rest := c.take(g, x, 1)
	return parts[0], rest
}

// ascend enlarges the image and joins it with the latest skip.
func ascend(c *carry, g *Graph, x Value) (Value, []Value) {
	parts, rest := c.take(g, x, 2)
	up := g.Op("up", kernels.Upsample{Factor: 2}, parts[0])
	return g.Concat("concat", up, parts[1]), rest
}

// descend halves the image and keeps it as a skip.
func descend(g *Graph, x Value) []Value {
	return []Value{g.MaxPool("pool", x, 2, 2, 0), x}
}
