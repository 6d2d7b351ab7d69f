package executor

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

var (
	momentum = kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4}
	adam     = kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 1e-4}
	muon     = kernels.Muon{Momentum: 0.95, WeightDecay: 1e-4, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
)

// offloaded is a rig whose optimizer is opt and whose state is where mode says.
func offloaded(t testing.TB, m *models.Model, config host.Config, opt kernels.Update, mode Offloading) rig {
	t.Helper()
	r := newRig(t, m, config, nil)
	w, err := Compile(m, r.on.Library, opt)
	must(t, err)
	r.Workload, err = w.Offload(mode)
	must(t, err)
	return r
}

// missing names the first loss or tensor of got that is not, to the bit, as in want; gradients need not be there.
func missing(want, got outcome) string {
	all := map[string][]byte{}
	for i, name := range got.names {
		all[name] = got.bits[i]
	}
	for i, name := range want.names {
		if bits, ok := all[name]; ok && !bytes.Equal(bits, want.bits[i]) || !ok && !strings.HasPrefix(name, "gradient") {
			return name
		}
	}
	for i := range want.losses {
		if want.losses[i] != got.losses[i] {
			return "loss"
		}
	}
	return ""
}

// Invariants 2 to 4 with state on the host: the bits of the run that keeps everything in the arena, at the predicted peak,
// along sequences with and without transfers, whatever the streams do.
func TestOffloadedStateChangesNoBit(t *testing.T) {
	t.Parallel()
	const steps = 2
	rnd := rand.New(rand.NewPCG(41, 42))
	ran := 0
	optimizers, runs := []kernels.Update{adam, kernels.SGD{WeightDecay: 1e-4}, momentum, muon}, 49
	if testing.Short() {
		optimizers, runs = optimizers[:1], 14
	}
	for _, opt := range optimizers {
		want := train(t, offloaded(t, testModel(t), host.Config{}, opt, OffloadNothing).storeAll(t), steps)
		for _, mode := range []Offloading{OffloadOptimizer, OffloadWeights} {
			if mode == OffloadOptimizer && opt.States() == 0 {
				continue
			}
			for k := range 7 {
				config := host.Config{Memory: testMemory, HostMemory: testMemory, Chaos: uint64(k)}
				r := offloaded(t, testModel(t), config, opt, mode)
				x := r.sequence(t, rnd, k)
				at, err := r.Layout(x.seq, testMemory, x.sim)
				must(t, err)
				e := r.executor(t, x.seq, Options{
					Seed: 7, Sim: x.sim, Limit: max(at.Extent, r.evalExtent(t)), Audit: k%2 == 0, Timed: k%3 == 0,
				})
				if d := missing(want, train(t, e, steps)); d != "" {
					t.Errorf("%s, %v offloaded, case %d: %s differs (%v)", opt.Kind(), mode, k, d, x.seq)
				}
				if want := r.StaticBytes() + x.Peak; e.result.PeakBytes != want {
					t.Errorf("%s, %v offloaded, case %d: peak %d, predicted %d", opt.Kind(), mode, k, e.result.PeakBytes, want)
				}
				ran++
			}
		}
	}
	if ran != runs {
		t.Errorf("%d runs, want %d", ran, runs)
	}
}

func (r rig) storeAll(t testing.TB) *Executor {
	return r.executor(t, r.StoreAll(), Options{Seed: 7})
}

// sequence returns a sequence of a kind that depends on k.
func (r rig) sequence(t testing.TB, rnd *rand.Rand, k int) randomCase {
	t.Helper()
	x := randomCase{seq: r.StoreAll()}
	switch {
	case k == 6: // forwards of no use behind the backwards of their layers, whose weights have gone
		n := len(r.Layers)
		x.seq = x.seq[: 2*n-2 : 2*n-2] // up to B3
		for l := 3; l < n; l++ {
			x.seq = append(x.seq, schedule.Op{Kind: schedule.ForwardCheckpoint, Layer: l})
		}
		x.seq = append(x.seq, r.StoreAll()[2*n-2:]...)
	case k >= 3:
		for {
			x = randomTransfers(t, rnd, r.Workload)
			if _, err := r.Layout(x.seq, testMemory, x.sim); !errors.As(err, new(*UnusedPrefetchError)) {
				must(t, err)
				return x
			}
		}
	case k == 1:
		x.seq = r.checkpointAll()
	case k == 2:
		x.seq = randomSequence(rnd, len(r.Layers))
	}
	var err error
	x.Result, err = schedule.Simulate(costs(r.Chain()), x.seq, schedule.Limits{Memory: schedule.NoLimit})
	must(t, err)
	return x
}

// A limit that is too small with the state in the arena is enough without it, on networks as they are used.
func TestOffloadedStateFitsWhereItDidNot(t *testing.T) {
	t.Parallel()
	const steps = 2
	zoo := []string{"resnet20", "densenet121"}
	if testing.Short() {
		zoo = zoo[:1]
	}
	for _, name := range zoo {
		m, err := models.New(name, models.Config{Batch: 2, Image: 32, Classes: 5})
		must(t, err)
		config := host.Config{Memory: 1 << 30, HostMemory: 1 << 30}
		base := offloaded(t, m, config, adam, OffloadNothing)
		want := train(t, base.executor(t, base.StoreAll(), Options{Seed: 7, Limit: 1 << 29}), steps)
		s, err := planner.Lookup("rotor")
		must(t, err)
		static := base.StaticBytes()
		for k, mode := range []Offloading{OffloadOptimizer, OffloadWeights} {
			config.Chaos = uint64(k + 1)
			r := offloaded(t, m, config, adam, mode)
			c := costs(r.Chain())
			small := smallestLimit(t, r.Workload, s)
			if small >= smallestLimit(t, base.Workload, s) || r.StaticBytes() > static*7/10 {
				t.Fatalf("%s, %v offloaded: %d bytes of %d are static, the smallest limit is %d", name, mode, r.StaticBytes(), static, small)
			}
			static = r.StaticBytes()
			if _, err := Plan(context.Background(), base.Workload, c, s, small, strategy.Options{}); !errors.As(err, new(*TooSmallError)) {
				t.Errorf("%s: without offloading a limit of %d bytes gives %v", name, small, err)
			}
			plan, err := Plan(context.Background(), r.Workload, c, s, small, strategy.Options{})
			must(t, err)
			if got := string(plan.Extra[OffloadField]); got != `"`+mode.String()+`"` {
				t.Errorf("%s: the plan says %s is offloaded, want %v", name, got, mode)
			}
			e := r.executor(t, plan.Sequence(), Options{Seed: 7, Limit: small, Audit: true, Sim: Following(c, plan)})
			if d := missing(want, train(t, e, steps)); d != "" {
				t.Errorf("%s, %v offloaded: %s differs", name, mode, d)
			}
			if predicted := r.StaticBytes() + plan.Peak(); e.result.PeakBytes != predicted || e.result.ExtentBytes > small {
				t.Errorf("%s, %v offloaded: peak %d, predicted %d, extent %d of %d", name, mode, e.result.PeakBytes, predicted, e.result.ExtentBytes, small)
			}
		}
	}
}

// smallestLimit returns the smallest arena that a strategy works in.
func smallestLimit(t testing.TB, w *Workload, s pipeline.Strategy) int64 {
	t.Helper()
	var small *TooSmallError
	if _, err := Plan(context.Background(), w, costs(w.Chain()), s, w.StaticBytes()+1, strategy.Options{}); !errors.As(err, &small) {
		t.Fatalf("a limit of %d bytes: %v", w.StaticBytes()+1, err)
	}
	return small.Smallest
}

// Invariant 4: no wait for state may be missing. Without any single one of them the order check fails, or an op could start
// before what it needs is there.
func TestEveryWaitForStateIsNeeded(t *testing.T) {
	t.Parallel()
	for _, mode := range []Offloading{OffloadOptimizer, OffloadWeights} {
		r := offloaded(t, testModel(t), host.Config{}, adam, mode)
		e := r.executor(t, r.checkpointAll(), Options{Seed: 7})
		missed := 0
		for _, s := range []*script{&e.script, &e.evalScript} {
			for i, c := range s.list {
				if c.Wait < e.pass.arrived[0] || c.Wait > e.pass.returned {
					continue
				}
				s.list[i].Wait = none
				if s.check() == nil {
					t.Errorf("%v offloaded: a wait of stream %d (command %d of %d, event %d) orders nothing", mode, c.Stream, i, len(s.list), c.Wait)
				}
				s.list[i].Wait = c.Wait
				missed++
			}
		}
		t.Logf("%v offloaded: %d waits", mode, missed)
		if missed < 20 {
			t.Errorf("%v offloaded: only %d waits", mode, missed)
		}
	}
}

// Invariant 1.
func TestStepsWithOffloadedStateAllocateNothing(t *testing.T) {
	// Serial: it counts allocations.
	for _, mode := range []Offloading{OffloadOptimizer, OffloadWeights} {
		r := offloaded(t, testModel(t), host.Config{}, adam, mode)
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
			t.Errorf("%v offloaded: %v heap allocations a step, want 0", mode, allocs)
		}
	}
}

// The page-locked memory of the state counts, and too little of it is refused with what would do.
func TestHostLimitCountsOffloadedState(t *testing.T) {
	t.Parallel()
	r := offloaded(t, testModel(t), host.Config{}, adam, OffloadWeights)
	opt := Options{Limit: testMemory, HostLimit: 1}
	var refused *HostLimitError
	if _, err := New(r.Workload, r.on, r.StoreAll(), opt); !errors.As(err, &refused) {
		t.Fatalf("a limit of one byte: %v", err)
	}
	var weights int64
	for _, p := range r.Layers {
		weights += kernels.Align(p.GradBytes)
	}
	if refused.State != 3*weights || refused.Needed <= refused.State || !strings.Contains(refused.Error(), units.Bytes(3*weights)) {
		t.Errorf("%v, want %d bytes of state: the weights and two moments", refused, 3*weights)
	}
	opt.HostLimit = refused.Needed - 1
	if _, err := New(r.Workload, r.on, r.StoreAll(), opt); !errors.As(err, &refused) {
		t.Errorf("one byte too few: %v", err)
	}
	opt.HostLimit = refused.Needed
	e := r.executor(t, r.StoreAll(), opt)
	fillBatch(t, e, 1)
	if res, err := e.Step(0, 0.1); err != nil || res.HostBytes != refused.Needed {
		t.Errorf("at the limit: %v, %+v", err, res)
	}
}

func TestOffloadingRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	w, err := Compile(r.Model, r.on.Library, kernels.SGD{})
	must(t, err)
	if _, err := w.Offload(OffloadOptimizer); !errors.Is(err, ErrNoState) {
		t.Errorf("an optimizer without state: %v", err)
	}
	r = offloaded(t, testModel(t), host.Config{}, momentum, OffloadWeights)
	if _, err := New(r.Workload, r.on, r.StoreAll(), Options{Limit: testMemory, MaxNorm: 1}); !errors.Is(err, ErrAtOnce) {
		t.Errorf("clipping: %v", err)
	}
	for _, o := range []Offloading{OffloadNothing, OffloadOptimizer, OffloadWeights} {
		if got, err := ParseOffloading(o.String()); got != o || err != nil {
			t.Errorf("%v is read as %v, %v", o, got, err)
		}
	}
	if _, err := ParseOffloading("all"); err == nil || !strings.Contains(err.Error(), "none, optimizer, weights") {
		t.Errorf("all: %v", err)
	}
}

// Clipping needs all gradients before the first update: the state alone can be away.
func TestClippingWithOffloadedOptimizer(t *testing.T) {
	t.Parallel()
	var got [2]outcome
	for i, mode := range []Offloading{OffloadNothing, OffloadOptimizer} {
		r := offloaded(t, testModel(t), host.Config{}, adam, mode)
		e := r.executor(t, r.StoreAll(), Options{Seed: 7, MaxNorm: 0.01})
		got[i] = train(t, e, 2)
		if e.result.Norm < 0.01 {
			t.Fatalf("norm %v: nothing was clipped", e.result.Norm)
		}
	}
	if d := missing(got[0], got[1]); d != "" {
		t.Errorf("%s differs", d)
	}
}

// A batch that is not finite leaves no trace in weights and state, wherever they live, and its layer is found.
func TestABadBatchWithOffloadedState(t *testing.T) {
	t.Parallel()
	for _, mode := range []Offloading{OffloadOptimizer, OffloadWeights} {
		r := offloaded(t, testModel(t), host.Config{}, adam, mode)
		e := r.executor(t, r.checkpointAll(), Options{Seed: 7})
		before := train(t, e, 2)
		images, err := e.Images()
		must(t, err)
		images[17] = float32(math.NaN())
		res, err := e.Step(2, 0.1)
		must(t, err)
		if !res.Skipped {
			t.Errorf("%v offloaded: norm %v, loss %v: the step was not skipped", mode, res.Norm, res.Loss)
		}
		for i, x := range e.Tensors() {
			v := make([]float32, x.Desc.Elements())
			must(t, e.Read(x, v))
			if x.Role != "buffer" && x.Role != "gradient" && !bytes.Equal(asBytes(v), before.bits[i]) {
				t.Errorf("%v offloaded: %s of %s changed", mode, x.Role, x.Name)
			}
		}
		if layer, err := e.FirstNotFinite(); err != nil || layer != "stem" {
			t.Errorf("%v offloaded: the first layer that is not finite is %q, %v", mode, layer, err)
		}
	}
}

// The first layer that is not finite is found by its own weights, from wherever they live.
func TestABadWeightIsFoundWhereItLives(t *testing.T) {
	t.Parallel()
	for _, mode := range []Offloading{OffloadNothing, OffloadWeights} {
		e := offloaded(t, testModel(t), host.Config{}, momentum, mode).storeAll(t)
		train(t, e, 1)
		for _, x := range e.Tensors() {
			if x.Role == "weight" && x.Layer == 5 {
				v := make([]float32, x.Desc.Elements())
				v[0] = float32(math.NaN())
				must(t, e.Write(x, v))
			}
		}
		if layer, err := e.FirstNotFinite(); err != nil || layer != "block4" {
			t.Errorf("%v offloaded: %q, %v", mode, layer, err)
		}
	}
}

// Evaluation brings the weights too.
func TestPredictWithOffloadedWeights(t *testing.T) {
	t.Parallel()
	var logits [2][]float32
	var norms [2]float64
	for i, mode := range []Offloading{OffloadNothing, OffloadWeights} {
		r := offloaded(t, testModel(t), host.Config{Memory: testMemory, HostMemory: testMemory, Chaos: uint64(i)}, momentum, mode)
		e := r.storeAll(t)
		train(t, e, 2)
		norms[i] = e.result.Norm
		logits[i] = make([]float32, 4*5)
		for range 2 {
			must(t, e.Predict(logits[i]))
		}
		train(t, e, 1)
	}
	if !bytes.Equal(asBytes(logits[0]), asBytes(logits[1])) {
		t.Errorf("logits %v, with offloaded weights %v", logits[0], logits[1])
	}
	if math.Abs(norms[0]-norms[1]) > 1e-6*norms[0] {
		t.Errorf("norm %v, with offloaded weights %v", norms[0], norms[1])
	}
}

// What a step is said to move is what its script copies.
func TestStateCostCountsTheCopies(t *testing.T) {
	t.Parallel()
	for _, opt := range []kernels.Update{momentum, adam} {
		for _, mode := range []Offloading{OffloadOptimizer, OffloadWeights} {
			r := offloaded(t, testModel(t), host.Config{}, opt, mode)
			e := r.executor(t, r.checkpointAll(), Options{Seed: 7})
			var moved [allStreams]int64
			for _, c := range e.script.list {
				moved[c.Stream] += c.dst.Bytes
			}
			c := costs(r.Chain())
			c.Bandwidth = 1000
			plan, err := pipeline.PlanSequence(c, "by hand", r.checkpointAll(), schedule.Limits{Memory: schedule.NoLimit})
			must(t, err)
			x := r.StateCost(c, plan)
			if x.ToDeviceBytes != moved[streamStateIn] || x.ToHostBytes != moved[streamStateOut] || x.ToHostBytes == 0 {
				t.Errorf("%v, %s: %+v, copied are %d and %d bytes", mode, opt.Kind(), x, moved[streamStateIn], moved[streamStateOut])
			}
			if want := float64(x.ToDeviceBytes+x.ToHostBytes) / 1000; math.Abs(x.TransferS-want) > 1e-9*want || x.MostS != plan.Predicted.Makespan+x.TransferS {
				t.Errorf("%v, %s: %+v, want %v s of transfers", mode, opt.Kind(), x, want)
			}
			if least := float64(x.ToHostBytes) / 1000; !(x.LeastS >= least && x.LeastS >= plan.Predicted.Makespan && x.LeastS <= x.MostS) {
				t.Errorf("%v, %s: %+v", mode, opt.Kind(), x)
			}
		}
	}
	r := newRig(t, testModel(t), host.Config{}, nil)
	if x := r.StateCost(r.Chain(), pipeline.NewSequence("", "", nil, schedule.Limits{})); x != nil {
		t.Errorf("nothing is offloaded: %+v", x)
	}
}

// Layers that share weights, twins or tied: their optimizer's state can be away, their weights cannot.
func TestOffloadedStateOfSharedWeights(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"siamese", "gpt2-2-16-tied"} {
		m, err := models.New(name, models.Config{Batch: 2, Image: 16, Classes: 2})
		must(t, err)
		t.Run(name, func(t *testing.T) { offloadedStateOfShared(t, m) })
	}
}

func offloadedStateOfShared(t *testing.T, m *models.Model) {
	var got [2]outcome
	for i, mode := range []Offloading{OffloadNothing, OffloadOptimizer} {
		r := offloaded(t, m, host.Config{}, adam, mode)
		got[i] = train(t, r.storeAll(t), 2)
		var shared int64 // which have no parameters of their own
		for _, q := range m.Params() {
			shared += int64(count(q.Trained)) * q.Desc.Storage()
		}
		if mode == OffloadOptimizer && r.HostStateBytes() != 2*shared {
			t.Errorf("%d bytes of host memory for two moments of %d bytes", r.HostStateBytes(), shared)
		}
	}
	if d := missing(got[0], got[1]); d != "" {
		t.Errorf("%s differs", d)
	}
	r := newRig(t, m, host.Config{}, nil)
	if _, err := r.Offload(OffloadWeights); !errors.Is(err, ErrAtOnce) {
		t.Errorf("weights of twins: %v", err)
	}
}

// Whatever the sequence, each op finds its layer's weights in its slot, where they could arrive while another layer computed.
func TestVisitsBringEveryLayerInTime(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(51, 52))
	arrivals, ops := 0, 0
	for range 300 {
		need := make([]int, 1+rnd.IntN(40))
		for p := range need {
			need[p] = rnd.IntN(5)
		}
		v := newWeightFetches(need)
		var holds [weightSlots]int
		put := func(list []weightFetch) {
			for _, a := range list {
				holds[a.slot] = a.layer
				arrivals++
			}
		}
		put(v.first)
		before := none
		for p, layer := range need {
			if layer == 0 {
				if v.slot[p] != none || v.wait[p] {
					t.Fatalf("%v: op %d needs no weights", need, p)
				}
				continue
			}
			if holds[v.slot[p]] != layer {
				t.Fatalf("%v: op %d finds layer %d in its slot", need, p, holds[v.slot[p]])
			}
			if v.wait[p] && v.slot[p] == before {
				t.Fatalf("%v: the weights of op %d cannot arrive while the op before it computes", need, p)
			}
			before = v.slot[p]
			ops++
			put(v.then[p])
		}
	}
	if ops < 1000 || arrivals > ops || arrivals < ops/3 {
		t.Errorf("%d arrivals for %d ops", arrivals, ops)
	}
}
