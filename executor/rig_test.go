package executor

import (
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

const testMemory = 64 << 20

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fourImages(t *testing.T, name string) *models.Model {
	t.Helper()
	m, err := models.New(name, models.Config{Batch: 4, Image: 32, Classes: 10})
	must(t, err)
	return m
}

// compiled compiles a model for the reference kernels.
func compiled(t testing.TB, m *models.Model) *Workload {
	t.Helper()
	w, err := Compile(m, ref.New(nil), kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4})
	must(t, err)
	return w
}

// costs gives a chain without measurements times that make recomputation choices interesting.
func costs(c *chain.Chain) *chain.Chain {
	for i := range c.Layers {
		c.Layers[i].ForwardS, c.Layers[i].BackwardS = float64(1+i%3), float64(2+i%2)
	}
	return c
}

func mustExtent(t *testing.T, w *Workload, seq schedule.Sequence) int64 {
	t.Helper()
	n, err := w.Extent(seq)
	must(t, err)
	return n
}

// siameseModel has two branches with the same weights; crossModal three of different lengths and kinds, with BatchNorm,
// a residual sum and dropout.
func siameseModel(t testing.TB) *models.Model {
	m, err := models.New("siamese", models.Config{Batch: 4, Image: 8, Classes: 2})
	must(t, err)
	return m
}

func crossModal(t testing.TB) *models.Model {
	b := models.NewBuilder("cross", kernels.F32(4, 8, 8, 3), 5)
	for k, length := range []int{2, 5, 3} {
		if k > 0 {
			b.Branch()
		}
		for i := range length {
			name := string(rune('a'+k)) + string(rune('1'+i))
			b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value {
				y := g.BNReLU("bn1", g.Conv("conv1", x, 8, 3, 1))
				if i == 1 {
					y = g.Dropout("drop", y, 0.3)
				}
				if g.Channels(x) != 8 {
					return y
				}
				return g.BNAddReLU("bn2", g.Conv("conv2", y, 8, 3, 1), x)
			})
		}
	}
	b.Join("join", "join", func(g *models.Graph, ends []models.Value) models.Value {
		x := g.ReLU("relu", g.Conv("conv", g.Concat("concat", ends...), 8, 1, 1))
		return g.Concat("again", x, ends[1]) // two ops read the end of branch 1
	})
	b.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), 5)
	})
	m, err := b.Model()
	must(t, err)
	return m
}

// withTransfer sends a_1 away while the loss is computed, and brings it back.
func withTransfer(storeAll schedule.Sequence) schedule.Sequence {
	n := len(storeAll) / 2
	seq := append(schedule.Sequence(nil), storeAll[:2]...)
	seq = append(seq, schedule.Op{Kind: schedule.Offload, Layer: 2})
	seq = append(seq, storeAll[2:n]...)
	seq = append(seq, schedule.Op{Kind: schedule.Prefetch, Layer: 2})
	return append(seq, storeAll[n:]...)
}
