package models_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/modeltest"
)

// toyLlama is a Llama of few parameters.
var toyLlama = models.Language{Batch: 2, Length: 7, Vocabulary: 11, Width: 24, Heads: 6, KVHeads: 2, Hidden: 20, Blocks: 2, Dropout: 0.2}

func llama(t testing.TB, c models.Language) *models.Model {
	t.Helper()
	m, err := models.Llama("llama", c)
	must(t, err)
	return m
}

// Published counts: Hugging Face's of its GPT-2s; Zhang et al. 2024, TinyLlama; the cards of Llama 2 and 3 (6.74B and 8.03B), counted from
// their tensors. Nothing is allocated for them.
func TestLanguageParameterCounts(t *testing.T) {
	t.Parallel()
	counts := map[string]int64{
		"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200,
		"tinyllama": 1_100_048_384, "llama2-7b": 6_738_415_616, "llama3-8b": 8_030_261_248,
	}
	for _, k := range models.Texts() {
		want, published := counts[k.Name]
		if got := build(t, k.Name, k.Config()).ParamCount(); published && got != want {
			t.Errorf("%s has %d parameters, want %d", k.Name, got, want)
		}
		delete(counts, k.Name)
	}
	if len(counts) > 0 {
		t.Errorf("there are no %v", counts)
	}
}

// Every layer's programs compute the definition's output and gradients, and save nothing that they do not need.
func TestLlamaLayers(t *testing.T) {
	t.Parallel()
	for _, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
		c := toyLlama
		c.DType = d
		m := llama(t, c)
		programs := compiled(t, m)
		for l := range m.Layers {
			t.Run(fmt.Sprintf("%v %s", d, m.Layers[l].Name), func(t *testing.T) { checkLayer(t, m, programs, l+1) })
		}
	}
}

// torchModel is a model in PyTorch: bench/research/peers/src/torch_language.py has written it.
type torchModel struct {
	Model  string
	Rate   float32
	Sizes  torchSizes
	Tokens []uint32
	Labels []int32
	Losses []float64

	Weights, Gradients map[string][]float32
}

type torchSizes struct {
	Batch, Length, Vocabulary, Positions, Width, Heads, Hidden, Blocks int

	KVHeads int `json:"kv_heads"`
	Untied  bool
}

// model returns ours.
func (m *torchModel) model(t testing.TB) *models.Model {
	s := m.Sizes
	c := models.Language{
		Batch: s.Batch, Length: s.Length, Vocabulary: s.Vocabulary, Positions: s.Positions, Width: s.Width, Heads: s.Heads, KVHeads: s.KVHeads,
		Hidden: s.Hidden, Blocks: s.Blocks, Tied: !s.Untied,
	}
	if m.Model == "llama" {
		return llama(t, c)
	}
	return gpt2(t, c)
}

// ofFile returns the values of a parameter, which files may hold in parts.
func ofFile(p models.Parameter, tensors map[string][]float32) (all []float32) {
	parts := p.Parts
	if parts == nil {
		parts = []models.Part{{Name: p.Name}}
	}
	for _, x := range parts {
		v := tensors[x.Name]
		if x.Transposed {
			v = make([]float32, len(v))
			for i, y := range tensors[x.Name] {
				v[i%x.Rows*(len(v)/x.Rows)+i/x.Rows] = y
			}
		}
		all = append(all, v...)
		delete(tensors, x.Name)
	}
	return all
}

// With PyTorch's parameters and batch, toy models have PyTorch's gradients and losses. Gradients agree to 1e-5 of the largest element of
// the tensor, or of 1 if that is larger. Losses over ten steps of gradient descent agree to 1e-4.
func TestLanguageModelsArePyTorchs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gpt2", "llama"} {
		for library, lib := range map[string]func(modeltest.Memory) kernels.Library{"reference": reference, "cpu": onCPU} {
			t.Run(name+" "+library, func(t *testing.T) { isPyTorchs(t, "testdata/"+name+".json", lib) })
		}
	}
}

func isPyTorchs(t *testing.T, file string, lib func(modeltest.Memory) kernels.Library) {
	text, err := os.ReadFile(file)
	must(t, err)
	var torch torchModel
	must(t, json.Unmarshal(text, &torch))
	m := torch.model(t)
	programs, err := m.Compile(lib(nil))
	must(t, err)
	chain := modeltest.NewChain(m, programs, 1, lib)
	for _, f := range chain.Frames {
		for _, p := range f.Layer.Params() {
			modeltest.Put(f.Slice(p.Value), ofFile(p, torch.Weights))
		}
	}
	tokens := make([]float32, len(torch.Tokens))
	for i, token := range torch.Tokens {
		tokens[i] = math.Float32frombits(token)
	}
	for step, want := range torch.Losses {
		loss, err := chain.Step(tokens, torch.Labels)
		must(t, err)
		if math.Abs(float64(loss)-want) > 1e-4*want {
			t.Errorf("step %d: the loss is %v, PyTorch's %v", step, loss, want)
		}
		if step == 0 {
			for _, f := range chain.Frames {
				for _, p := range f.Layer.Params() {
					want := ofFile(p, torch.Gradients)
					near(t, "gradient of "+p.Name, f.Floats(p.Grad), want, max(1, largest(want)))
				}
			}
		}
		descend(chain, torch.Rate)
	}
	if len(torch.Losses) != 10 || len(torch.Weights)+len(torch.Gradients) > 0 {
		t.Errorf("%d losses are compared; PyTorch's have no match: weights %v, gradients %v", len(torch.Losses), torch.Weights, torch.Gradients)
	}
}

func TestLlamaErrors(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*models.Language){
		func(c *models.Language) { c.Batch = 0 },
		func(c *models.Language) { c.Heads = 5 },
		func(c *models.Language) { c.KVHeads = 4 },
		func(c *models.Language) { c.KVHeads = -1 },
		func(c *models.Language) { c.Heads, c.KVHeads = 8, 8 },
		func(c *models.Language) { c.Hidden = 0 },
		func(c *models.Language) { c.Positions = 9 },
		func(c *models.Language) { c.RotaryBase = 0.5 },
		func(c *models.Language) { c.Epsilon = -1 },
		func(c *models.Language) { c.Width = math.MaxInt },
	} {
		c := toyLlama
		change(&c)
		var op *kernels.OpError
		if _, err := models.Llama("llama", c); !errors.Is(err, models.ErrConfig) && !errors.As(err, &op) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Names of a family say sizes; those that are left out follow from the channels.
func TestLlamaFamily(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"llama-2-16": "4 2 48", "llama-1-128": "4 2 344", "llama-1-320": "5 5 856", "llama-1-64-8": "8 2 176", "llama-2-64-8-1-96": "8 1 96",
	} {
		m := build(t, name, models.Config{Batch: 1, Image: 4, Classes: 5})
		attention := m.Layers[1].Nodes[3].Op.(kernels.Attention)
		hidden := m.Layers[2].Desc(2).Shape[2]
		if got := fmt.Sprint(attention.Heads, attention.KVHeads, hidden); got != want {
			t.Errorf("%s has heads, heads of keys and values and hidden channels %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]bool{"gpt2-2-16": false, "gpt2-2-16-tied": true, "gpt2-2-16-untied": false, "llama-2-16": false, "llama-2-16-untied": false, "llama-2-16-tied": true} {
		m := build(t, name, models.Config{Batch: 1, Image: 4, Classes: 5})
		head := m.Layers[len(m.Layers)-2]
		if tied, _ := head.TiedBytes(); !models.OfText(name) || (tied > 0) != want {
			t.Errorf("%s has %d bytes of tied parameters", name, tied)
		}
	}
	for name, is := range map[string]error{
		"gpt2-tied-untied": models.ErrUnknown, "resnet18-tied": models.ErrUnknown,
		"llama-2": models.ErrUnknown, "llama-1-2-3-4-5-6": models.ErrUnknown, "llama-a-16": models.ErrUnknown, "llama-2-20": models.ErrConfig,
		"llama-0-16": models.ErrConfig, "llama-2-16-3": models.ErrConfig, "llama-1-99999999999999": models.ErrConfig, "gpt2-1-16-2": models.ErrUnknown,
	} {
		if _, err := models.New(name, models.Config{Batch: 1, Image: 4, Classes: 5}); !errors.Is(err, is) {
			t.Errorf("%s: %v, want %v", name, err, is)
		}
	}
}
