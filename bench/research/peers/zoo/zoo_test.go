//go:build cgo

// Package zoo exchanges files of weights with PyTorch's modules of the zoo's models: bench/research/peers/src/torch_zoo.py.
package zoo

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/bench/research/peers/internal/storeall"
	"plimsoll/bench/research/peers/internal/worker"
	"plimsoll/executor/checkpoint"
	"plimsoll/models"
)

// mostLogit bounds the difference of two logits, as a share of the largest one: logits are sums of up to 25,088 products in float32,
// through many layers.
const mostLogit = 1e-4

// request describes a model and the inputs with which PyTorch computes it, as in request.json.
type request struct {
	Model   string  `json:"model"`
	Classes int     `json:"classes"`
	Shape   []int   `json:"shape"` // of the samples: N,C,H,W of images, N,T of tokens
	Tokens  []int32 `json:"tokens,omitempty"`
	Gain    float64 `json:"gain"` // of weights: deep sums of blocks would overflow with 1
}

// standIns are small models in place of the published language models.
var standIns = map[string]string{
	"gpt2": "gpt2-2-64-tied", "gpt2-medium": "gpt2-2-64", "gpt2-large": "", "gpt2-xl": "", "tinyllama": "llama-2-64", "llama2-7b": "llama-2-64-tied", "llama3-8b": "",
}

// requests returns one for every known model.
func requests(t *testing.T) (all []request) {
	t.Helper()
	for _, k := range models.All() {
		name := k.Name
		if stand, is := standIns[name]; is {
			name = stand
		}
		if name != "" {
			all = append(all, requestOf(name))
		}
	}
	if len(all) < 28 {
		t.Errorf("only %d models", len(all))
	}
	return all
}

func requestOf(name string) request {
	r := request{Model: name, Classes: 5, Gain: 1}
	image := 32
	switch {
	case models.OfText(name):
		r.Classes, r.Shape = 23, []int{2, 12}
		for i := range 24 {
			r.Tokens = append(r.Tokens, int32(i*7%23))
		}
		return r
	case name == "inception_v3":
		image = 107
	case slices.Contains([]string{"resnet101", "resnet152", "resnet110", "resnet164", "resnet1001"}, name):
		r.Gain = 0.5
	case models.OfPairs(name):
		r.Classes, r.Shape = 2, []int{4, 3, 16, 16}
		return r
	}
	r.Shape = []int{2, 3, image, image}
	return r
}

// model returns ours.
func (r request) model(t *testing.T) *models.Model {
	t.Helper()
	c := models.Config{Batch: 2, Image: r.Shape[len(r.Shape)-1], Classes: r.Classes}
	m, err := models.New(r.Model, c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Files of every model of the zoo are those of PyTorch's modules, both ways: each computes the same logits of what the other has saved.
// Nothing else tells whether the elements of a tensor are in PyTorch's order.
func TestEveryModelIsPyTorchs(t *testing.T) {
	t.Parallel()
	torch := worker.Start(t, "../src/torch_zoo.py")
	for _, r := range requests(t) {
		t.Run(r.Model, func(t *testing.T) { r.exchange(t, torch) })
	}
}

// exchange gives PyTorch a file of random weights, and takes one.
func (r request) exchange(t *testing.T, torch *worker.Worker) {
	folder := t.TempDir()
	e, closed, err := storeall.Open(r.model(t), storeall.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := closed(); err != nil {
			t.Error(err)
		}
	}()
	r.fill(t, e)
	samples := r.samples(t, e)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"request.json": text, "images.f32": samples} {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkpoint.Export(filepath.Join(folder, "ours.safetensors"), e, checkpoint.Batches{Since: 3}, nil); err != nil {
		t.Fatal(err)
	}
	ours := predict(t, e)
	torch.Ask(t, folder)
	compare(t, ours, filepath.Join(folder, "ours.f32"))
	batches, err := checkpoint.Import(filepath.Join(folder, "theirs.safetensors"), e)
	if err != nil {
		t.Fatal(err)
	}
	for module, n := range batches {
		if n != 7 {
			t.Errorf("%s has counted %d batches, want 7", module, n)
		}
	}
	compare(t, predict(t, e), filepath.Join(folder, "theirs.f32"))
}

// fill gives every weight and buffer random values: weights of He's variance, norms near the identity.
func (r request) fill(t *testing.T, e *storeall.Model) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for _, x := range e.Tensors() {
		if x.Role != "weight" && x.Role != "buffer" {
			continue
		}
		s := x.Desc.Shape
		scale, offset := 0.25, 0.0
		if len(s) > 1 {
			scale = r.Gain * math.Sqrt(6*float64(s[0])/float64(x.Desc.Elements()))
		} else if strings.HasSuffix(x.Name, ".weight") || strings.HasSuffix(x.Name, ".running_var") {
			offset = 1
		}
		v := make([]float32, x.Desc.Elements())
		for i := range v {
			v[i] = float32(offset + scale*(2*random.Float64()-1))
		}
		if err := e.Write(x, v); err != nil {
			t.Fatal(err)
		}
	}
}

// samples fills the batch, and returns its images as PyTorch has them, N,C,H,W.
func (r request) samples(t *testing.T, e *storeall.Model) []byte {
	t.Helper()
	in := e.Batch.Input
	for i, token := range r.Tokens {
		in[i] = math.Float32frombits(uint32(token))
	}
	if r.Tokens != nil {
		return nil
	}
	random := rand.New(rand.NewPCG(3, 4))
	channels, area := r.Shape[1], r.Shape[2]*r.Shape[3]
	out := make([]byte, 4*len(in))
	for i := range in {
		in[i] = float32(2*random.Float64() - 1)
		n, p, c := i/(area*channels), i/channels%area, i%channels
		binary.LittleEndian.PutUint32(out[4*((n*channels+c)*area+p):], math.Float32bits(in[i]))
	}
	return out
}

func predict(t *testing.T, e *storeall.Model) []float32 {
	t.Helper()
	logits := make([]float32, len(e.Batch.Target)*e.Model.Classes)
	if err := e.Predict(logits); err != nil {
		t.Fatal(err)
	}
	return logits
}

// compare holds logits to those of a file.
func compare(t *testing.T, got []float32, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) != 4*len(got) {
		t.Fatalf("%s has %d logits, want %d", path, len(raw)/4, len(got))
	}
	largest, off := 0.0, 0.0
	for i, x := range got {
		want := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		largest, off = max(largest, math.Abs(want)), max(off, math.Abs(float64(x)-want))
	}
	if !(off <= mostLogit*largest) || largest == 0 || math.IsInf(largest, 1) {
		t.Errorf("%s: logits of up to %g differ by up to %g", filepath.Base(path), largest, off)
	}
}
