package pipeline

import (
	"errors"

	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// norms remembers what every BatchNorm of a run on CPUs was given in the first forwards of its minibatches.
type norms struct {
	mutex sync.Mutex
	given map[place][][]float32 // by the device and the span of its weight
}

// normLibrary is a library of a device that tells norms.
type normLibrary struct {
	kernels.Library
	of  *norms
	dev interface {
		Bytes(runtime.Span) ([]byte, error)
	}
	driver *driver
}

func (l *normLibrary) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	launch, err := l.Library.Prepare(c, o)
	if _, norm := c.Op.(kernels.BatchNorm); err != nil || !norm || !c.UpdateStats || c.Pass != kernels.Forward {
		return launch, err
	}
	x := o.X[0]
	x.Bytes = c.In[0].Bytes()
	return &normLaunch{launch.(host.Launch), l, x, o.Params[0]}, nil
}

type normLaunch struct {
	host.Launch
	of        *normLibrary
	x, weight runtime.Span
}

func (l *normLaunch) Run() error {
	b, err := l.of.dev.Bytes(l.x)
	if err != nil {
		return err
	}
	values := make([]float32, len(b)/4)
	copy(asBytes(values), b)
	n := l.of.of
	n.mutex.Lock()
	at := place{driver: l.of.driver, span: l.weight}
	n.given[at] = append(n.given[at], values)
	n.mutex.Unlock()
	return l.Launch.Run()
}

// watched is a run of a plan whose BatchNorms are watched.
func watched(t *testing.T, w *Workload, c Costs, plan *pipeline.Plan, n int) (*Executor, *norms) {
	t.Helper()
	seen, on := &norms{given: map[place][][]float32{}}, targets(t, c.Platform.Devices, host.Config{})
	libraries := make([]*normLibrary, len(on))
	for i := range on {
		libraries[i] = &normLibrary{Library: on[i].Library, of: seen, dev: on[i].Device.(interface {
			Bytes(runtime.Span) ([]byte, error)
		})}
		on[i].Library = libraries[i]
	}
	e, err := New(w, on, c, plan, Options{Feed: feedOf(w.Model), Seed: 7, Rate: rate, DeferredBatchNorm: true})
	must(t, err)
	for _, d := range e.drivers {
		libraries[d.Number].driver = d
	}
	must(t, e.Run(t.Context(), n))
	return e, seen
}

// running returns the running statistics of a channel, in float64 arithmetic. In every step it takes all values that a BatchNorm was given,
// at once.
func running(given [][]float32, microbatches, channel, channels int) (mean, variance float64) {
	variance = 1
	for step := range slices.Chunk(given, microbatches) {
		var n, sum, squares float64
		for _, values := range step {
			for i := channel; i < len(values); i += channels {
				sum += float64(values[i])
				n++
			}
		}
		for _, values := range step {
			for i := channel; i < len(values); i += channels {
				d := float64(values[i]) - sum/n
				squares += d * d
			}
		}
		mean, variance = 0.9*mean+0.1*sum/n, 0.9*variance+0.1*squares/(n-1)
	}
	return mean, variance
}

// After each step the running statistics are those of all samples of all microbatches.
func TestDeferredStatisticsAreThoseOfTheMinibatch(t *testing.T) {
	t.Parallel()
	const microbatches, steps = 4, 3
	m := testModel(t)
	w := workload(t, m)
	for strategy, devices := range map[string]int{"1f1b-flush": 1, "gpipe": 3, "interleaved": 2} {
		c := costs(w, devices, 1)
		e, seen := watched(t, w, c, planFor(t, strategy, c, pipeline.Options{Microbatches: microbatches}), microbatches*steps)
		channels := 0
		for _, x := range e.tensors.all {
			norm, isMean := strings.CutSuffix(x.Name, "running_mean")
			if !isMean {
				continue
			}
			at := e.tensors.all[e.tensors.byName[name{"weight", norm + "weight"}]].at[0]
			given := seen.given[at]
			if len(given) != microbatches*steps {
				t.Fatalf("%s: %s was given %d microbatches", strategy, norm, len(given))
			}
			means, variances := make([]float32, x.Desc.Elements()), make([]float32, x.Desc.Elements())
			must(t, e.Read(x.Tensor, means))
			x.Name = norm + "running_var"
			must(t, e.Read(x.Tensor, variances))
			for k := range means {
				mean, variance := running(given, microbatches, k, len(means))
				if math.Abs(float64(means[k])-mean) > 1e-6 || math.Abs(float64(variances[k])-variance) > 2e-6*variance {
					t.Errorf("%s: %s channel %d: %v and %v, want %v and %v", strategy, norm, k, means[k], variances[k], mean, variance)
				}
				channels++
			}
		}
		if channels < 100 {
			t.Errorf("%s: %d channels", strategy, channels)
		}
	}
}

// deferredRun is a run with deferred statistics.
func deferredRun(t *testing.T, w *Workload, c Costs, plan *pipeline.Plan, n int, config host.Config) (*Executor, *pipelinetest.Outcome) {
	t.Helper()
	e, out := trainedWith(t, w, c, plan, n, config, Options{DeferredBatchNorm: true})
	out.Tensors = tensors(t, e)
	return e, out
}

// Deferred statistics do not know the number of devices, and a recomputed forward does not count.
func TestDeferredStatisticsOnAnyNumberOfDevices(t *testing.T) {
	t.Parallel()
	const microbatches = 4
	w := workload(t, testModel(t))
	var want *pipelinetest.Outcome
	for _, devices := range []int{1, 2, 4} {
		c := costs(w, devices, 1)
		plan := planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: microbatches})
		_, out := deferredRun(t, w, c, plan, 2*microbatches, host.Config{})
		if want == nil {
			want = out
			_, each := trained(t, w, c, plan, 2*microbatches, host.Config{})
			if slices.Compare(each.Losses, out.Losses) != 0 {
				t.Error("where statistics go changes the losses")
			}
		}
		same(t, want, out)
		own := *plan
		own.Stages = slices.Clone(plan.Stages)
		for s := range own.Stages {
			own.Stages[s].Ops = again(own.Stages[s], rand.New(rand.NewPCG(uint64(devices+s), 2)))
		}
		_, out = deferredRun(t, w, c, &own, 2*microbatches, host.Config{})
		same(t, want, out)
	}
}

// buffers returns the running statistics of an outcome.
func buffers(o *pipelinetest.Outcome) []pipelinetest.Tensor {
	return slices.DeleteFunc(slices.Clone(o.Tensors), func(x pipelinetest.Tensor) bool { return x.Role != "buffer" })
}

// The statistics of a step do not depend on the order or the devices of its microbatches. With chimera, each of the two devices of a stage
// sees half of the microbatches, and both know the statistics of all.
func TestDeferredStatisticsUnderEverySchedule(t *testing.T) {
	t.Parallel()
	const microbatches = 4
	w := workload(t, testModel(t))
	single := costs(w, 1, 1)
	_, alone := deferredRun(t, w, single, planFor(t, "1f1b-flush", single, pipeline.Options{Microbatches: microbatches}), microbatches, host.Config{})
	want := buffers(alone)
	for i, strategy := range []string{"gpipe", "interleaved", "looped-bfs", "chimera", "zb-h1", "zb-v", "v-half"} {
		t.Run(strategy, func(t *testing.T) {
			c := costs(w, 2, 1)
			e, out := deferredRun(t, w, c, planFor(t, strategy, c, pipeline.Options{Microbatches: microbatches}), microbatches, host.Config{Chaos: uint64(i + 1)})
			if d := pipelinetest.FirstDifference(want, buffers(out)); d != "" {
				t.Error(d)
			}
			if strategy != "chimera" {
				return
			}
			for _, x := range e.tensors.all {
				last := &Executor{compilation: e.compilation, tensors: tensorTable{all: []placed{{x.Tensor, x.param, x.at[len(x.at)-1:], nil}}, byName: map[name]int{{x.Role, x.Name}: 0}}}
				values := make([]float32, x.Desc.Elements())
				must(t, last.Read(x.Tensor, values))
				first := out.Tensor(x.Role, x.Name)
				if len(x.at) != 2 || slices.Compare(first, values) != 0 {
					t.Errorf("%s of %s differs between %d replicas", x.Role, x.Name, len(x.at))
				}
			}
		})
	}
}

// The rows of a minibatch's microbatches are counted as memory, and only where statistics are deferred.
func TestDeferredStatisticsNeedTheirRows(t *testing.T) {
	t.Parallel()
	const microbatches = 6
	m := testModel(t)
	w := workload(t, m)
	c := costs(w, 3, 2)
	plan := planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: microbatches})
	before, err := Needs(w, c, plan, Options{})
	must(t, err)
	after, err := Needs(w, c, plan, Options{DeferredBatchNorm: true})
	must(t, err)
	for s, st := range plan.Stages {
		var statistics int64
		for _, l := range m.Layers[st.First-1 : st.Last] {
			for _, q := range l.Params() {
				if !q.Trained {
					statistics += kernels.Align(q.Desc.Bytes())
				}
			}
		}
		d := st.Devices[0]
		if more := after[d].Static - before[d].Static; more != microbatches*statistics || statistics == 0 || after[d].Peak-before[d].Peak != more {
			t.Errorf("stage %d: %d bytes more for %d bytes of statistics", s, more, statistics)
		}
	}
}

func TestDeferredStatisticsNeedSteps(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c := costs(w, 2, 1)
	plan := planFor(t, "1f1b*", c, pipeline.Options{Versions: pipeline.Stash})
	if _, err := Needs(w, c, plan, Options{DeferredBatchNorm: true}); !errors.Is(err, order.ErrPlan) {
		t.Errorf("error %v, want ErrPlan", err)
	}
}

// A microbatch whose statistics are not finite leaves the running ones of the channel alone, as a batch alone does.
func TestDeferredStatisticsThatAreNotFinite(t *testing.T) {
	t.Parallel()
	b := models.NewBuilder("first", kernels.F32(2, 4, 4, 3), 5)
	b.Layer("norm", "norm", func(g *models.Graph, x models.Value) models.Value { return g.BN("bn", x) })
	b.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), 5)
	})
	m, err := b.Model()
	must(t, err)
	w := workload(t, m)
	c := costs(w, 1, 1)
	plan := planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: 2})
	e, err := New(w, targets(t, 1, host.Config{}), c, plan, Options{Feed: spoiled{random{classes: 5}}, Rate: rate, DeferredBatchNorm: true})
	must(t, err)
	must(t, e.Run(t.Context(), 2))
	for _, x := range e.Tensors() {
		if x.Role != "buffer" {
			continue
		}
		v := make([]float32, 3)
		must(t, e.Read(x, v))
		stays := float32(0)
		if strings.HasSuffix(x.Name, "var") {
			stays = 1
		}
		if v[0] == stays || v[1] != stays || v[2] == stays {
			t.Errorf("%s is %v: want channel 1, which saw an infinite number, to stay at %v, alone", x.Name, v, stays)
		}
	}
}

// spoiled is a feed whose minibatch 1 has an infinite number in channel 1.
type spoiled struct{ random }

func (s spoiled) Images(m int, dst []float32) error {
	err := s.random.Images(m, dst)
	if m == 1 {
		dst[4] = float32(math.Inf(1))
	}
	return err
}
