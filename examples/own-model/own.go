package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
)

func init() {
	models.Register(models.Known{Name: "stripenet", Summary: "six residual blocks", Image: 16, Classes: 4, Build: stripeNet})
	data.Register(data.Info{Name: "stripes", Summary: "grey stripes in four directions, with noise", MinImage: 8, Open: openStripes})
}

// stripeNet is a convolution, six blocks x + relu(bn(conv(x))), a layer each, and a classifier.
func stripeNet(name string, c models.Config) (*models.Model, error) {
	b := models.NewBuilder(name, kernels.F32(c.Batch, c.Image, c.Image, c.Channels), c.Classes)
	b.DType = c.DType
	b.Layer("stem", "stem", func(g *models.Graph, x models.Value) models.Value {
		return g.BNReLU("bn", g.Conv("conv", x, 16, 3, 1))
	})
	for i := range 6 {
		block := fmt.Sprintf("block%d", i+1)
		b.Layer(block, block, func(g *models.Graph, x models.Value) models.Value {
			return g.Add("add", x, g.BNReLU("bn", g.Conv("conv", x, 16, 3, 1)))
		})
	}
	b.Layer("classifier", "", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), c.Classes)
	})
	return b.Model()
}

// stripes are images of waves that run in one of four directions, made of nothing but their number.
type stripes struct{ options data.Options }

func openStripes(_ string, o data.Options) (data.Dataset, error) { return stripes{o}, nil }

func (stripes) Name() string { return "stripes" }
func (stripes) Classes() int { return 4 }
func (s stripes) Shape() [3]int {
	return [3]int{s.options.Image, s.options.Image, s.options.Channels}
}
func (stripes) TrainLen() int64 { return 0 } // there is no end of them
func (stripes) TestLen() int64  { return 256 }

// Fill draws everything from (seed, split, index), so that a run can be repeated, and go on from any step.
func (s stripes) Fill(split data.Split, index int64, dst []float32) (label int, err error) {
	if split == data.Test {
		index %= s.TestLen()
	}
	r := rand.New(rand.NewPCG(s.options.Seed<<1|uint64(split), uint64(index)))
	label = r.IntN(s.Classes())
	sin, cos := math.Sincos(math.Pi * float64(label) / 4)
	phase, side, channels := 2*math.Pi*r.Float64(), s.options.Image, s.options.Channels
	for i := range dst {
		y, x := float64(i/channels/side), float64(i/channels%side)
		dst[i] = float32(math.Sin(x*cos+y*sin+phase) + r.NormFloat64())
	}
	return label, nil
}
