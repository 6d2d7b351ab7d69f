package measure_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/measure"
	"plimsoll/executor/pipeline"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/runtime/host"
)

// A profile times a training step: a step of each exercise leaves the gradients that a table leaves, bit for bit. This holds with
// recomputation, with backwards in halves, with shared weights and with branches.
// Only this test finds that a profile times ops on the wrong operands.
func TestExercisesComputeTheGradientsOfATable(t *testing.T) {
	t.Parallel()
	expectGradients(t, func() executor.Target { return onCPU(t) }, "resnet20", "gpt2-2-16-tied", "siamese")
}

func onCPU(t *testing.T) executor.Target {
	t.Helper()
	dev, err := host.New(host.Config{Memory: 64 << 20, HostMemory: 64 << 20})
	must(t, err)
	t.Cleanup(func() { must(t, dev.Close()) })
	lib, err := cpu.New(dev, cpu.Options{Threads: 1})
	must(t, err)
	return executor.Target{Device: dev, Library: lib}
}

// expectGradients compares the gradients of exercises with those of tables, on devices that open opens.
func expectGradients(t *testing.T, open func() executor.Target, names ...string) {
	t.Helper()
	for _, name := range names {
		config := models.Config{Batch: 2, Image: 16, Classes: 5}
		if models.OfPairs(name) {
			config.Classes = 2
		}
		m, err := models.New(name, config)
		must(t, err)
		on := open()
		w, err := executor.Compile(m, on.Library, kernels.SGD{Momentum: 0.9})
		must(t, err)
		want := tableGradients(t, w, on)
		all, err := measure.Exercises(w, on.Library, 64<<20, true)
		must(t, err)
		for i, x := range all {
			timer, err := x.Start(open(), 7, load(m))
			must(t, err)
			for range 2 { // the second one finds what the first has left
				_, err = timer.Step()
				must(t, err)
			}
			got := timer.Gradients(t)
			for parameter, bits := range want {
				if !bytes.Equal(bits, got[parameter]) {
					t.Errorf("%s, exercise %d of %v: the gradient of %s has other bits", name, i, x.Seq, parameter)
				}
			}
			if len(got) != len(want) || len(want) < 10 {
				t.Errorf("%s: %d gradients, want %d", name, len(got), len(want))
			}
		}
	}
}

// load draws a batch.
func load(m *models.Model) func(measure.Batch) error {
	return func(b measure.Batch) error {
		r := rand.New(rand.NewPCG(3, 4))
		for i := range b.Images {
			if b.Images[i] = r.Float32()*2 - 1; m.Input.DType == kernels.Int32 {
				b.Images[i] = math.Float32frombits(r.Uint32N(uint32(m.Classes)))
			}
		}
		for i := range b.Labels {
			b.Labels[i] = r.Int32N(int32(m.Classes))
		}
		return nil
	}
}

// tableGradients returns the gradients of the second step that a table plays, at a learning rate of 0.
func tableGradients(t *testing.T, w *executor.Workload, on executor.Target) map[string][]byte {
	t.Helper()
	batch := pipeline.NewBatch(w.Model)
	must(t, load(w.Model)(measure.Batch{Images: batch.Input, Labels: batch.Target}))
	e, err := pipeline.NewAlone(w, on, w.StoreAll(), pipeline.Options{Feed: batch, Seed: 7})
	must(t, err)
	for range 2 {
		_, err = e.Step(0)
		must(t, err)
	}
	all := map[string][]byte{}
	for _, x := range e.Gradients() {
		values := make([]float32, x.Desc.Elements())
		must(t, e.Read(x, values))
		all[x.Name], err = binary.Append(nil, binary.LittleEndian, values)
		must(t, err)
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
