//go:build cuda && linux && amd64

package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"plimsoll/executor"
	"plimsoll/kernels"
	_ "plimsoll/kernels/cuda"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/devices"
)

const (
	gpuMemory = 1 << 30
	gpuSteps  = 2
	gpuRate   = 1e-3 // so small that what rounding changes in the weights stays below what is compared
)

// TestMain makes the emulated driver delay its work and fill new memory with NaNs, unless the environment says otherwise. Its
// settings are read once.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"CHAOS": "1", "POISON": "1"} {
		if name = "PLIMSOLL_EMULATOR_" + name; os.Getenv(name) == "" {
			_ = os.Setenv(name, value)
		}
	}
	os.Exit(m.Run())
}

// A GPU trains as the CPU does: the losses of both are equal to 1e-4. Every plan trains as store-all does on that GPU: the
// same bits in every weight, gradient, buffer and optimizer state, with the predicted peak, whether a step is one graph
// or many calls. Images are so large that every BatchNorm has values enough to be well-conditioned.
func TestGPUTrainsAsTheCPU(t *testing.T) {
	needGPU(t)
	plans, moved := 0, 0
	for _, c := range []struct {
		name   string
		config models.Config
		plans  map[string]executor.Options
	}{
		{"resnet18", models.Config{Batch: 2, Image: 64, Classes: 5}, map[string]executor.Options{
			"rotor audited": {Audit: true}, "offload-greedy": {},
		}},
		{"resnet20", models.Config{Batch: 2, Image: 16, Classes: 5}, map[string]executor.Options{
			"offload-dynprog": {}, "pofo": {}, "autocapper": {}, "auto": {}, "auto without graphs": {NoGraph: true},
		}},
		{"siamese", models.Config{Batch: 8, Image: 16, Classes: 2}, map[string]executor.Options{"multi-empty": {}}},
		{"densenet121", models.Config{Batch: 2, Image: 64, Classes: 5}, map[string]executor.Options{"rotor": {}}},
		{"unet-1-4", models.Config{Batch: 2, Image: 64, Classes: 5}, map[string]executor.Options{"rotor": {}, "offload-greedy": {}}},
	} {
		if c.name == "densenet121" && driver.Symbol("plimsollEmulatorCount") != nil {
			continue // minutes on an emulated GPU
		}
		m, err := models.New(c.name, c.config)
		must(t, err)
		cpu := trained(t, m, "cpu", nil, executor.Options{})
		gpu := trained(t, m, "cuda:0", nil, executor.Options{})
		for i := range cpu.losses {
			if !(math.Abs(gpu.losses[i]-cpu.losses[i]) <= 1e-4*math.Abs(cpu.losses[i])) {
				t.Errorf("%s, step %d: loss %v, on the CPU %v", c.name, i, gpu.losses[i], cpu.losses[i])
			}
		}
		for name, opt := range c.plans {
			now := trained(t, m, "cuda:0", planned(t, name), opt)
			if now.peak != now.predicted {
				t.Errorf("%s, %s: peak %d, predicted %d", c.name, name, now.peak, now.predicted)
			}
			if at := firstDifference(now.state, gpu.state); at != "" {
				t.Errorf("%s, %s: %s differs from store-all's", c.name, name, at)
			}
			plans++
			if now.moved {
				moved++
			}
		}
	}
	t.Logf("%d plans ran, %d with transfers", plans, moved)
	if plans < 10 || moved < 6 {
		t.Errorf("only %d plans ran, %d with transfers", plans, moved)
	}
}

// State in host memory passes through the arena of a GPU too, in a graph and call by call: the same bits, at a lower peak.
func TestGPUTrainsWithOffloadedState(t *testing.T) {
	needGPU(t)
	m, err := models.New("tiny", models.Config{Batch: 2, Image: 16, Classes: 5})
	must(t, err)
	want := trained(t, m, "cuda:0", nil, executor.Options{})
	runs := 0
	for _, mode := range []executor.Offloading{executor.OffloadOptimizer, executor.OffloadWeights} {
		for name, opt := range map[string]executor.Options{"rotor": {}, "rotor timed": {Timed: true, NoGraph: true}, "rotor audited": {Audit: true}} {
			got := trainedWith(t, m, "cuda:0", planned(t, name), opt, mode)
			for tensor, bits := range got.state {
				if !bytes.Equal(want.state[tensor], bits) {
					t.Errorf("%v, %s: %s differs", mode, name, tensor)
				}
			}
			if got.peak != got.predicted || got.peak >= want.peak || len(got.state) < len(want.state)/2 {
				t.Errorf("%v, %s: peak %d, predicted %d, of store-all %d; %d tensors of %d", mode, name, got.peak, got.predicted, want.peak, len(got.state), len(want.state))
			}
			runs++
		}
	}
	if runs != 6 {
		t.Errorf("%d runs", runs)
	}
}

// A GPU takes batches that wait in its memory as bytes, in a graph and call by call, with transfers and with branches: the bits of
// images that travel as values, at the predicted peak.
func TestGPUTrainsOnStagedBatches(t *testing.T) {
	needGPU(t)
	runs := 0
	for name, plans := range map[string]map[string]executor.Options{
		"resnet20": {"rotor": {}, "rotor timed": {Timed: true, NoGraph: true}, "rotor audited": {Audit: true}, "offload-greedy": {}},
		"siamese":  {"multi-empty": {}},
	} {
		m, err := models.New(name, models.Config{Batch: 3, Image: 16, Classes: 2})
		must(t, err)
		want := trained(t, m, "cuda:0", nil, executor.Options{})
		for plan, opt := range plans {
			got := trainedAs(t, m, "cuda:0", planned(t, plan), opt, func(w *executor.Workload) (*executor.Workload, error) { return w.Stage(palette()), nil })
			if at := firstDifference(got.state, want.state); at != "" || !slices.Equal(got.losses, want.losses) || got.peak != got.predicted {
				t.Errorf("%s, %s: %s differs; losses %v, want %v; peak %d, predicted %d", name, plan, at, got.losses, want.losses, got.peak, got.predicted)
			}
			runs++
		}
	}
	if runs != 5 {
		t.Errorf("%d runs", runs)
	}
}

// palette is one of three channels.
func palette() []float32 {
	p := make([]float32, 3*256)
	for i := range p {
		p[i] = (float32(i%256) - 100 - float32(i/256)) / 80
	}
	return p
}

func needGPU(t *testing.T) {
	t.Helper()
	if status := driver.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// outcome is what some steps left.
type outcome struct {
	losses          []float64
	state           map[string][]byte
	peak, predicted int64
	moved           bool // it has transfers
}

// plan makes a sequence for a compiled model, with what it was simulated with.
type plan func(*executor.Workload) (schedule.Sequence, executor.Sim)

// planned returns a plan of the strategy that name begins with, at 60 % of the memory of store-all's activations or the
// smallest limit above it that works.
func planned(t *testing.T, name string) plan {
	t.Helper()
	return func(w *executor.Workload) (schedule.Sequence, executor.Sim) {
		var s string
		_, err := fmt.Sscan(name, &s)
		must(t, err)
		found, err := planner.Lookup(s)
		must(t, err)
		c := costed(w.Chain())
		all, err := schedule.Simulate(c, w.StoreAll(), schedule.Limits{Memory: schedule.NoLimit})
		must(t, err)
		problem := strategy.Problem{
			Chain: c, Memory: all.Peak * 3 / 5, Link: schedule.Link{Bandwidth: float64(all.Peak), Duplex: true},
		}
		p, err := found.Solve(context.Background(), problem.Request())
		if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
			problem.Memory = small.Smallest
			p, err = found.Solve(context.Background(), problem.Request())
		}
		must(t, err)
		return p.Sequence(), executor.Following(c, p)
	}
}

// costed gives every layer a second forward and two backward.
func costed(c *chain.Chain) *chain.Chain {
	for i := range c.Layers {
		c.Layers[i].ForwardS, c.Layers[i].BackwardS = 1, 2
	}
	return c
}

// trained trains a few steps on a fresh device; a nil plan is store-all.
func trained(t *testing.T, m *models.Model, spec string, p plan, opt executor.Options) outcome {
	t.Helper()
	return trainedWith(t, m, spec, p, opt, executor.OffloadNothing)
}

// trainedWith is trained with state in host memory.
func trainedWith(t *testing.T, m *models.Model, spec string, p plan, opt executor.Options, mode executor.Offloading) outcome {
	t.Helper()
	return trainedAs(t, m, spec, p, opt, func(w *executor.Workload) (*executor.Workload, error) { return w.Offload(mode) })
}

// trainedAs is trained with another kind of workload.
func trainedAs(t *testing.T, m *models.Model, spec string, p plan, opt executor.Options, kind func(*executor.Workload) (*executor.Workload, error)) outcome {
	t.Helper()
	opened, err := devices.Open(spec, devices.Options{Memory: gpuMemory, HostMemory: gpuMemory})
	must(t, err)
	dev := opened[0]
	defer func() { must(t, dev.Close()) }()
	lib, err := library.Open(dev, library.Options{})
	must(t, err)
	w, err := executor.Compile(m, lib, kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4})
	must(t, err)
	w, err = kind(w)
	must(t, err)
	seq := w.StoreAll()
	if p != nil {
		seq, opt.Sim = p(w)
	}
	opt.Seed, opt.Limit = 3, gpuMemory/2
	e, err := executor.New(w, executor.Target{Device: dev, Library: lib}, seq, opt)
	must(t, err)
	o := outcome{state: map[string][]byte{}, moved: slices.ContainsFunc(seq, func(op schedule.Op) bool { return op.Kind.Transfer() })}
	o.predicted, _ = e.Peak()
	batch(t, e, 0)
	for step := range uint64(gpuSteps) {
		must(t, e.Begin(step, gpuRate))
		if p != nil { // plans have their batches filled beside the step before
			e.Swap()
			batch(t, e, step+1)
			must(t, e.Stage())
		}
		r, err := e.End()
		must(t, err)
		if p == nil {
			batch(t, e, step+1)
		}
		o.losses, o.peak = append(o.losses, r.Loss), r.PeakBytes
	}
	for _, tensor := range e.Tensors() {
		values := make([]float32, tensor.Desc.Elements())
		must(t, e.Read(tensor, values))
		o.state[tensor.Name+" "+tensor.Role] = unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))
	}
	return o
}

func batch(t *testing.T, e *executor.Executor, step uint64) {
	t.Helper()
	labels, err := e.Labels()
	must(t, err)
	r, values := rand.New(rand.NewPCG(step, 9)), palette()
	if e.StagedBytes() > 0 {
		pixels, err := e.Pixels()
		must(t, err)
		for i := range pixels {
			pixels[i] = byte(r.Uint32())
		}
	} else {
		images, err := e.Images()
		must(t, err)
		for i := range images {
			images[i] = values[i%3*256+int(byte(r.Uint32()))]
		}
	}
	for i := range labels {
		labels[i] = int32(r.IntN(e.Model.Classes))
	}
}

// firstDifference names a tensor that is missing or has other bits; "" when there is none.
func firstDifference(got, want map[string][]byte) string {
	for name, bits := range want {
		if !bytes.Equal(got[name], bits) {
			return name
		}
	}
	return ""
}
