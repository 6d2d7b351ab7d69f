package measure

import (
	"math/rand/v2"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
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
	*executor.Workload
	dev *host.Device
	on  executor.Target
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
	w, err := executor.Compile(m, lib, kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4})
	must(t, err)
	return rig{w, dev, executor.Target{Device: dev, Library: lib}}
}

// timer returns an OpTimer of store-all, with windows for a measurement of the link at the end of the memory.
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
