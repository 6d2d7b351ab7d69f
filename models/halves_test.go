package models_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/models/modeltest"
	"plimsoll/runtime"
)

// derived holds the results of a backward: the gradient of the input, and the gradients of the parameters.
type derived struct{ input, grads []byte }

func (d derived) equal(e derived) bool {
	return bytes.Equal(d.input, e.input) && bytes.Equal(d.grads, e.grads)
}

// halved is a layer in memory whose backward is run in several ways.
type halved struct {
	*modeltest.Frame
	saved, gradient, before []byte // ā_ℓ, δ_ℓ, and Grads before a backward; nil: nothing written
	input                   bool   // δ_{ℓ-1} is wanted
	late                    bool   // another layer's BackParams reads a_ℓ
}

func newHalved(t testing.TB, m *models.Model, programs []*models.Programs, l int, lib func(modeltest.Memory) kernels.Library) *halved {
	t.Helper()
	h := &halved{Frame: modeltest.NewFrame(m, programs, l, lib), input: m.DifferentiatesInput(l)}
	for k := range programs {
		h.late = h.late || slices.Contains(m.Wiring().Reads(k+1), l) && programs[k].BackParams.Uses(models.Input)
	}
	h.Fill(uint64(l), m.Classes)
	must(t, h.Run(&h.Programs.Save))
	h.saved, h.gradient = slices.Clone(h.Bytes(models.Output)), slices.Clone(h.Bytes(models.GradOutput))
	return h
}

// start lays out what a backward finds.
func (h *halved) start() {
	for _, b := range []models.Block{models.Scratch, models.Kept, models.GradInput, models.Grads} {
		h.Poison(b)
	}
	copy(h.Bytes(models.Output), h.saved)
	copy(h.Bytes(models.GradOutput), h.gradient)
	copy(h.Bytes(models.Grads), h.before)
}

// whole runs Back.
func (h *halved) whole(t testing.TB, accumulate bool) derived {
	t.Helper()
	h.start()
	must(t, h.Run(program(h.Programs.Back, accumulate)))
	return derived{h.inputGradient(), slices.Clone(h.Bytes(models.Grads))}
}

// parts runs the two halves. Between them nothing but what the rules promise survives; spoil spoils more.
func (h *halved) parts(t testing.TB, accumulate bool, spoil func()) (derived, error) {
	t.Helper()
	p := h.Programs
	h.start()
	must(t, h.Run(program(p.BackInput, accumulate)))
	h.checkOutput(t)
	input, images := h.inputGradient(), slices.Clone(h.Bytes(models.Input))
	for _, b := range []models.Block{models.Scratch, models.GradInput} {
		h.Poison(b)
	}
	for _, b := range []models.Block{models.Input, models.Output, models.GradOutput, models.Kept} {
		if !p.BackParams.Uses(b) {
			h.Poison(b)
		}
	}
	spoil()
	err := h.Run(program(p.BackParams, accumulate))
	if p.BackParams.Uses(models.Output) {
		h.checkOutput(t)
	}
	copy(h.Bytes(models.Input), images)
	return derived{input, slices.Clone(h.Bytes(models.Grads))}, err
}

// checkOutput: a_ℓ is still there if somebody reads it.
func (h *halved) checkOutput(t testing.TB) {
	t.Helper()
	n := h.Layer.Desc(h.Layer.Output()).Bytes()
	if h.late && !bytes.Equal(h.Bytes(models.Output)[:n], h.saved[:n]) {
		t.Errorf("the output is gone before the layer behind has read it")
	}
}

func (h *halved) inputGradient() []byte {
	if !h.input {
		return nil
	}
	return slices.Clone(h.Bytes(models.GradInput)[:h.Layer.Input().Bytes()])
}

// program returns a program, or what it does in the second microbatch.
func program(p models.Program, accumulate bool) *models.Program {
	p.Steps = slices.Clone(p.Steps)
	for i := range p.Steps {
		if accumulate {
			p.Steps[i].Call = p.Steps[i].Accumulating()
		}
	}
	return &p
}

// checkHalves runs the backward of one layer in halves.
//
//  1. BackInput and BackParams leave the bits of Back, with nothing between them but what Programs promises.
//  2. So do they when they add to the gradients of another microbatch, and these sums are right.
//  3. So does Halves.
//  4. Every gradient that is kept is needed.
func checkHalves(t testing.TB, h *halved) {
	t.Helper()
	nothing := func() {}
	once := h.whole(t, false)
	got, err := h.parts(t, false, nothing)
	if must(t, err); !got.equal(once) {
		t.Errorf("the two halves leave other bits than Back")
	}
	for _, r := range keptBy(h.Programs) {
		spoilt, err := h.parts(t, false, func() { modeltest.PoisonBytes(h.Slice(r)) })
		if err == nil && spoilt.equal(once) {
			t.Errorf("the kept gradient %+v is not needed", r)
		}
	}
	h.start()
	both := h.Programs.Halves()
	if must(t, h.Run(&both)); !(derived{h.inputGradient(), h.Bytes(models.Grads)}).equal(once) {
		t.Errorf("the two halves as one program leave other bits than Back")
	}
	h.before = once.grads
	twice := h.whole(t, true)
	h.checkSum(t, once.grads, twice.grads)
	got, err = h.parts(t, true, nothing)
	if must(t, err); !got.equal(twice) {
		t.Errorf("the two halves add other bits than Back")
	}
	h.before = nil
}

// keptBy returns the references of the gradients that BackParams reads.
func keptBy(p *models.Programs) (refs []models.Ref) {
	for _, s := range p.BackParams.Steps {
		refs = append(refs, s.Refs.DY)
	}
	return refs
}

// checkSum: once more the same gradients are twice the gradients, up to where the library rounds.
func (h *halved) checkSum(t testing.TB, once, twice []byte) {
	t.Helper()
	v, w := modeltest.Floats(once), modeltest.Floats(twice)
	var most float64
	for _, p := range h.Layer.Params() {
		if p.Trained {
			most = max(most, largest(v[p.Grad.Offset/4:(p.Grad.Offset+p.Grad.Bytes)/4]))
		}
	}
	for _, p := range h.Layer.Params() {
		for i := p.Grad.Offset / 4; i < (p.Grad.Offset+p.Grad.Bytes)/4; i++ {
			if d := math.Abs(2*float64(v[i]) - float64(w[i])); !(d <= 1e-6*most) {
				t.Fatalf("gradient of %s: %v, and after another one of the same %v", p.Name, v[i], w[i])
			}
		}
	}
}

// scribbler is the reference, but for a workspace for every call, which the call fills with NaN.
type scribbler struct {
	kernels.Library
	memory modeltest.Memory
	bytes  int64
}

func scribbling(bytes int64) func(modeltest.Memory) kernels.Library {
	return func(m modeltest.Memory) kernels.Library { return scribbler{ref.New(m), m, bytes} }
}

func (s scribbler) Workspace(kernels.Call) (int64, error) { return s.bytes, nil }

func (s scribbler) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	if err := o.Check(c, s.bytes); err != nil {
		return nil, err
	}
	workspace, err := s.memory.Bytes(o.Workspace)
	if err != nil {
		return nil, err
	}
	l, err := s.Library.Prepare(c, o)
	return scribble{l, workspace}, err
}

// scribble is a launch that uses its workspace.
type scribble struct {
	runtime.Launch
	workspace []byte
}

func (s scribble) Run() error {
	modeltest.PoisonBytes(s.workspace)
	return s.Launch.(interface{ Run() error }).Run()
}

func onCPU(m modeltest.Memory) kernels.Library {
	l, err := cpu.New(m, cpu.Options{Threads: 1})
	if err != nil {
		panic(err)
	}
	return l
}

// halvesKinds counts layers whose backward in halves has something of its own.
type halvesKinds struct{ kept, held, inOutput, copied, alone int }

func (k *halvesKinds) count(p *models.Programs) {
	add := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	add(&k.kept, p.KeptBytes > 0)
	add(&k.held, p.BackParams.Uses(models.GradOutput))
	add(&k.inOutput, slices.ContainsFunc(keptBy(p), func(r models.Ref) bool { return r.Block == models.Output }))
	add(&k.copied, slices.ContainsFunc(p.BackInput.Steps, func(s models.Step) bool { return s.Call.Op.Kind() == "concat" && s.Call.Pass == kernels.Forward }))
	add(&k.alone, len(p.BackInput.Steps) == 0 || len(p.BackParams.Steps) == 0)
}

func (k *halvesKinds) check(t *testing.T) {
	t.Helper()
	t.Logf("halves: %+v", *k)
	if min(k.kept, k.held, k.inOutput, k.copied, k.alone) < 5 {
		t.Errorf("the layers do not show everything that halves do: %+v", *k)
	}
}

// The halves of every family of the zoo, on the kernels of the CPU, workspaces included. (On the reference checkLayer runs
// them.)
func TestZooHalves(t *testing.T) {
	t.Parallel()
	layers, kept, held := 0, 0, 0
	for _, c := range []struct {
		name  string
		image int
	}{
		{"tiny", 16}, {"mlp", 6}, {"resnet20", 8}, {"resnet164", 8}, {"resnet50", 32}, {"densenet121", 32}, {"vgg16", 32}, {"siamese", 16},
	} {
		m := build(t, c.name, models.Config{Batch: 2, Image: c.image, Classes: 2})
		programs, err := m.Compile(models.Accumulation(onCPU(nil)))
		must(t, err)
		for l := range different(m) {
			if len(m.Layers[l-1].Joined()) > 0 {
				continue // a frame has one input
			}
			t.Run(c.name+"/"+m.Layers[l-1].Name, func(t *testing.T) { checkHalves(t, newHalved(t, m, programs, l, onCPU)) })
			layers++
			if programs[l-1].KeptBytes > 0 {
				kept++
			}
			if programs[l-1].BackParams.Uses(models.GradOutput) {
				held++
			}
		}
	}
	if layers < 60 || kept < 3 || held < 5 {
		t.Errorf("%d layers ran, %d use Kept, %d hold δ", layers, kept, held)
	}
}

// The bytes that the halves hold are worked out by hand. Both layers are two convolutions with ReLU on maps of the same size, a.
//
//   - ReLU's gradient lies on the gradient of its output. So the gradient of the second convolution's output lies on δ, and its block lives
//     on. The gradient of the first convolution's output lies in Kept, with a bytes. It has no other place: the first convolution's output
//     is the second one's input, which BackParams reads. The gradient of the first's ReLU lay there before it; the first layer of all has
//     no other place for it.
//   - In the first layer of a model the convolution's own gradient is not computed, nothing else changes.
//   - With BatchNorm before the ReLU gradients lie on the norms' inputs, which only BackInput reads: nothing is held.
func TestHeldBytes(t *testing.T) {
	t.Parallel()
	const a = 2 * 8 * 8 * 4 * 4
	b := models.NewBuilder("held", kernels.F32(2, 8, 8, 1), 5)
	for _, name := range []string{"first", "second"} {
		b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value {
			x = g.ReLU("relu1", g.Conv("conv1", x, 4, 3, 1))
			return g.ReLU("relu2", g.Conv("conv2", x, 4, 3, 1))
		})
	}
	b.Layer("norms", "norms", func(g *models.Graph, x models.Value) models.Value {
		x = g.BNReLU("bn1", g.Conv("conv1", x, 4, 3, 1))
		return g.BNReLU("bn2", g.Conv("conv2", x, 4, 3, 1))
	})
	b.Layer("fc", "fc", func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, 5) })
	m, err := b.Model()
	must(t, err)
	programs := compiled(t, m)
	for l, want := range []struct {
		kept, held, input int64
		gradOutput        bool
	}{{a, 2 * a, 0, true}, {a, 2 * a, 0, true}, {0, 0, 0, false}, {0, 64, 0, true}, {0, 0, 0, false}} {
		p := programs[l]
		if p.KeptBytes != want.kept || p.HeldBytes() != want.held || p.BackInput.Scratch != want.input || p.BackParams.Scratch != 0 || p.BackParams.Uses(models.GradOutput) != want.gradOutput {
			t.Errorf("%s keeps %d bytes, holds %d, scratch %d and %d, δ %v: want %+v",
				m.Layers[l].Name, p.KeptBytes, p.HeldBytes(), p.BackInput.Scratch, p.BackParams.Scratch, p.BackParams.Uses(models.GradOutput), want)
		}
	}
	if len(programs[4].BackParams.Steps) != 0 || len(programs[3].BackInput.Steps) != 1 || len(programs[0].BackInput.Steps) != 3 {
		t.Errorf("the halves of the loss, the linear layer and the first layer have %d, %d and %d steps",
			len(programs[4].BackParams.Steps), len(programs[3].BackInput.Steps), len(programs[0].BackInput.Steps))
	}
}

// The halves of a bottleneck, a block that normalizes first and a dense layer, call by call.
func TestHalvesProgramText(t *testing.T) {
	t.Parallel()
	var all string
	for _, c := range []struct {
		model        string
		image, layer int
	}{{"resnet50", 224, 2}, {"resnet164", 32, 3}, {"densenet121", 224, 2}} {
		p := compiled(t, build(t, c.model, models.Config{Batch: 1, Image: c.image, Classes: 10}))[c.layer-1]
		all += fmt.Sprintf("%s, layer %d: kept %d\n", c.model, c.layer, p.KeptBytes) + text("backward_input", p.BackInput) + text("backward_params", p.BackParams)
	}
	golden(t, "halves.txt", all)
}

// Whole models, every BackInput first, then the BackParams in any order, each layer reading its input where the layer before
// has left it: the gradients are those of Back.
func TestChainsInHalves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		image int
	}{{"tiny", 16}, {"mlp", 6}, {"resnet20", 16}, {"resnet164", 8}, {"densenet121", 32}} {
		m := build(t, c.name, models.Config{Batch: 2, Image: c.image, Classes: 5})
		programs, err := m.Compile(onCPU(nil))
		must(t, err)
		r := rand.New(rand.NewPCG(3, 4))
		input, labels := make([]float32, m.Input.Elements()), make([]int32, m.Input.Shape[0])
		for i := range input {
			input[i] = float32(r.NormFloat64())
		}
		whole, parts := modeltest.NewChain(m, programs, 1, onCPU), modeltest.NewChain(m, programs, 1, onCPU)
		_, err = whole.Step(input, labels)
		must(t, err)
		must(t, parts.Forward(input, labels))
		for i := len(parts.Frames) - 1; i >= 0; i-- {
			must(t, parts.Backward(i, &programs[i].BackInput))
		}
		for _, i := range r.Perm(len(parts.Frames)) {
			if f := parts.Frames[i]; i > 0 {
				copy(f.Bytes(models.Input)[:f.Layer.Input().Bytes()], parts.Frames[i-1].Bytes(models.Output))
			}
			must(t, parts.Frames[i].Run(&programs[i].BackParams))
		}
		for i, f := range parts.Frames {
			if !bytes.Equal(f.Bytes(models.Grads), whole.Frames[i].Bytes(models.Grads)) {
				t.Errorf("%s, %s: other gradients than Back", c.name, f.Layer.Name)
			}
		}
	}
}
