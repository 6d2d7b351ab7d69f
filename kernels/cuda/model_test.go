//go:build cuda && linux && amd64

package cuda

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline"
	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/host"
)

const modelMemory = 512 << 20

// TestModels: training has the losses of the reference, to 1e-4 of the loss. In TF32 the tolerance is 1e-3, as the last bit of a sum may
// round a factor the other way. The test covers every op in its natural surroundings, and the weights after an update. Images are so large
// that the last BatchNorm has values enough to be well-conditioned.
func TestModels(t *testing.T) {
	newBench(t) // or skip
	compared := 0
	for _, c := range []struct {
		name   string
		config models.Config
		steps  uint64
	}{
		{"tiny", models.Config{Batch: 2, Image: 12, Classes: 5}, 2},
		{"tiny", models.Config{Batch: 2, Image: 12, Classes: 5, DType: kernels.TF32}, 1},
		{"resnet20", models.Config{Batch: 2, Image: 8, Classes: 5}, 2},
		{"resnet20", models.Config{Batch: 2, Image: 8, Classes: 5, DType: kernels.TF32}, 1},
		{"densenet121", models.Config{Batch: 2, Image: 64, Classes: 5}, 1},
		{"unet-1-4", models.Config{Batch: 2, Image: 64, Classes: 5}, 1},
		{"amoebanet-3-8", models.Config{Batch: 2, Image: 64, Classes: 5}, 1},
	} {
		if testing.Short() && c.name != "tiny" {
			continue
		}
		m, err := models.New(c.name, c.config)
		if err != nil {
			t.Fatal(err)
		}
		want, off := losses(t, m, onHost(t), c.steps), 1e-4
		if c.config.DType == kernels.TF32 {
			off = 1e-3
		}
		for i, got := range losses(t, m, onGPU(t), c.steps) {
			if !(math.Abs(got-want[i]) <= off*math.Abs(want[i])) {
				t.Errorf("%s, step %d: loss %v, of the reference %v", c.name, i, got, want[i])
			}
			compared++
		}
	}
	if compared == 0 {
		t.Error("compared no model")
	}
}

func onHost(t *testing.T) executor.Target {
	t.Helper()
	dev, err := host.New(host.Config{Memory: modelMemory, HostMemory: modelMemory})
	if err != nil {
		t.Fatal(err)
	}
	return target(t, dev, ref.New(dev), nil)
}

func onGPU(t *testing.T) executor.Target {
	t.Helper()
	devices, err := cuda.Open(cuda.Config{Memory: modelMemory})
	if err != nil {
		t.Fatal(err)
	}
	lib, err := New(devices[0], Options{})
	return target(t, devices[0], lib, err)
}

func target(t *testing.T, dev runtime.Device, lib kernels.Library, err error) executor.Target {
	t.Helper()
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return executor.Target{Device: dev, Library: lib}
}

// losses trains some steps and returns their losses.
func losses(t *testing.T, m *models.Model, on executor.Target, steps uint64) (all []float64) {
	t.Helper()
	w, err := executor.Compile(m, on.Library, kernels.SGD{Momentum: 0.9})
	if err != nil {
		t.Fatal(err)
	}
	batch := pipeline.NewBatch(m)
	e, err := pipeline.NewAlone(w, on, w.StoreAll(), pipeline.Options{Feed: batch, Limits: []int64{modelMemory}, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	for step := range steps {
		fill(batch, m.Classes, step)
		r, err := e.Step(0.01)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.Loss)
	}
	return all
}

func fill(b *pipeline.Batch, classes int, step uint64) {
	r := rand.New(rand.NewPCG(step, 9))
	copy(b.Input, random(r, int64(len(b.Input))))
	for i := range b.Target {
		b.Target[i] = int32(r.IntN(classes))
	}
}
