// Package testmodel has the model that tests of the executor's packages measure and lay out.
package testmodel

import (
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// New returns a model with everything that recomputation could get wrong: BatchNorm, residuals, dropout.
func New(t testing.TB) *models.Model {
	t.Helper()
	b := models.NewBuilder("test", kernels.F32(4, 8, 8, 3), 5)
	b.Layer("stem", "stem", func(g *models.Graph, x models.Value) models.Value {
		return g.BNReLU("bn", g.Conv("conv", x, 8, 3, 1))
	})
	for i, name := range []string{"block1", "block2", "block3", "block4", "block5", "block6"} {
		b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value {
			y := g.BNReLU("bn1", g.Conv("conv1", x, 8, 3, 1))
			if i == 1 {
				y = g.Dropout("drop", y, 0.3)
			}
			return g.BNAddReLU("bn2", g.Conv("conv2", y, 8, 3, 1), x)
		})
	}
	b.Layer("down", "down", func(g *models.Graph, x models.Value) models.Value {
		return g.BNReLU("bn", g.Conv("conv", x, 16, 3, 2))
	})
	b.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), 5)
	})
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	return m
}
