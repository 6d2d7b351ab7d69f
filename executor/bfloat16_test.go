package executor

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

// zooRig is a model of the zoo on a fresh host device with the reference library, which computes in every type.
func zooRig(t *testing.T, name string, d kernels.DType) rig {
	t.Helper()
	return zooRigOn(t, name, d, func(dev *host.Device) kernels.Library { return ref.New(dev) })
}

func zooRigOn(t *testing.T, name string, d kernels.DType, open func(*host.Device) kernels.Library) rig {
	t.Helper()
	m, err := models.New(name, models.Config{Batch: 4, Image: 8, Classes: 5, DType: d})
	must(t, err)
	dev, err := host.New(host.Config{Memory: testMemory, HostMemory: testMemory})
	must(t, err)
	t.Cleanup(func() { must(t, dev.Close()) })
	lib := open(dev)
	w, err := Compile(m, lib, kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4})
	must(t, err)
	return rig{w, dev, Target{Device: dev, Library: lib}}
}

// Invariants 2 and 3 in bfloat16 and TF32: recomputation gives the bits of store-all at the predicted peak.
func TestBFloat16PlansGiveTheBitsOfStoreAll(t *testing.T) {
	t.Parallel()
	plansGiveTheBitsOfStoreAll(t, func(name string) rig { return zooRig(t, name, kernels.BFloat16) }, 10, 5)
}

func TestTF32PlansGiveTheBitsOfStoreAll(t *testing.T) {
	t.Parallel()
	plansGiveTheBitsOfStoreAll(t, func(name string) rig { return zooRig(t, name, kernels.TF32) }, 10, 5)
}

// The kernels of the CPU in bfloat16, too, with two threads, where the processor has the instructions.
func TestBFloat16PlansOfTheCPUGiveTheBitsOfStoreAll(t *testing.T) {
	t.Parallel()
	open := func(dev *host.Device) kernels.Library {
		lib, err := cpu.New(dev, cpu.Options{Threads: 2})
		must(t, err)
		if _, err := lib.Workspace(kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{kernels.F32(1).As(kernels.BFloat16)}}); err != nil {
			t.Skip(err)
		}
		return lib
	}
	plansGiveTheBitsOfStoreAll(t, func(name string) rig { return zooRigOn(t, name, kernels.BFloat16, open) }, 4, 2) // workspace leaves less to save
}

func plansGiveTheBitsOfStoreAll(t *testing.T, zooRig func(name string) rig, leastRan, leastRecomputed int) {
	t.Helper()
	ran, recomputed := 0, 0
	for _, name := range []string{"tiny", "resnet20"} {
		all := zooRig(name)
		want := train(t, all.executor(t, all.StoreAll(), Options{Seed: 7}), 3)
		most, err := all.PeakBytes(all.StoreAll())
		must(t, err)
		for _, s := range planner.Sequences() {
			if s.Name != "rotor" && s.Name != "periodic" {
				continue
			}
			for _, percent := range []int64{100, 80, 65, 50} {
				r := zooRig(name)
				limit := r.StaticBytes() + (most-r.StaticBytes())*percent/100
				plan, err := Plan(context.Background(), r.Workload, costs(r.Chain()), s, limit, strategy.Options{})
				if small := (*TooSmallError)(nil); errors.As(err, &small) {
					continue
				}
				must(t, err)
				e := r.executor(t, plan.Sequence(), Options{Seed: 7, Limit: limit, Audit: true})
				if d := firstDifference(want, train(t, e, 3)); d != "" {
					t.Errorf("%s, %s at %d %%: %s differs from store-all's", name, s.Name, percent, d)
				}
				if predicted := r.StaticBytes() + plan.Peak(); e.result.PeakBytes != predicted {
					t.Errorf("%s, %s at %d %%: measured peak %d, predicted %d", name, s.Name, percent, e.result.PeakBytes, predicted)
				}
				ran++
				if len(plan.Sequence()) > 2*len(r.Layers) {
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

// A run in bfloat16 or TF32 follows the one in float32 from the same weights on the same batches: in bfloat16 in about half the
// memory for activations, in TF32 in as much. Weights are float32.
func TestRunsFollowFloat32(t *testing.T) {
	t.Parallel()
	const steps = 5
	run := func(d kernels.DType) (losses []float64, activations int64) {
		r := zooRig(t, "resnet20", d)
		e := r.executor(t, r.StoreAll(), Options{Seed: 7})
		for step := range steps {
			fillBatch(t, e, uint64(step))
			res, err := e.Step(uint64(step), 0.01)
			must(t, err)
			losses = append(losses, res.Loss)
		}
		for round, f := range map[string]func(float32) float32{"bfloat16": kernels.RoundBFloat16, "tf32": kernels.RoundTF32} {
			if allRounded(t, e, f) {
				t.Errorf("in %v the weights are rounded to %s", d, round)
			}
		}
		peak, _ := e.Peak()
		return losses, peak - r.StaticBytes()
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
func allRounded(t *testing.T, e *Executor, round func(float32) float32) bool {
	for _, x := range e.Tensors() {
		v := make([]float32, x.Desc.Elements())
		must(t, e.Read(x, v))
		if x.Role == "weight" && slices.ContainsFunc(v, func(w float32) bool { return round(w) != w }) {
			return false
		}
	}
	return true
}

// What reads activations from the device decodes them: evaluation, and the search for the first layer that is not
// finite.
func TestBFloat16IsDecoded(t *testing.T) {
	t.Parallel()
	var logits [2][]float32
	for i, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
		r := zooRig(t, "resnet20", d)
		e := r.executor(t, r.StoreAll(), Options{Seed: 7})
		fillBatch(t, e, 1)
		logits[i] = make([]float32, 4*5)
		must(t, e.Predict(logits[i]))
		name, err := e.FirstNotFinite()
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
		name, err = e.FirstNotFinite()
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
