package models_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/modeltest"
)

// frozenCases are models of which a part trains: the head, all but the first layers, biases, norms, parts of a weight that files have as several.
var frozenCases = []struct {
	name   string
	config models.Config
}{
	{"tiny", models.Config{Batch: 4, Image: 8, Classes: 5, Freeze: "*,!fc"}},
	{"tiny", models.Config{Batch: 4, Image: 8, Classes: 5, Freeze: "*.bias"}},
	{"resnet20", models.Config{Batch: 2, Image: 8, Classes: 5, Freeze: "conv1,bn1,layer1"}},
	{"resnet20", models.Config{Batch: 2, Image: 8, Classes: 5, Freeze: "*,!*bn*"}},
	{"gpt2-2-16", models.Config{Batch: 2, Image: 6, Classes: 20, Freeze: "transformer.wte,transformer.wpe,transformer.h.0"}},
	{"llama-2-16", models.Config{Batch: 2, Image: 6, Classes: 20, Freeze: "*q_proj*,*mlp*"}},
	{"llama-2-16", models.Config{Batch: 2, Image: 6, Classes: 20, LoRA: models.LoRA{Rank: 2, Alpha: 3, Targets: "q_proj+v_proj"}}},
	{"gpt2-2-16", models.Config{Batch: 2, Image: 6, Classes: 20, LoRA: models.LoRA{Rank: 2, Alpha: 2, Dropout: 0.2, Targets: models.AllLinear}}},
}

// Each layer of a model of which parts are frozen computes the gradients of what trains, from what Save left, and nothing else is saved. Its two
// halves leave the bits of the whole.
func TestFrozenPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range frozenCases {
		t.Run(fmt.Sprintf("%s %s%v", c.name, c.config.Freeze, c.config.LoRA), func(t *testing.T) {
			m := build(t, c.name, c.config)
			programs := compiled(t, m)
			for l := range different(m) {
				checkLayer(t, m, programs, l)
				checkHalves(t, newHalved(t, m, programs, l, reference))
			}
		})
	}
}

// Whatever is frozen, at random, the gradients of what trains have the bits that they have where all trains, and no more is saved.
func TestFreezingKeepsGradients(t *testing.T) {
	t.Parallel()
	trained, without := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		c := frozenCases[r.IntN(len(frozenCases)-2)]
		c.config.Freeze = ""
		all := build(t, c.name, c.config)
		var names []string
		for _, p := range all.Params() {
			if p.Trained && len(p.Parts) < 2 {
				names = append(names, models.FileNames(p)[0])
			}
		}
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		c.config.Freeze = strings.Join(names[:1+r.IntN(len(names)-1)], ",")
		some := build(t, c.name, c.config)
		programs, full := compiled(t, some), compiled(t, all)
		for l := range different(all) {
			got, want := gradients(t, some, programs, l), gradients(t, all, full, l)
			for name, g := range got {
				if trained++; !slices.Equal(g, want[name]) {
					t.Errorf("%s --freeze %s: gradient of %s of layer %d differs", c.name, c.config.Freeze, name, l)
				}
			}
			without += len(want) - len(got)
			if programs[l-1].SavedBytes > full[l-1].SavedBytes || programs[l-1].GradBytes > full[l-1].GradBytes {
				t.Errorf("%s --freeze %s: layer %d saves %d bytes, %d where all trains", c.name, c.config.Freeze, l, programs[l-1].SavedBytes, full[l-1].SavedBytes)
			}
		}
	}
	if trained < 500 || without < 500 {
		t.Errorf("only %d gradients were compared, and %d not computed", trained, without)
	}
}

// gradients returns the gradients of a layer's parameters by name.
func gradients(t *testing.T, m *models.Model, programs []*models.Programs, l int) map[string][]float32 {
	t.Helper()
	f := modeltest.NewFrame(m, programs, l, reference)
	f.Fill(uint64(l), m.Classes)
	must(t, f.Run(&f.Programs.Save))
	f.Poison(models.Grads)
	f.Poison(models.Scratch)
	must(t, f.Run(&f.Programs.Back))
	all := map[string][]float32{}
	for _, p := range f.Layer.Params() {
		if p.Trained {
			all[p.Name] = f.Floats(p.Grad)
		}
	}
	return all
}

// A weight or module that cannot be frozen, or have adapters, is refused by name.
func TestFreezingRefuses(t *testing.T) {
	t.Parallel()
	lora := func(text string) models.LoRA {
		l, err := models.ParseLoRA(text)
		must(t, err)
		return l
	}
	for _, c := range []struct {
		model  string
		config models.Config
		want   string
	}{
		{"tiny", models.Config{Freeze: "*"}, "every weight of tiny is frozen"},
		{"tiny", models.Config{Freeze: "nothing"}, "--freeze nothing: no weight or module of tiny has that name"},
		{"tiny", models.Config{Freeze: "*running_mean"}, "no weight or module"},
		{"tiny", models.Config{Freeze: "[a"}, "malformed"},
		{"tiny", models.Config{Freeze: "fc,"}, "--freeze : no weight"},
		{"tiny", models.Config{Freeze: "*.weight", LoRA: lora("r=1,targets=fc")}, "leave --freeze out"},
		{"llama-2-16", models.Config{LoRA: lora("r=1,targets=q_prj")}, "did you mean q_proj"},
		{"llama-2-16", models.Config{LoRA: lora("r=1,targets=embed_tokens")}, "target embed_tokens of llama-2-16 is an op of kind embedding"},
		{"siamese", models.Config{LoRA: lora("r=1,targets=fc")}, "branches"},
	} {
		c.config.Batch, c.config.Image, c.config.Classes = 2, 8, 2
		if _, err := models.New(c.model, c.config); !errors.Is(err, models.ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: %v, want %q", c.model, c.config, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"":                          `"" is none of`,
		"r=0,targets=x":             "r is 0",
		"r=x,targets=x":             `r is "x", want a number`,
		"r=2":                       "targets is",
		"r=2,targets=a+":            "targets is",
		"r=2,targets=a,alpha=-1":    "alpha is -1",
		"r=2,targets=a,alpha=nan":   "alpha is NaN",
		"r=2,targets=a,dropout=1":   "dropout is 1",
		"r=2,targets=a,r=3":         "r is given twice",
		"r=2,targets=a,rank_dim=3":  `"rank_dim" is none of`,
		"r=2,targets=a,dropout=nan": "dropout is NaN",
	} {
		if _, err := models.ParseLoRA(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// With adapters exactly these train. Weights that are one here and several in files come apart under the names of files.
func TestAdapters(t *testing.T) {
	t.Parallel()
	m := build(t, "llama-2-16", models.Config{Batch: 2, Image: 6, Classes: 20, LoRA: models.LoRA{Rank: 2, Alpha: 4, Targets: "q_proj+down_proj"}})
	var trained []string
	for _, p := range m.Params() {
		if p.Trained {
			trained = append(trained, p.Name)
			continue
		}
		if !p.Frozen || strings.Contains(p.Name, "qkv") {
			t.Errorf("%s is %+v", p.Name, p)
		}
	}
	want := []string{}
	for _, block := range []string{"0", "1"} {
		for _, module := range []string{"self_attn.q_proj", "mlp.down_proj"} {
			want = append(want, "model.layers."+block+"."+module+".lora_A.weight", "model.layers."+block+"."+module+".lora_B.weight")
		}
	}
	if !slices.Equal(trained, want) {
		t.Errorf("%v train, want %v", trained, want)
	}
	if m.DType() != kernels.Float32 {
		t.Errorf("the model computes in %v", m.DType())
	}
}
