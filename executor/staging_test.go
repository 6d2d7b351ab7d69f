package executor

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"plimsoll/executor/internal/hazard"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// testPalette is a palette of three channels.
func testPalette() []float32 {
	p := make([]float32, 3*256)
	for i := range p {
		p[i] = float32((float64(i%256)/255 - 0.4 - 0.1*float64(i/256)) / 0.23)
	}
	return p
}

// withStage is a rig whose batches are staged.
func (r rig) withStage() rig {
	r.Workload = r.Stage(testPalette())
	return r
}

// fillBytes fills the batch whose turn it is with random bytes, or with what the palette makes of the same bytes.
func fillBytes(t testing.TB, e *Executor, seed uint64) {
	t.Helper()
	r, palette := rand.New(rand.NewPCG(seed, 19)), testPalette()
	if e.StagedBytes() > 0 {
		pixels, err := e.Pixels()
		must(t, err)
		for i := range pixels {
			pixels[i] = uint8(r.Uint32())
		}
	} else {
		images, err := e.Images()
		must(t, err)
		for i := range images {
			images[i] = palette[i%3*256+int(uint8(r.Uint32()))]
		}
	}
	labels, err := e.Labels()
	must(t, err)
	for i := range labels {
		labels[i] = int32(r.IntN(e.Model.Classes))
	}
}

// trainBeside trains with each batch made and staged beside the step before, and predicts between steps.
func trainBeside(t testing.TB, e *Executor, steps int) (o outcome) {
	t.Helper()
	logits := make([]float32, 4*5)
	fillBytes(t, e, 0)
	for i := range steps {
		must(t, e.Begin(uint64(i), 0.1))
		e.Swap()
		fillBytes(t, e, uint64(i)+1)
		must(t, e.Stage())
		res, err := e.End()
		must(t, err)
		o.losses = append(o.losses, res.Loss)
		if i%2 == 1 {
			continue // the staged batch is the step's
		}
		e.Swap()
		for k := range 2 {
			fillBytes(t, e, 1000+uint64(i+k))
			must(t, e.Predict(logits))
			o.losses = append(o.losses, float64(logits[0]))
		}
		e.Swap() // back to the batch that was staged, and has to be again
	}
	o.read(t, e)
	return o
}

// Invariants 1 to 3 of batches that are staged: the bits of the values that the palette has, whatever the streams do, with
// branches, transfers and offloaded state; the peak is that of the plan with the staged bytes on top.
// Only this test finds a staged batch that transfers or offloaded state overwrite, or that slow streams bring late.
func TestStagedBatchesChangeNoBit(t *testing.T) {
	t.Parallel()
	const steps = 5
	cases := 0
	for name, make := range map[string]func(testing.TB) *models.Model{"chain": testModel, "branches": crossModal} {
		for _, mode := range []Offloading{OffloadNothing, OffloadOptimizer, OffloadWeights} {
			for _, seqs := range []func(rig) schedule.Sequence{
				func(r rig) schedule.Sequence { return r.StoreAll() },
				func(r rig) schedule.Sequence { return r.checkpointAll() },
				func(r rig) schedule.Sequence {
					if name == "branches" {
						return nil
					}
					return withTransfer(r.StoreAll())
				},
			} {
				plain := offloaded(t, make(t), host.Config{}, adam, mode)
				seq := seqs(plain)
				if seq == nil || testing.Short() && name == "branches" && mode != OffloadWeights {
					continue
				}
				opt := Options{Seed: 7, Audit: true, Sim: Sim{Limits: schedule.Limits{Link: schedule.Link{Bandwidth: 1e9}}}}
				before := plain.executor(t, seq, opt)
				want := trainBeside(t, before, steps)
				for _, config := range []host.Config{{}, {Memory: testMemory, HostMemory: testMemory, Chaos: uint64(cases + 1)}} {
					r := offloaded(t, make(t), config, adam, mode).withStage()
					opt.Audit = config.Chaos == 0
					e := r.executor(t, seq, opt)
					if d := firstDifference(want, trainBeside(t, e, steps)); d != "" {
						t.Errorf("%s, %v offloaded, %v, %+v: %s differs", name, mode, seq, config, d)
					}
					if extra := r.StaticBytes() - plain.StaticBytes(); e.result.PeakBytes-before.result.PeakBytes != extra || extra != r.StagedBytes() || extra < 4*8*8*3 {
						t.Errorf("%s: peak %d, without staging %d, %d staged", name, e.result.PeakBytes, before.result.PeakBytes, r.StagedBytes())
					}
					cases++
				}
			}
		}
	}
	if cases != 2*3*5 && !testing.Short() || cases < 2*3*3 {
		t.Errorf("ran %d cases", cases)
	}
}

// gated holds the update of a step until the gate opens.
type gated struct {
	kernels.Library
	gate *chan struct{}
}

type gatedLaunch struct {
	runtime.Launch
	gate *chan struct{}
}

func (g gated) PrepareUpdate(u kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	l, err := g.Library.PrepareUpdate(u, all...)
	return gatedLaunch{l, g.gate}, err
}

func (g gatedLaunch) Run() error {
	<-*g.gate
	return g.Launch.(interface{ Run() error }).Run()
}

// The next batch is on the device while the step before it still computes: it waits for nothing that the step does behind taking
// its own batch.
func TestTheNextBatchIsOnTheDeviceBesideAStep(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	r := newRig(t, plainModel(t), host.Config{}, func(l kernels.Library) kernels.Library { return gated{l, &gate} }).withStage()
	e := r.executor(t, r.StoreAll(), Options{})
	fillBytes(t, e, 1)
	for step := range 3 {
		gate = make(chan struct{})
		must(t, e.Begin(uint64(step), 0.1))
		e.Swap()
		fillBytes(t, e, uint64(step)+2)
		must(t, e.Stage())
		must(t, e.streams[streamBatch].Synchronize()) // and the update waits for the gate
		must(t, e.events[eventStaged].Synchronize())
		pixels, err := e.Pixels()
		must(t, err)
		there := make([]byte, len(pixels))
		must(t, r.dev.Peek(e.static.staged.images[0], there))
		if !slices.Equal(there, pixels) {
			t.Errorf("step %d: another batch is staged", step)
		}
		close(gate)
		_, err = e.End()
		must(t, err)
	}
}

// Without any one of the waits of staging the order check fails.
func TestEveryWaitOfStagingIsNeeded(t *testing.T) {
	t.Parallel()
	r := newRig(t, crossModal(t), host.Config{}, nil).withStage()
	e := r.executor(t, r.checkpointAll(), Options{})
	missed := 0
	for _, list := range [][]command{e.stages[0], e.stages[1], e.heads[0], e.heads[1]} {
		for i, c := range list {
			if c.Wait == none {
				continue
			}
			list[i].Wait = none
			var found *hazard.Error
			if err := ordered(e.rounds(), e.script.events); !errors.As(err, &found) {
				t.Errorf("command %d, a wait of stream %d for event %d, orders nothing", i, c.Stream, c.Wait)
			}
			list[i].Wait = c.Wait
			missed++
		}
	}
	if missed != 4 {
		t.Errorf("%d waits", missed)
	}
}

// Invariant 1.
func TestStepsOnStagedBatchesAllocateNothing(t *testing.T) {
	// Serial: it counts allocations.
	r := newRig(t, testModel(t), host.Config{}, nil).withStage()
	e := r.executor(t, r.StoreAll(), Options{Seed: 7, Timed: true})
	fillBytes(t, e, 1)
	step := uint64(0)
	allocs := testing.AllocsPerRun(20, func() {
		must(t, e.Begin(step, 0.1))
		e.Swap()
		must(t, e.Stage())
		_, err := e.End()
		must(t, err)
		step++
	})
	if allocs != 0 {
		t.Errorf("%v heap allocations a step, want 0", allocs)
	}
}

// A copy of a batch that fails fails the step that it is for, and leaves the one beside it as it is.
func TestABatchThatCannotBeStagedFailsItsStep(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	broken := errors.New("broken link")
	config := host.Config{Memory: testMemory, HostMemory: testMemory, Fault: func(op string) error {
		if op == "copy" && armed.Load() {
			return broken
		}
		return nil
	}}
	gate := make(chan struct{})
	r := newRig(t, plainModel(t), config, func(l kernels.Library) kernels.Library { return gated{l, &gate} }).withStage()
	e := r.executor(t, r.StoreAll(), Options{})
	fillBytes(t, e, 1)
	must(t, e.Begin(0, 0.1))
	must(t, e.events[eventSwept].Synchronize()) // no copy of the step is left but that of its result, which the gate holds
	armed.Store(true)
	e.Swap()
	must(t, e.Stage())
	if err := e.streams[streamBatch].Synchronize(); !errors.Is(err, broken) {
		t.Fatalf("%v", err)
	}
	armed.Store(false)
	close(gate)
	_, err := e.End()
	must(t, err)
	if _, err := e.Step(1, 0.1); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "step 1: ") {
		t.Errorf("%v", err)
	}
	if _, err := e.Step(2, 0.1); !errors.Is(err, ErrStopped) {
		t.Errorf("%v", err)
	}
}

// What is not finite is found in the batch of the step, though the next one is staged; the step after takes that one.
func TestWhatIsNotFiniteIsFoundBesideAStagedBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	palette := testPalette()
	palette[255] = float32(math.Inf(1))
	r.Workload = r.Stage(palette)
	e := r.executor(t, r.StoreAll(), Options{Seed: 7})
	put := func(v uint8) {
		pixels, err := e.Pixels()
		must(t, err)
		for i := range pixels {
			pixels[i] = v
		}
	}
	put(255)
	must(t, e.Begin(0, 0.1))
	e.Swap()
	put(3)
	must(t, e.Stage())
	res, err := e.End()
	must(t, err)
	if !res.Skipped {
		t.Errorf("%+v", res)
	}
	e.Swap()
	if layer, err := e.FirstNotFinite(); err != nil || layer != "stem" {
		t.Errorf("%q, %v", layer, err)
	}
	e.Swap()
	if res, err := e.Step(1, 0.1); err != nil || res.Skipped {
		t.Errorf("%+v, %v", res, err)
	}
}

// The staged batch is among what the arena holds at the peak.
func TestTheStagedBatchIsHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil).withStage()
	_, all, err := r.AtPeak(r.StoreAll(), schedule.NoLimit, Sim{})
	must(t, err)
	sum, staged := int64(0), int64(0)
	for _, h := range all {
		sum += h.Bytes
		if h.Role == NextBatch {
			staged = h.Bytes
		}
	}
	peak, err := r.PeakBytes(r.StoreAll())
	must(t, err)
	if staged != r.StagedBytes() || staged == 0 || sum != peak {
		t.Errorf("%d of %d bytes are staged, want %d of %d", staged, sum, r.StagedBytes(), peak)
	}
}

func TestPalettesOfOtherModelsAreBugs(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	defer func() {
		if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "BUG: a palette of 256 values") {
			t.Error(text)
		}
	}()
	r.Stage(make([]float32, 256))
}
