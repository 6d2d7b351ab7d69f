package executor

import (
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/runtime/host"
)

const testMemory = 64 << 20

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testModel has everything that recomputation could get wrong: BatchNorm, residuals, dropout.
func testModel(t testing.TB) *models.Model {
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
	must(t, err)
	return m
}

// rig is a model compiled for a fresh CPU device.
type rig struct {
	*Workload
	dev *host.Device
	on  Target
}

func newRig(t testing.TB, m *models.Model, config host.Config, wrap func(kernels.Library) kernels.Library) rig {
	t.Helper()
	r := openRig(t, m, config, wrap)
	t.Cleanup(func() { must(t, r.dev.Close()) })
	return r
}

// openRig is newRig for who closes the device.
func openRig(t testing.TB, m *models.Model, config host.Config, wrap func(kernels.Library) kernels.Library) rig {
	t.Helper()
	if config.Memory == 0 {
		config.Memory, config.HostMemory = testMemory, testMemory
	}
	dev, err := host.New(config)
	must(t, err)
	var lib kernels.Library
	lib, err = cpu.New(dev, cpu.Options{})
	must(t, err)
	if wrap != nil {
		lib = wrap(lib)
	}
	w, err := Compile(m, lib, kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4})
	must(t, err)
	return rig{w, dev, Target{Device: dev, Library: lib}}
}

// timer returns what times store-all, with windows for a measurement of the link at the end of the memory.
func (r rig) timer(t testing.TB, probe windows) *OpTimer {
	t.Helper()
	x := &Exercise{Workload: r.Workload, Seq: r.StoreAll(), whole: r.Workload, count: len(r.Layers)}
	timer, err := x.startBeside(r.on, 7, probe, testMemory, fill)
	must(t, err)
	return timer
}

// fill draws a batch of images, of two classes.
func fill(b Batch) error {
	r := rand.New(rand.NewPCG(1, 9))
	for i := range b.Images {
		b.Images[i] = r.Float32()*2 - 1
	}
	for i := range b.Labels {
		b.Labels[i] = int32(r.IntN(2))
	}
	return nil
}

// costs gives a chain without measurements times that make recomputation choices interesting.
func costs(c *chain.Chain) *chain.Chain {
	for i := range c.Layers {
		c.Layers[i].ForwardS, c.Layers[i].BackwardS = float64(1+i%3), float64(2+i%2)
	}
	return c
}

func mustExtent(t *testing.T, r rig, seq schedule.Sequence) int64 {
	t.Helper()
	n, err := r.Extent(seq)
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
