package executor

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

// zooRig is a model of the zoo on a fresh host device with the reference library, which computes in every type.
func zooRig(t *testing.T, name string, d kernels.DType) rig {
	t.Helper()
	m, err := models.New(name, models.Config{Batch: 4, Image: 8, Classes: 5, DType: d})
	must(t, err)
	dev, err := host.New(host.Config{Memory: testMemory, HostMemory: testMemory})
	must(t, err)
	t.Cleanup(func() { must(t, dev.Close()) })
	lib := ref.New(dev)
	w, err := Compile(m, lib, kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4})
	must(t, err)
	return rig{w, dev, Target{dev, lib}}
}

// Invariants 2 and 3 in bfloat16: recomputation gives the bits of store-all at the predicted peak.
func TestBFloat16PlansGiveTheBitsOfStoreAll(t *testing.T) {
	ran, recomputed := 0, 0
	for _, name := range []string{"tiny", "resnet20"} {
		all := zooRig(t, name, kernels.BFloat16)
		want := train(t, all.executor(t, all.StoreAll(), Options{Seed: 7}), 3)
		most, err := all.PeakBytes(all.StoreAll())
		must(t, err)
		for _, s := range planner.Strategies() {
			if s.Name != "rotor" && s.Name != "periodic" {
				continue
			}
			for _, percent := range []int64{100, 80, 65, 50} {
				r := zooRig(t, name, kernels.BFloat16)
				limit := r.StaticBytes() + (most-r.StaticBytes())*percent/100
				plan, err := Plan(context.Background(), r.Workload, costs(r.Chain()), s, limit, strategy.Options{})
				if small := (*TooSmallError)(nil); errors.As(err, &small) {
					continue
				}
				must(t, err)
				e := r.executor(t, plan.Ops, Options{Seed: 7, Limit: limit, Audit: true})
				if d := firstDifference(want, train(t, e, 3)); d != "" {
					t.Errorf("%s, %s at %d %%: %s differs from store-all's", name, s.Name, percent, d)
				}
				if predicted := r.StaticBytes() + plan.Predicted.Peak; e.result.PeakBytes != predicted {
					t.Errorf("%s, %s at %d %%: measured peak %d, predicted %d", name, s.Name, percent, e.result.PeakBytes, predicted)
				}
				ran++
				if len(plan.Ops) > 2*len(r.Layers) {
					recomputed++
				}
			}
		}
	}
	t.Logf("%d plans ran, %d of them with recomputation", ran, recomputed)
	if ran < 10 || recomputed < 5 {
		t.Errorf("only %d plans ran, %d of them with recomputation", ran, recomputed)
	}
}

// A run in bfloat16 follows the one in float32 from the same weights on the same batches, in about half the memory for
// activations, and its weights are float32.
func TestBFloat16FollowsFloat32(t *testing.T) {
	const steps = 5
	var losses [2][]float64
	var activations [2]int64
	for i, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
		r := zooRig(t, "resnet20", d)
		e := r.executor(t, r.StoreAll(), Options{Seed: 7})
		for step := range steps {
			fillBatch(t, e, uint64(step))
			res, err := e.Step(uint64(step), 0.01)
			must(t, err)
			losses[i] = append(losses[i], res.Loss)
		}
		peak, _ := e.Peak()
		activations[i] = peak - r.StaticBytes()
		if d == kernels.BFloat16 && allBFloat16(t, e) {
			t.Error("the weights are rounded to bfloat16")
		}
	}
	for step, want := range losses[0] {
		if got := losses[1][step]; !(math.Abs(got-want) <= 0.03*want) {
			t.Errorf("step %d: the loss is %v, in float32 %v", step, got, want)
		}
	}
	if slices.Equal(losses[0], losses[1]) {
		t.Error("bfloat16 computes what float32 does")
	}
	if share := float64(activations[1]) / float64(activations[0]); share > 0.53 {
		t.Errorf("activations take %v of those in float32", share)
	}
}

// allBFloat16 reports whether every element of every weight is a bfloat16.
func allBFloat16(t *testing.T, e *Executor) bool {
	for _, x := range e.Tensors() {
		v := make([]float32, x.Desc.Elements())
		must(t, e.Read(x, v))
		if x.Role == "weight" && slices.ContainsFunc(v, func(w float32) bool { return kernels.RoundBFloat16(w) != w }) {
			return false
		}
	}
	return true
}

// What reads activations from the device decodes them: evaluation, and the search for the first layer that is not
// finite.
func TestBFloat16IsDecoded(t *testing.T) {
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
