package pipelinetest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/pipeline"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/runtime/host"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// target opens a CPU device of its own.
func target(t testing.TB) executor.Target {
	t.Helper()
	dev, err := host.New(host.Config{Memory: 256 << 20, HostMemory: 256 << 20})
	must(t, err)
	t.Cleanup(func() { must(t, dev.Close()) })
	lib, err := cpu.New(dev, cpu.Options{})
	must(t, err)
	return executor.Target{Device: dev, Library: lib}
}

func model(t testing.TB, name string, image int) *models.Model {
	t.Helper()
	m, err := models.New(name, models.Config{Batch: 3, Image: image, Classes: 5})
	must(t, err)
	return m
}

// batch draws a minibatch.
func batch(classes int) func(int, []float32, []int32) {
	return func(minibatch int, images []float32, labels []int32) {
		r := rand.New(rand.NewPCG(uint64(minibatch), 5))
		for i := range images {
			images[i] = r.Float32()*2 - 1
		}
		for i := range labels {
			labels[i] = int32(r.IntN(classes))
		}
	}
}

// rate falls, so that the number of an update matters.
func rate(update int) float32 { return 0.1 / float32(1+update) }

// even divides the layers into n stages of about the same number.
func even(m *models.Model, n int) (stages []Stage) {
	layers, next := len(m.Layers), 1
	for i := range n {
		last := (i + 1) * layers / n
		stages = append(stages, Stage{next, last})
		next = last + 1
	}
	return stages
}

var momentum = kernels.SGD{Momentum: 0.9, WeightDecay: 1e-3}

func config(t testing.TB, m *models.Model, stages int) Config {
	on := target(t)
	return Config{
		Model: m, Device: on.Device, Library: on.Library, Optimizer: momentum, Seed: 7, Stages: even(m, stages),
		LR: func(_, update int) float32 { return rate(update) }, Batch: batch(m.Classes),
	}
}

func open(t testing.TB, c Config) *Reference {
	t.Helper()
	r, err := New(c)
	must(t, err)
	return r
}

func (r *Reference) must(t testing.TB, p Program, minibatches int) *Outcome {
	t.Helper()
	out, err := r.Run(p, minibatches)
	must(t, err)
	return out
}

// single trains with the executor of tables, on one device.
func single(t testing.TB, m *models.Model, opt kernels.Update, steps int) *Outcome {
	t.Helper()
	on, out, b := target(t), &Outcome{}, pipeline.NewBatch(m)
	w, err := executor.Compile(m, on.Library, opt)
	must(t, err)
	e, err := pipeline.NewAlone(w, on, w.StoreAll(), pipeline.Options{Feed: b, Seed: 7})
	must(t, err)
	for step := range steps {
		batch(m.Classes)(step, b.Input, b.Target)
		res, err := e.Step(rate(step))
		must(t, err)
		out.Losses, out.Correct = append(out.Losses, res.Loss), append(out.Correct, res.Correct)
	}
	for _, x := range e.Tensors() {
		values := make([]float32, x.Desc.Elements())
		must(t, e.Read(x, values))
		out.Tensors = append(out.Tensors, Tensor{x.Role, x.Name, values})
	}
	return out
}

// Without a delay every program is training on one device: the bits of the executor of tables, in any number of stages.
func TestWithoutDelayItIsTrainingOnOneDevice(t *testing.T) {
	t.Parallel()
	const steps = 4
	zoo := []struct {
		name   string
		image  int
		opt    kernels.Update
		stages []int
	}{
		{"tiny", 16, momentum, []int{1, 2, 3, 6}},
		{"tiny", 16, kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 1e-2}, []int{3}},
		{"mlp", 8, kernels.SGD{Momentum: 0.5, Dampening: 0.5}, []int{2}},
		{"mlp", 8, kernels.Muon{Momentum: 0.9, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 1e-2}, []int{2}},
		{"resnet20", 16, momentum, []int{4}},
		{"densenet121", 32, kernels.SGD{}, []int{3}},
	}
	if testing.Short() {
		zoo = zoo[:4]
	}
	compared := map[string]int{}
	for _, x := range zoo {
		m := model(t, x.name, x.image)
		want := single(t, m, x.opt, steps)
		for _, tensor := range want.Tensors {
			compared[tensor.Role]++
		}
		for _, n := range x.stages {
			c := config(t, m, n)
			c.Optimizer = x.opt
			r, now := open(t, c), make([]int, n)
			for _, p := range []Program{Flush(1), Stashing(now), VerticalSync(now), DoubleBuffered(1, now), Latest(now)} {
				got := r.must(t, p, steps)
				if d := want.FirstDifference(got); d != "" || !slices.Equal(want.Correct, got.Correct) {
					t.Errorf("%s in %d stages, %s: %s; %v are correct, want %v", x.name, n, p.Name, d, got.Correct, want.Correct)
				}
				if x.name == "densenet121" {
					break // one is enough of what takes long
				}
			}
		}
	}
	for _, role := range []string{"weight", "buffer", "state0", "state1"} {
		if compared[role] < 10 {
			t.Errorf("only %d tensors are a %s", compared[role], role)
		}
	}
}

// Every single version of every program matters, in the forward as in the backward: another one in one place changes bits.
func TestAnotherVersionChangesBits(t *testing.T) {
	t.Parallel()
	const stages, minibatches = 3, 4
	r := open(t, config(t, model(t, "tiny", 8), stages))
	delays, changed, least := Depths(stages), 0, 120
	programs := []Program{Latest(delays), Stashing(delays), VerticalSync(delays), Flush(2), DoubleBuffered(2, []int{1, 1, 1})}
	if testing.Short() {
		programs, least = programs[:1], 36
	}
	for _, p := range programs {
		want := r.must(t, p, minibatches)
		for s := range stages {
			for k := range minibatches {
				for i, wrong := range p.others(s, k) {
					if d := want.FirstDifference(r.must(t, wrong, minibatches)); d == "" {
						t.Errorf("%s: minibatch %d has another version in stage %d (%d), and nobody notices", p.Name, k, s, i)
					}
					changed++
				}
			}
		}
	}
	if changed < least {
		t.Errorf("only %d versions were changed, want at least %d", changed, least)
	}
}

// others returns the program with every other version that one minibatch could use in one stage, forward or backward.
func (p Program) others(stage, minibatch int) (all []Program) {
	for v := range minibatch/p.Group + 1 {
		with := func(right Versions) Versions {
			return func(s, m int) int {
				if s == stage && m == minibatch {
					return v
				}
				return right(s, m)
			}
		}
		if forward := p; v != p.Forward(stage, minibatch) {
			forward.Forward = with(p.Forward)
			all = append(all, forward)
		}
		if backward := p; v != p.Backward(stage, minibatch) {
			backward.Backward = with(p.Backward)
			all = append(all, backward)
		}
	}
	return all
}

// A backward with other weights than its forward: the activations are those of the forward. Of three minibatches in two
// stages only the second one's backward, in stage 0, sees other weights than with stashing, and no forward sees what that
// changes.
func TestBackwardHasItsOwnVersion(t *testing.T) {
	t.Parallel()
	r := open(t, config(t, model(t, "tiny", 8), 2))
	want, got := r.must(t, Stashing(Depths(2)), 3), r.must(t, Latest(Depths(2)), 3)
	below := map[string]bool{}
	for _, p := range r.stages[0].params() {
		below[p.Name] = true
	}
	equal, different := 0, 0
	for i, x := range want.Tensors {
		switch d := FirstDifference([]Tensor{x}, []Tensor{got.Tensors[i]}); {
		case d == "":
			equal++
		case !below[x.Name] || x.Role == "buffer":
			t.Errorf("%s", d)
		default:
			different++
		}
	}
	got.Tensors = want.Tensors
	if d := want.FirstDifference(got); d != "" {
		t.Errorf("%s", d)
	}
	if equal < 10 || different < 4 {
		t.Errorf("%d tensors are the same and %d are not, want at least 10 and 4", equal, different)
	}
}

// A run starts anew, whatever ran before, and depends on the seed, the rates and the data.
func TestRunsAreIndependent(t *testing.T) {
	t.Parallel()
	m := model(t, "tiny", 8)
	c := config(t, m, 3)
	c.Optimizer = kernels.Adam{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8} // whose states count from the first step
	r := open(t, c)
	p := Stashing(Depths(3))
	want := r.must(t, p, 4)
	r.must(t, DoubleBuffered(2, []int{1, 1, 1}), 6)
	if d := want.FirstDifference(r.must(t, p, 4)); d != "" {
		t.Errorf("again, after another program: %s", d)
	}
	for name, change := range map[string]func(*Config){
		"seed":    func(c *Config) { c.Seed++ },
		"rate":    func(c *Config) { c.LR = func(s, k int) float32 { return rate(k) * float32(1+s) } },
		"data":    func(c *Config) { c.Batch = batch(m.Classes - 1) },
		"nothing": func(*Config) {},
	} {
		on, other := target(t), c
		other.Device, other.Library = on.Device, on.Library
		change(&other)
		if d := want.FirstDifference(open(t, other).must(t, p, 4)); (d == "") != (name == "nothing") {
			t.Errorf("another %s: first difference %q", name, d)
		}
	}
}

// A stage keeps only the versions that a later minibatch uses: as many as PipeDream says, the number of minibatches in flight.
func TestVersionsAreForgotten(t *testing.T) {
	t.Parallel()
	const stages = 3
	c := config(t, model(t, "tiny", 8), stages)
	var r *Reference
	seen := [stages][]int{}
	fill := c.Batch
	c.Batch = func(m int, images []float32, labels []int32) {
		for s := range stages {
			seen[s] = append(seen[s], len(r.stages[s].versions))
		}
		fill(m, images, labels)
	}
	r = open(t, c)
	r.must(t, Stashing(Depths(stages)), 7)
	// The last minibatch leaves the newest version but one unused.
	for s, want := range [stages][]int{{1, 2, 3, 3, 3, 3, 2}, {1, 2, 2, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1}} {
		if !slices.Equal(seen[s], want) {
			t.Errorf("stage %d has %v versions, minibatch by minibatch, want %v", s, seen[s], want)
		}
		if n := len(r.stages[s].versions); n != 1 {
			t.Errorf("stage %d keeps %d versions at the end", s, n)
		}
	}
}

// Dropout of a program that flushes counts steps and microbatches, that of others minibatches.
func TestDropoutFollowsTheProgram(t *testing.T) {
	t.Parallel()
	flush, other := Flush(2), DoubleBuffered(2, []int{1, 1})
	for m, want := range [][2]uint64{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
		if step, microbatch := flush.key(m); [2]uint64{step, microbatch} != want {
			t.Errorf("microbatch %d of a run has the key %d, %d, want %v", m, step, microbatch, want)
		}
		if step, microbatch := other.key(m); step != uint64(m) || microbatch != 0 {
			t.Errorf("minibatch %d has the key %d, %d", m, step, microbatch)
		}
	}
	for m, random := range map[*models.Model]bool{model(t, "mlp", 8): true, toyModel(t): false} {
		c := config(t, m, 2)
		c.LR = func(int, int) float32 { return 0 }
		c.Batch = func(_ int, images []float32, labels []int32) { batch(m.Classes)(0, images, labels) }
		r := open(t, c)
		for _, p := range []Program{flush, other} {
			seen := map[float64]bool{}
			for _, loss := range r.must(t, p, 4).Losses {
				seen[loss] = true
			}
			if want := map[bool]int{true: 4, false: 1}[random]; len(seen) != want {
				t.Errorf("%s, %s: %d losses of the same minibatch four times, want %d", m.Name, p.Name, len(seen), want)
			}
		}
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	t.Parallel()
	m := model(t, "tiny", 8) // six layers with the loss
	good := config(t, m, 2)
	pair, err := models.New("siamese", models.Config{Batch: 2, Image: 32, Classes: 2})
	must(t, err)
	for want, change := range map[string]func(*Config){
		"must all be given": func(c *Config) { c.LR = nil },
		"has branches":      func(c *Config) { c.Model = pair },
		"stage 0 has layers 2 to 6, want it to begin with layer 1": func(c *Config) { c.Stages = []Stage{{2, 6}} },
		"stage 1 has layers 4 to 6, want it to begin with layer 3": func(c *Config) { c.Stages = []Stage{{1, 2}, {4, 6}} },
		"stage 1 has layers 3 to 2":                                func(c *Config) { c.Stages = []Stage{{1, 2}, {3, 2}} },
		"end with layer 5, want the loss, layer 6":                 func(c *Config) { c.Stages = []Stage{{1, 5}} },
		"end with layer 0":                                         func(c *Config) { c.Stages = nil },
		"end with layer 9":                                         func(c *Config) { c.Stages = []Stage{{1, 9}} },
	} {
		c := good
		change(&c)
		if _, err := New(c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	open(t, good) // none of them has taken the device
}

func TestBadProgramsAreRefused(t *testing.T) {
	t.Parallel()
	r := open(t, config(t, model(t, "tiny", 8), 2))
	minibatch := func(_, m int) int { return m }
	future := Delayed("future", func(s, m int) int { return m + s })
	negative := Delayed("negative", func(_, m int) int { return m - 1 })
	for want, p := range map[string]Program{
		"minibatch 0 uses version 1 in stage 1, which has versions 0 to 0":  future,
		"minibatch 0 uses version -1 in stage 0, which has versions 0 to 0": negative,
		"minibatch 1 uses version 1 in stage 0, which has versions 0 to 0":  {Name: "early", Group: 3, Forward: minibatch, Backward: minibatch},
		"3 minibatches, want a multiple of the group of 2":                  Flush(2),
		"groups of 0 minibatches":                                           {Forward: future.Forward, Backward: future.Forward},
		"needs Forward and Backward":                                        {Group: 1, Forward: future.Forward},
		"empty before minibatches [2 2], want ascending":                    Flush(1).Emptied(2, 2),
		"delays [2 1 0], want one for each of the 2 stages":                 VerticalSync(Depths(3)),
		"want ascending multiples of the group of 3":                        Flush(3).Emptied(1),
		"groups [2 1], want one for each of the 2 stages":                   {Group: 3, Groups: []int{2, 1}, Forward: minibatch, Backward: minibatch},
		"groups [3], want one for each of the 2 stages":                     {Group: 3, Groups: []int{3}, Forward: minibatch, Backward: minibatch},
		"minibatch 1 uses version 1 in stage 1, which has versions 0 to 0":  {Name: "late", Group: 3, Groups: []int{1, 3}, Forward: minibatch, Backward: minibatch},
	} {
		if _, err := r.Run(p, 3); !errors.Is(err, ErrProgram) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if _, err := r.Run(Flush(1), 0); !errors.Is(err, ErrProgram) {
		t.Errorf("no minibatch at all: %v", err)
	}
}

// Values that are not finite are not compared, because an executor skips such an update.
func TestWhatIsNotFiniteIsRefused(t *testing.T) {
	t.Parallel()
	c := config(t, model(t, "tiny", 8), 2)
	fill := c.Batch
	c.Batch = func(m int, images []float32, labels []int32) {
		if fill(m, images, labels); m == 1 {
			images[0] = float32(math.NaN())
		}
	}
	r := open(t, c)
	if _, err := r.Run(Flush(1), 2); !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "minibatch 1: the loss") {
		t.Errorf("%v", err)
	}
	if err := finite("the gradient of x", []float32{1, float32(math.Inf(-1))}); !errors.Is(err, ErrNotFinite) {
		t.Errorf("%v", err)
	}
	r.must(t, Flush(1), 1)
}
