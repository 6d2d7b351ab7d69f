package pipeline

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	slow "plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

// typed is a model of the zoo in a type, and a device of its own for each run.
type typed struct {
	*Workload
	open func() executor.Target
}

// referenceTyped computes with the reference library, in any type.
func referenceTyped(t *testing.T, name string, d kernels.DType) typed {
	t.Helper()
	return newTyped(t, name, d, func(dev *host.Device) kernels.Library { return slow.New(dev) })
}

func newTyped(t *testing.T, name string, d kernels.DType, library func(*host.Device) kernels.Library) typed {
	t.Helper()
	m, err := models.New(name, models.Config{Batch: 4, Image: 8, Classes: 5, DType: d})
	must(t, err)
	open := func() executor.Target {
		dev, err := host.New(host.Config{Memory: testMemory, HostMemory: testMemory})
		must(t, err)
		t.Cleanup(func() { must(t, dev.Close()) })
		return executor.Target{Device: dev, Library: library(dev)}
	}
	w, err := Compile(m, open().Library, kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4})
	must(t, err)
	return typed{w, open}
}

// Invariants 2 and 3 in bfloat16 and TF32: recomputation gives the bits of store-all at the predicted peak.
func TestBFloat16PlansGiveTheBitsOfStoreAll(t *testing.T) {
	t.Parallel()
	plansGiveTheBitsOfStoreAll(t, func(name string) typed { return referenceTyped(t, name, kernels.BFloat16) }, 10, 5)
}

func TestTF32PlansGiveTheBitsOfStoreAll(t *testing.T) {
	t.Parallel()
	plansGiveTheBitsOfStoreAll(t, func(name string) typed { return referenceTyped(t, name, kernels.TF32) }, 10, 5)
}

// The kernels of the CPU in bfloat16, too, with two threads, where the processor has the instructions.
func TestBFloat16PlansOfTheCPUGiveTheBitsOfStoreAll(t *testing.T) {
	t.Parallel()
	library := func(dev *host.Device) kernels.Library {
		lib, err := cpu.New(dev, cpu.Options{Threads: 2})
		must(t, err)
		if _, err := lib.Workspace(kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{kernels.F32(1).As(kernels.BFloat16)}}); err != nil {
			t.Skip(err)
		}
		return lib
	}
	plansGiveTheBitsOfStoreAll(t, func(name string) typed { return newTyped(t, name, kernels.BFloat16, library) }, 4, 2) // workspace leaves less to save
}

func plansGiveTheBitsOfStoreAll(t *testing.T, open func(name string) typed, leastRan, leastRecomputed int) {
	t.Helper()
	ran, recomputed := 0, 0
	names := []string{"tiny", "resnet20"}
	if testing.Short() {
		names, leastRan, leastRecomputed = names[:1], max(1, leastRan/5), max(1, leastRecomputed/5)
	}
	for _, name := range names {
		w := open(name)
		costs, plan := Unmeasured(w.Workload, w.StoreAll())
		e, want := trainedOn(t, []executor.Target{w.open()}, w.Workload, costs, plan, 3, Options{})
		want.Tensors = tensors(t, e)
		most, err := w.PeakBytes(w.StoreAll())
		must(t, err)
		for _, strategyName := range []string{"rotor", "periodic"} {
			s, err := planner.Lookup(strategyName)
			must(t, err)
			for _, percent := range []int64{100, 80, 65, 50} {
				limit := w.StaticBytes() + (most-w.StaticBytes())*percent/100
				c := unequal(w.Chain())
				plan, err := executor.Plan(t.Context(), w.Workload, c, s, limit, strategy.Options{})
				if errors.As(err, new(*executor.TooSmallError)) {
					continue
				}
				must(t, err)
				e, got := trainedOn(t, []executor.Target{w.open()}, w.Workload, Costs{c, plan.Platform}, plan, 3, Options{Limits: []int64{limit}, Audit: true})
				got.Tensors = tensors(t, e)
				if d := want.FirstDifference(got); d != "" {
					t.Errorf("%s, %s at %d %%: %s", name, s.Name, percent, d)
				}
				if predicted := w.StaticBytes() + plan.Peak(); e.Audited()[0].PeakBytes != predicted {
					t.Errorf("%s, %s at %d %%: measured peak %d, predicted %d", name, s.Name, percent, e.Audited()[0].PeakBytes, predicted)
				}
				if ran++; len(plan.Sequence()) > 2*len(w.Layers) {
					recomputed++
				}
			}
		}
	}
	t.Logf("%d plans ran, %d of them with recomputation", ran, recomputed)
	if ran < leastRan || recomputed < leastRecomputed {
		t.Errorf("only %d plans ran, %d of them with recomputation", ran, recomputed)
	}
}

// From the same weights on the same batches, a run in bfloat16 or TF32 follows the run in float32. Activations take about half the memory
// in bfloat16, and as much in TF32. Weights are float32.
func TestRunsFollowFloat32(t *testing.T) {
	t.Parallel()
	steps := 5
	if testing.Short() {
		steps = 2
	}
	run := func(d kernels.DType) (losses []float64, activations int64) {
		w := referenceTyped(t, "resnet20", d)
		b := NewBatch(w.Model)
		e, err := NewAlone(w.Workload, w.open(), w.StoreAll(), Options{Feed: b, Seed: 7})
		must(t, err)
		for step := range steps {
			r := rand.New(rand.NewPCG(uint64(step), 9))
			for i := range b.Input {
				b.Input[i] = r.Float32()*2 - 1
			}
			for i := range b.Target {
				b.Target[i] = int32(r.IntN(w.Model.Classes))
			}
			res, err := e.Step(0.01)
			must(t, err)
			losses = append(losses, res.Loss)
		}
		for round, f := range map[string]func(float32) float32{"bfloat16": kernels.RoundBFloat16, "tf32": kernels.RoundTF32} {
			if allRounded(tensors(t, e.Executor), f) {
				t.Errorf("in %v the weights are rounded to %s", d, round)
			}
		}
		return losses, e.memory[0].Peak - w.StaticBytes()
	}
	wide, whole := run(kernels.Float32)
	for _, c := range []struct {
		dtype       kernels.DType
		first       float64 // how far the first loss may be off; later ones drift
		least, most float64 // share of the activations' bytes
	}{{kernels.BFloat16, 0.01, 0.5, 0.53}, {kernels.TF32, 0.001, 1, 1}} {
		losses, activations := run(c.dtype)
		for step, want := range wide {
			off := 0.03
			if step == 0 {
				off = c.first
			}
			if got := losses[step]; !(math.Abs(got-want) <= off*want) {
				t.Errorf("%v, step %d: the loss is %v, in float32 %v", c.dtype, step, got, want)
			}
		}
		if slices.Equal(losses, wide) {
			t.Errorf("%v computes what float32 does", c.dtype)
		}
		if share := float64(activations) / float64(whole); share < c.least || share > c.most {
			t.Errorf("%v: activations take %v of those in float32", c.dtype, share)
		}
	}
}

// allRounded reports whether every element of every weight is one that round does not change.
func allRounded(all []pipelinetest.Tensor, round func(float32) float32) bool {
	for _, x := range all {
		if x.Role == "weight" && slices.ContainsFunc(x.Values, func(w float32) bool { return round(w) != w }) {
			return false
		}
	}
	return true
}

// Both readers of activations decode them from the device: evaluation, and the search for the first layer that is not finite.
func TestBFloat16IsDecoded(t *testing.T) {
	t.Parallel()
	var logits [2][]float32
	for i, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
		w := referenceTyped(t, "resnet20", d)
		b := NewBatch(w.Model)
		feedOf(w.Model).batch(1, b.Input, b.Target)
		e, err := NewAlone(w.Workload, w.open(), w.StoreAll(), Options{Feed: b, Seed: 7})
		must(t, err)
		logits[i] = make([]float32, 4*5)
		must(t, e.Predict(b, logits[i]))
		name, err := e.FirstNotFinite(0, b.Input, b.Target)
		must(t, err)
		if name != "" {
			t.Errorf("in %v, %s is not finite", d, name)
		}
		for _, x := range e.Tensors() {
			if x.Role == "weight" && x.Name == "layer2.1.bn1.bias" {
				bad := make([]float32, x.Desc.Elements())
				bad[3] = float32(math.Inf(1))
				must(t, e.Write(x, bad))
			}
		}
		name, err = e.FirstNotFinite(0, b.Input, b.Target)
		must(t, err)
		if name != "layer2.1" {
			t.Errorf("in %v, %q is the first that is not finite", d, name)
		}
	}
	for i, want := range logits[0] {
		if got := logits[1][i]; !(math.Abs(float64(got-want)) <= 0.03*(1+math.Abs(float64(want)))) {
			t.Errorf("logit %d is %v, in float32 %v", i, got, want)
		}
		if kernels.RoundBFloat16(logits[1][i]) != logits[1][i] {
			t.Errorf("logit %d is no bfloat16", i)
		}
	}
}
