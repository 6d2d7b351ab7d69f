package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

const testMemory = 64 << 20

// count is 1 for true.
func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

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

func (r rig) executor(t testing.TB, seq schedule.Sequence, opt Options) *Executor {
	t.Helper()
	if opt.Limit == 0 {
		opt.Limit = testMemory
	}
	e, err := New(r.Workload, r.on, seq, opt)
	must(t, err)
	return e
}

func fillBatch(t testing.TB, e *Executor, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	images, err := e.Images()
	must(t, err)
	for i := range images {
		images[i] = r.Float32()*2 - 1
		if e.Model.Input.DType == kernels.Int32 {
			images[i] = math.Float32frombits(uint32(r.IntN(e.Model.Classes)))
		}
	}
	labels, err := e.Labels()
	must(t, err)
	for i := range labels {
		labels[i] = int32(r.IntN(e.Model.Classes))
	}
}

// outcome is everything that a run leaves: losses and, byte for byte, weights, buffers, gradients and states.
type outcome struct {
	losses []float64
	names  []string
	bits   [][]byte
}

func train(t testing.TB, e *Executor, steps int) outcome {
	t.Helper()
	var o outcome
	for i := range steps {
		fillBatch(t, e, uint64(i))
		r, err := e.Step(uint64(i), 0.1)
		must(t, err)
		o.losses = append(o.losses, r.Loss)
	}
	o.read(t, e)
	return o
}

// read adds what an executor holds.
func (o *outcome) read(t testing.TB, e *Executor) {
	t.Helper()
	for _, x := range e.Tensors() {
		v := make([]float32, x.Desc.Elements())
		must(t, e.Read(x, v))
		o.names = append(o.names, x.Role+" of "+x.Name)
		o.bits = append(o.bits, append([]byte(nil), asBytes(v)...))
	}
}

// firstDifference names the first thing in which two outcomes differ, "" if they are the same bits.
func firstDifference(a, b outcome) string {
	for i := range a.losses {
		if a.losses[i] != b.losses[i] {
			return "loss"
		}
	}
	for i := range a.bits {
		if !bytes.Equal(a.bits[i], b.bits[i]) {
			return a.names[i]
		}
	}
	return ""
}

// costs gives a chain without measurements times that make recomputation choices interesting.
func costs(c *chain.Chain) *chain.Chain {
	for i := range c.Layers {
		c.Layers[i].ForwardS, c.Layers[i].BackwardS = float64(1+i%3), float64(2+i%2)
	}
	return c
}

func reference(t testing.TB, steps int) outcome {
	r := newRig(t, testModel(t), host.Config{}, nil)
	return train(t, r.executor(t, r.StoreAll(), Options{Seed: 7}), steps)
}

// Invariants 2 and 3: every strategy at every limit gives store-all's bits, at exactly the predicted peak.
func TestPlansGiveTheBitsOfStoreAllAtThePredictedPeak(t *testing.T) {
	t.Parallel()
	everyPlan(t, testModel(t))
}

// The same of a transformer, whose input is tokens and each of whose tokens has a label.
// Only this test finds a strategy that recomputes dropout of a GPT or grouped heads of a tied Llama to other bits.
func TestPlansOfTransformersGiveTheBitsOfStoreAll(t *testing.T) {
	t.Parallel()
	m, err := models.GPT2("gpt2", models.Language{
		Batch: 2, Length: 20, Vocabulary: 30, Positions: 24, Width: 32, Heads: 4, Blocks: 4, Dropout: 0.1,
	})
	must(t, err)
	everyPlan(t, m)
	m, err = models.Llama("llama", models.Language{
		Batch: 2, Length: 20, Vocabulary: 30, Width: 32, Heads: 4, KVHeads: 2, Hidden: 48, Blocks: 4, Tied: true,
	})
	must(t, err)
	everyPlan(t, m)
}

func everyPlan(t *testing.T, m *models.Model) {
	const steps = 3
	probe := newRig(t, m, host.Config{}, nil)
	want := train(t, probe.executor(t, probe.StoreAll(), Options{Seed: 7}), steps)
	probe = newRig(t, m, host.Config{}, nil)
	all, err := probe.PeakBytes(probe.StoreAll())
	must(t, err)
	ran, recomputed, offloaded := 0, 0, 0
	for _, s := range planner.Sequences() {
		for _, percent := range []int64{100, 90, 80, 70, 60, 50} {
			limit := probe.StaticBytes() + (all-probe.StaticBytes())*percent/100
			r := newRig(t, m, host.Config{}, nil)
			c := costs(r.Chain())
			c.Bandwidth = float64(c.Saved(2)) / 2 // two forwards' time or so for most activations
			plan, err := Plan(context.Background(), r.Workload, c, s, limit, strategy.Options{})
			if small := (*TooSmallError)(nil); errors.As(err, &small) {
				if small.Smallest <= limit {
					t.Errorf("%s at %d: refused, although %d bytes work", s.Name, limit, small.Smallest)
				}
				continue
			}
			must(t, err)
			e := r.executor(t, plan.Sequence(), Options{Seed: 7, Limit: limit, Audit: true, Sim: Following(c, plan)})
			got := train(t, e, steps)
			if d := firstDifference(want, got); d != "" {
				t.Errorf("%s at %d %%: %s differs from store-all's (%v)", s.Name, percent, d, plan.Sequence())
			}
			if predicted := r.StaticBytes() + plan.Peak(); e.result.PeakBytes != predicted {
				t.Errorf("%s at %d %%: measured peak %d, predicted %d", s.Name, percent, e.result.PeakBytes, predicted)
			}
			if e.result.ExtentBytes > limit {
				t.Errorf("%s at %d %%: wrote byte %d beyond the limit %d", s.Name, percent, e.result.ExtentBytes, limit)
			}
			ran++
			moved := count(transfers(plan.Sequence()))
			offloaded += moved
			if moved == 0 && len(plan.Sequence()) > 2*len(r.Layers) {
				recomputed++
			}
		}
	}
	t.Logf("%d plans ran, %d with recomputation alone, %d with transfers", ran, recomputed, offloaded)
	if ran < 21 || recomputed < 8 || offloaded < 5 {
		t.Errorf("only %d plans ran, %d with recomputation alone, %d with transfers", ran, recomputed, offloaded)
	}
}

// Invariant 3 for sequences that no strategy makes: redundant forwards, checkpoints in odd places.
func TestRandomSequencesGiveTheBitsOfStoreAll(t *testing.T) {
	t.Parallel()
	const steps, cases = 2, 40
	want := reference(t, steps)
	rnd := rand.New(rand.NewPCG(11, 12))
	for k := range cases {
		r := newRig(t, testModel(t), host.Config{}, nil)
		seq := randomSequence(rnd, len(r.Layers))
		must(t, schedule.Verify(r.Chain(), seq))
		sim, err := schedule.Simulate(costs(r.Chain()), seq, schedule.Limits{Memory: schedule.NoLimit})
		must(t, err)
		limit := max(mustExtent(t, r, seq), r.evalExtent(t))
		e := r.executor(t, seq, Options{Seed: 7, Limit: limit, Audit: true})
		if d := firstDifference(want, train(t, e, steps)); d != "" {
			t.Fatalf("case %d: %s differs from store-all's (%v)", k, d, seq)
		}
		if want := r.StaticBytes() + sim.Peak; e.result.PeakBytes != want {
			t.Fatalf("case %d: measured peak %d, predicted %d (%v)", k, e.result.PeakBytes, want, seq)
		}
	}
}

// randomSequence makes a valid sequence: before each backward it recomputes what is missing, saving and discarding
// at random.
func randomSequence(r *rand.Rand, n int) schedule.Sequence {
	var seq schedule.Sequence
	plain, saved := make([]bool, n+1), make([]bool, n+1)
	plain[0] = true
	emit := func(k schedule.Kind, l int) { seq = append(seq, schedule.Op{Kind: k, Layer: l}) }
	for l := n; l >= 1; l-- {
		for !saved[l] {
			from := l - 1
			for !plain[from] && !saved[from] {
				from--
			}
			if from > 0 && r.IntN(6) == 0 { // a redundant forward
				for from--; !plain[from] && !saved[from]; {
					from--
				}
			}
			for i := from + 1; i <= l; i++ {
				// a_0 and what an earlier layer needs must survive: discard only from above the lowest start.
				switch k := r.IntN(3); {
				case i == l || k == 0:
					emit(schedule.ForwardAll, i)
					saved[i], plain[i] = true, false
				case k == 1 && plain[i-1] && i-1 > 0:
					emit(schedule.ForwardDiscard, i)
					plain[i-1] = false
					plain[i] = plain[i] || !saved[i]
				default:
					emit(schedule.ForwardCheckpoint, i)
					plain[i] = plain[i] || !saved[i]
				}
			}
		}
		if !plain[l-1] && !saved[l-1] {
			// The input was dropped: make it again, then go on.
			from := l - 2
			for !plain[from] && !saved[from] {
				from--
			}
			for i := from + 1; i < l; i++ {
				emit(schedule.ForwardCheckpoint, i)
				plain[i] = plain[i] || !saved[i]
			}
		}
		emit(schedule.Backward, l)
		saved[l], plain[l-1] = false, false
	}
	return seq
}

// Invariant 4: delays change nothing.
func TestChaosChangesNoBit(t *testing.T) {
	t.Parallel()
	const steps = 3
	want := reference(t, steps)
	for seed := uint64(1); seed <= 4; seed++ {
		r := newRig(t, testModel(t), host.Config{Memory: testMemory, HostMemory: testMemory, Chaos: seed}, nil)
		got := train(t, r.executor(t, r.checkpointAll(), Options{Seed: 7}), steps)
		if d := firstDifference(want, got); d != "" {
			t.Errorf("chaos %d: %s differs", seed, d)
		}
	}
}

// Invariant 1.
func TestStepsAllocateNothing(t *testing.T) {
	// Serial: it counts allocations.
	r := newRig(t, testModel(t), host.Config{}, nil)
	e := r.executor(t, r.checkpointAll(), Options{Seed: 7, Timed: true})
	fillBatch(t, e, 1)
	step := uint64(0)
	allocs := testing.AllocsPerRun(20, func() {
		if _, err := e.Step(step, 0.1); err != nil {
			t.Fatal(err)
		}
		step++
	})
	if allocs != 0 {
		t.Errorf("%v heap allocations a step, want 0", allocs)
	}
}

func TestAuditFindsAWriteThatNoBlockOwns(t *testing.T) {
	t.Parallel()
	v := &planted{at: -1}
	r := newRig(t, testModel(t), host.Config{}, func(l kernels.Library) kernels.Library { v.Library = l; return v })
	v.dev = r.dev
	peak, err := r.Extent(r.StoreAll())
	must(t, err)
	v.at = peak + 128
	e := r.executor(t, r.StoreAll(), Options{Seed: 7, Audit: true})
	fillBatch(t, e, 1)
	if _, err := e.Step(0, 0.1); err == nil || !strings.Contains(err.Error(), "no block owned") {
		t.Errorf("a stray write was not found: %v", err)
	}
	if _, err := e.Step(1, 0.1); !errors.Is(err, ErrStopped) {
		t.Errorf("a step after a failed one: %v, want ErrStopped", err)
	}
}

// planted is a library one of whose launches also writes a byte that is not its own.
type planted struct {
	kernels.Library
	dev *host.Device
	at  int64
}

func (p *planted) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	l, err := p.Library.Prepare(c, o)
	if err != nil || c.Op.Kind() != "linear" || c.Pass == kernels.Forward {
		return l, err
	}
	return host.Func{Name: l.Kernel(), Do: func() error {
		b, err := p.dev.Bytes(runtime.Span{Offset: p.at, Bytes: 1})
		if err != nil {
			return err
		}
		b[0] = 0
		return l.(host.Launch).Run()
	}}, nil
}

// The audit above can only be trusted if repeating BatchNorm's side effect would be seen.
func TestStatisticsThatMoveTwiceAreSeen(t *testing.T) {
	t.Parallel()
	want := reference(t, 1)
	r := newRig(t, testModel(t), host.Config{}, func(l kernels.Library) kernels.Library { return everyTime{l} })
	got := train(t, r.executor(t, r.checkpointAll(), Options{Seed: 7}), 1)
	if d := firstDifference(want, got); !strings.HasPrefix(d, "buffer of ") {
		t.Errorf("the first difference is %q, want a BatchNorm buffer", d)
	}
}

// everyTime moves running statistics with every training forward, as careless checkpointing does.
type everyTime struct{ kernels.Library }

func (l everyTime) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	c.UpdateStats = c.Train
	return l.Library.Prepare(c, o)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	seq := r.StoreAll()
	for _, c := range []struct {
		name  string
		seq   schedule.Sequence
		limit int64
		as    func(error) bool
	}{
		{"static memory alone", seq, r.StaticBytes() - 1, func(err error) bool { e := (*LimitError)(nil); return errors.As(err, &e) }},
		{"one byte less than the extent", seq, mustExtent(t, r, seq) - 1, func(err error) bool { e := (*LayoutError)(nil); return errors.As(err, &e) }},
		{"a broken rule", seq[1:], testMemory, func(err error) bool { e := (*schedule.RuleError)(nil); return errors.As(err, &e) }},
		{"transfers without a link", withTransfer(seq), testMemory, func(err error) bool { return errors.Is(err, schedule.ErrNoLink) }},
	} {
		if _, err := New(r.Workload, r.on, c.seq, Options{Limit: c.limit}); err == nil || !c.as(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// None of the refusals has taken the device's memory.
	fillBatch(t, r.executor(t, seq, Options{}), 1)
}

func mustExtent(t *testing.T, r rig, seq schedule.Sequence) int64 {
	t.Helper()
	n, err := r.Extent(seq)
	must(t, err)
	return n
}

// Predict must neither depend on the batch's neighbours in training mode nor change anything.
func TestPredictLeavesTrainingAlone(t *testing.T) {
	t.Parallel()
	want := reference(t, 2)
	r := newRig(t, testModel(t), host.Config{}, nil)
	e := r.executor(t, r.checkpointAll(), Options{Seed: 7})
	logits := make([]float32, 4*5)
	train(t, e, 1)
	must(t, e.Predict(logits))
	again := make([]float32, len(logits))
	must(t, e.Predict(again))
	for i := range logits {
		if logits[i] != again[i] || logits[i] != logits[i] {
			t.Fatalf("logit %d: %v, then %v", i, logits[i], again[i])
		}
	}
	fillBatch(t, e, 1)
	if _, err := e.Step(1, 0.1); err != nil {
		t.Fatal(err)
	}
	got := outcome{losses: want.losses[:0], names: want.names}
	for _, x := range e.Tensors() {
		v := make([]float32, x.Desc.Elements())
		must(t, e.Read(x, v))
		got.bits = append(got.bits, asBytes(v))
	}
	if d := firstDifference(outcome{names: want.names, bits: want.bits}, got); d != "" {
		t.Errorf("after a prediction %s differs", d)
	}
}

func TestProfileMeasuresEveryOp(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	steps := 0
	open := func() (Target, error) { return openRig(t, testModel(t), host.Config{}, nil).on, nil }
	fill := func(e *Executor) error { fillBatch(t, e, 1); return nil }
	c, err := Profile(context.Background(), r.Workload, open, testMemory/2, fill, ProfileOptions{Warmup: 1, Repeats: 3, Progress: func(done, total int) { steps = total - done }})
	must(t, err)
	must(t, c.Validate())
	for i := range c.Layers {
		l := &c.Layers[i]
		if l.ForwardS <= 0 || l.BackwardS <= 0 || (l.DiscardForwardS == nil) != (i == len(c.Layers)-1) {
			t.Errorf("layer %s: %+v", l.Name, l)
		}
	}
	var link LinkProfile
	must(t, json.Unmarshal(c.Extra[LinkField], &link))
	if c.Bandwidth != min(link.ToHost, link.ToDevice) || c.Bandwidth <= 0 || link.Slowdown <= 0 || LinkOf(c).Bandwidth != c.Bandwidth {
		t.Errorf("bandwidth %v, link %+v", c.Bandwidth, link)
	}
	if UpdateSeconds(c) <= 0 || steps != 0 {
		t.Errorf("update %v s, %d steps of the progress left", UpdateSeconds(c), steps)
	}
}

// A batch that is not finite must leave no trace in the weights, and the layer where it began must be found.
func TestABadBatchIsSkippedAndNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	e := r.executor(t, r.checkpointAll(), Options{Seed: 7, MaxNorm: 5})
	before := train(t, e, 2)
	fillBatch(t, e, 2)
	images, err := e.Images()
	must(t, err)
	images[17] = float32(math.Inf(1))
	res, err := e.Step(2, 0.1)
	must(t, err)
	if !res.Skipped {
		t.Errorf("norm %v, loss %v: the step was not skipped", res.Norm, res.Loss)
	}
	after := outcome{names: before.names}
	for _, x := range e.Tensors() {
		v := make([]float32, x.Desc.Elements())
		must(t, e.Read(x, v))
		after.bits = append(after.bits, asBytes(v))
	}
	for i, name := range before.names {
		finite := !strings.HasPrefix(name, "gradient")
		if finite && strings.Contains(name, "stem") && !bytes.Equal(before.bits[i], after.bits[i]) {
			t.Errorf("%s changed", name)
		}
		if strings.HasPrefix(name, "weight") && !bytes.Equal(before.bits[i], after.bits[i]) {
			t.Errorf("%s changed", name)
		}
	}
	layer, err := e.FirstNotFinite()
	must(t, err)
	if layer != "stem" {
		t.Errorf("the first layer that is not finite is %q, want stem", layer)
	}
	fillBatch(t, e, 3)
	if res, err := e.Step(3, 0.1); err != nil || res.Skipped || !(res.Norm > 0) {
		t.Errorf("the next step: %+v, %v", res, err)
	}
	if layer, err := e.FirstNotFinite(); err != nil || layer != "" {
		t.Errorf("a good batch: layer %q, %v", layer, err)
	}
}
