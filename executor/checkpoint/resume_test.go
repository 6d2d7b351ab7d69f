package checkpoint

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime/host"
)

const arena = 64 << 20

// run is the model "tiny" on a device of its own.
type run struct {
	*pipeline.Stepper
	batch *pipeline.Batch
	t     testing.TB
}

// Tensors lists gradients, too.
func (r run) Tensors() []executor.Tensor { return append(r.Stepper.Tensors(), r.Gradients()...) }

// newRun binds the sequence that plan gives to a fresh device, behind so many steps.
func newRun(t testing.TB, u kernels.Update, limit int64, plan func(*executor.Workload) schedule.Sequence, done int, updates []int64) run {
	t.Helper()
	m, err := models.New("tiny", models.Config{Batch: 4, Image: 16, Classes: 5})
	must(t, err)
	dev, err := host.New(host.Config{Memory: limit, HostMemory: arena})
	must(t, err)
	t.Cleanup(func() { must(t, dev.Close()) })
	lib, err := cpu.New(dev, cpu.Options{})
	must(t, err)
	w, err := executor.Compile(m, lib, u)
	must(t, err)
	batch := pipeline.NewBatch(m)
	opt := pipeline.Options{Feed: batch, Limits: []int64{limit}, Seed: 5, Past: pipeline.Past{Minibatches: done, Updates: updates}}
	e, err := pipeline.NewAlone(w, executor.Target{Device: dev, Library: lib}, plan(w), opt)
	must(t, err)
	return run{e, batch, t}
}

// steps trains steps [from, to), each on a batch that its number tells.
func (r run) steps(from, to int) (losses []uint64) {
	r.t.Helper()
	for step := from; step < to; step++ {
		rnd := rand.New(rand.NewPCG(uint64(step), 9))
		for i := range r.batch.Input {
			r.batch.Input[i] = rnd.Float32()*2 - 1
		}
		for i := range r.batch.Target {
			r.batch.Target[i] = int32(rnd.IntN(r.Model.Classes))
		}
		res, err := r.Step(0.1)
		must(r.t, err)
		losses = append(losses, math.Float64bits(res.Loss))
	}
	return losses
}

// content copies all tensors to memory.
func (r run) content() *memory {
	r.t.Helper()
	m := &memory{tensors: r.Tensors(), values: map[string][]float32{}}
	for _, t := range m.tensors {
		v := make([]float32, t.Desc.Elements())
		must(r.t, r.Read(t, v))
		m.values[key(t)] = v
	}
	return m
}

func storeAll(w *executor.Workload) schedule.Sequence { return w.StoreAll() }

// recompute keeps every activation and runs every forward twice.
func recompute(w *executor.Workload) schedule.Sequence {
	var seq schedule.Sequence
	n := len(w.Layers)
	for l := 1; l < n; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardCheckpoint, Layer: l})
	}
	for l := n; l >= 1; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l}, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

// TestResumeUnderAnotherPlan: a run takes three steps, saves a checkpoint and takes three more steps under another plan and another limit.
// The last three run on a device with a model that started elsewhere. They equal six steps of one run, bit for bit: losses, weights,
// buffers, gradients and states.
func TestResumeUnderAnotherPlan(t *testing.T) {
	t.Parallel()
	cases := 0
	for _, u := range []kernels.Update{
		kernels.SGD{}, kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4, Nesterov: true},
		kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.1},
		kernels.Muon{Momentum: 0.95, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
	} {
		straight := newRun(t, u, arena, storeAll, 0, nil)
		losses := straight.steps(0, 6)

		d := NewDir(filepath.Join(t.TempDir(), "checkpoints"), 2)
		first := newRun(t, u, arena, storeAll, 0, nil)
		before := first.steps(0, 3)
		meta := someMeta(3)
		meta.Update, meta.Updates = u, first.Updates()
		must(t, d.Save(first, meta))

		c, bad, err := d.Latest()
		must(t, err)
		second := newRun(t, u, arena/2, recompute, int(c.Step), c.Updates)
		for _, x := range second.Tensors() { // what was there must not matter
			must(t, second.Write(x, slices.Repeat([]float32{3}, int(x.Desc.Elements()))))
		}
		if len(bad) > 0 || c.Step != 3 || c.Update != u {
			t.Errorf("the checkpoint is of step %d with %v; bad are %v", c.Step, c.Update, bad)
		}
		must(t, c.Restore(second))
		must(t, c.Close())
		if name := differs(first.content(), second.content(), training); name != "" {
			t.Errorf("%v: %s is another one after loading", u, name)
		}
		after := second.steps(int(c.Step), 6)
		if got := append(before, after...); !slices.Equal(got, losses) {
			t.Errorf("%v: the losses are %x, want %x", u, got, losses)
		}
		everything := func(string) bool { return true }
		if name := differs(straight.content(), second.content(), everything); name != "" {
			t.Errorf("%v: %s differs", u, name)
		}
		if name := differs(straight.content(), first.content(), training); name == "" {
			t.Error("three more steps changed nothing")
		}
		cases++
	}
	if cases != 5 {
		t.Errorf("%d cases", cases)
	}
}

// TestExportedModelPredictsTheSame: weights that went through a file of torchvision's layout give the same logits.
func TestExportedModelPredictsTheSame(t *testing.T) {
	t.Parallel()
	trained := newRun(t, kernels.SGD{}, arena, storeAll, 0, nil)
	trained.steps(0, 3)
	path := filepath.Join(t.TempDir(), "final.safetensors")
	must(t, Export(path, trained, Batches{}, nil))
	fresh := newRun(t, kernels.SGD{}, arena, storeAll, 0, nil)
	predict := func(r run) []float32 {
		for i := range r.batch.Input {
			r.batch.Input[i] = float32(i%13) / 13
		}
		logits := make([]float32, 4*5)
		must(t, r.Predict(r.batch, logits))
		return logits
	}
	want := predict(trained)
	if slices.Equal(predict(fresh), want) {
		t.Fatal("training changed nothing")
	}
	imported(t, path, fresh)
	if got := predict(fresh); !slices.Equal(got, want) {
		t.Errorf("the logits are %v, want %v", got, want)
	}
}
