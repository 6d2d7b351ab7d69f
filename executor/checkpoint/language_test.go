package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/models"
)

// huggingGPT2 is Hugging Face's GPT2LMHeadModel: matrices of blocks are those of Conv1D, in, out.
func huggingGPT2(vocabulary, positions, width, blocks int) stateDict {
	var d stateDict
	put := func(name string, shape ...int) { d.put(name, safetensors.F32, shape...) }
	put("transformer.wte.weight", vocabulary, width)
	put("transformer.wpe.weight", positions, width)
	norm := func(name string) {
		put(name+".weight", width)
		put(name+".bias", width)
	}
	conv1D := func(name string, in, out int) {
		put(name+".weight", in, out)
		put(name+".bias", out)
	}
	for i := range blocks {
		h := fmt.Sprintf("transformer.h.%d.", i)
		norm(h + "ln_1")
		conv1D(h+"attn.c_attn", width, 3*width)
		conv1D(h+"attn.c_proj", width, width)
		norm(h + "ln_2")
		conv1D(h+"mlp.c_fc", width, 4*width)
		conv1D(h+"mlp.c_proj", 4*width, width)
	}
	norm("transformer.ln_f")
	put("lm_head.weight", vocabulary, width)
	return d
}

// huggingLlama is Hugging Face's LlamaForCausalLM.
func huggingLlama(vocabulary, width, keys, hidden, blocks int) stateDict {
	var d stateDict
	put := func(name string, shape ...int) { d.put(name+".weight", safetensors.F32, shape...) }
	put("model.embed_tokens", vocabulary, width)
	for i := range blocks {
		h := fmt.Sprintf("model.layers.%d.", i)
		put(h+"self_attn.q_proj", width, width)
		put(h+"self_attn.k_proj", keys, width)
		put(h+"self_attn.v_proj", keys, width)
		put(h+"self_attn.o_proj", width, width)
		put(h+"mlp.gate_proj", hidden, width)
		put(h+"mlp.up_proj", hidden, width)
		put(h+"mlp.down_proj", width, hidden)
		put(h+"input_layernorm", width)
		put(h+"post_attention_layernorm", width)
	}
	put("model.norm", width)
	put("lm_head", vocabulary, width)
	return d
}

// languageModel is a language model in memory.
func languageModel(t testing.TB, name string, c models.Config) *memory {
	t.Helper()
	built, err := models.New(name, c)
	must(t, err)
	m := &memory{values: map[string][]float32{}}
	for _, p := range built.Params() {
		for _, role := range []string{"weight", "gradient", "state0", "state1"} {
			m.add(p.Name, role, p.Desc.Shape...)
			m.tensors[len(m.tensors)-1].Parts = p.Parts
		}
	}
	return m
}

// Every tensor of an exported file has the name and shape of Hugging Face's, none is missing, none is more.
func TestHuggingFaceNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model, count string
		want         stateDict
	}{
		{"gpt2", "124439808 in 148", slices.DeleteFunc(huggingGPT2(50257, 1024, 768, 12), func(x safetensors.Info) bool { return x.Name == "lm_head.weight" })},
		{"gpt2-untied", "163037184 in 149", huggingGPT2(50257, 1024, 768, 12)},
		{"tinyllama", "1100048384 in 201", huggingLlama(32000, 2048, 256, 5632, 22)},
	} {
		var got stateDict
		for _, x := range collect(languageModel(t, c.model, models.Config{Batch: 1, Image: 8, Classes: c.want[0].Shape[0]}), inference, Batches{}) {
			got = append(got, x.Info)
		}
		byName := func(a, b safetensors.Info) int { return cmp.Compare(a.Name, b.Name) }
		slices.SortFunc(got, byName)
		slices.SortFunc(c.want, byName)
		if count := fmt.Sprintf("%d in %d", c.want.elements(), len(c.want)); count != c.count || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: want %s elements, %s:\n%v\ngot\n%v", c.model, c.count, count, c.want, got)
		}
	}
}

// Files with Hugging Face's names load into our models, every element at its place. An exported file equals the imported one, except for
// tensors that others leave out or have beside it. A checkpoint, with the optimizer's state, also returns the same tensors.
func TestHuggingFaceFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model  string
		dict   stateDict
		prefix string // that their names may lack
		beside []string
		at     func(name string, i int) (ours string, at int)
	}{
		{"gpt2-2-16", huggingGPT2(50, 6, 16, 2), "transformer.", []string{"h.1.attn.bias", "h.0.attn.masked_bias"}, func(name string, i int) (string, int) {
			in, out := 16, 16
			switch {
			case strings.HasSuffix(name, "c_attn.weight"):
				out = 48
			case strings.HasSuffix(name, "attn.c_proj.weight"):
			case strings.HasSuffix(name, "c_fc.weight"):
				out = 64
			case strings.HasSuffix(name, "mlp.c_proj.weight"):
				in = 64
			default:
				return strings.NewReplacer("wte.weight", "embed.weight", "wpe.weight", "embed.position").Replace(name), i
			}
			return name, i%out*in + i/out
		}},
		{"llama-2-16", huggingLlama(50, 16, 8, 48, 2), "", []string{"model.layers.0.self_attn.rotary_emb.inv_freq"}, func(name string, i int) (string, int) {
			for k, s := range []string{"q_proj", "k_proj", "v_proj"} {
				if module, ok := strings.CutSuffix(name, s+".weight"); ok {
					return module + "qkv_proj.weight", i + []int{0, 16 * 16, 24 * 16}[k]
				}
			}
			return name, i
		}},
	} {
		t.Run(c.model, func(t *testing.T) {
			theirs := slices.Clone(c.dict)
			for i := range theirs {
				theirs[i].Name = strings.TrimPrefix(theirs[i].Name, c.prefix)
			}
			for _, name := range c.beside {
				theirs.put(name, safetensors.F32, 1, 1, 2, 2)
			}
			small := models.Config{Batch: 1, Image: 6, Classes: 50}
			m := languageModel(t, c.model, small)
			imported(t, torchFile(t, theirs, mixed), m)
			for k, x := range c.dict {
				for i := range elementsOf(x) {
					name, at := c.at(x.Name, i)
					if got := m.values["weight of "+name][at]; got != mixed(k, i) {
						t.Fatalf("%s[%d], %s[%d] here, is %g, want %g", x.Name, i, name, at, got, mixed(k, i))
					}
				}
			}
			path := filepath.Join(t.TempDir(), "final.safetensors")
			must(t, Export(path, m, Batches{}, nil))
			again := languageModel(t, c.model, small)
			imported(t, path, again)
			if name := differs(m, again, inference); name != "" {
				t.Errorf("%s changed on its way out and in", name)
			}
			restored(t, m, again)
		})
	}
}

// restored saves a model with an optimizer's state, and loads it into another one.
func restored(t *testing.T, from, into *memory) {
	t.Helper()
	for k, x := range from.tensors {
		if strings.HasPrefix(x.Role, "state") {
			for i := range x.Desc.Elements() {
				from.values[key(x)] = append(from.values[key(x)], mixed(k, int(i)))
			}
		}
	}
	c, err := Open(save(t, encode(t, from, someMeta(3))))
	must(t, err)
	must(t, c.Restore(into))
	must(t, c.Close())
	if name := differs(from, into, training); name != "" {
		t.Errorf("%s changed in a checkpoint", name)
	}
}

// A tensor that does not fit is named as the file has it.
func TestHuggingFaceErrors(t *testing.T) {
	t.Parallel()
	config := models.Config{Batch: 1, Image: 6, Classes: 50}
	dict := huggingGPT2(50, 6, 16, 2)
	for what, change := range map[string]func(stateDict) stateDict{
		"transformer.wte.weight is [49 16], the model's is [50 16]": func(d stateDict) stateDict { d[0].Shape = []int{49, 16}; return d },
		"transformer.h.0.attn.c_attn.weight is [48 16], the model's is [16 48]": func(d stateDict) stateDict {
			d[4].Shape = []int{48, 16}
			return d
		},
		"1 missing: lm_head.weight": func(d stateDict) stateDict { return d[:len(d)-1] },
		"1 unexpected: score.weight": func(d stateDict) stateDict {
			d.put("score.weight", safetensors.F32, 2, 16)
			return d
		},
	} {
		path := torchFile(t, change(slices.Clone(dict)), mixed)
		_, err := Import(path, languageModel(t, "gpt2-2-16", config))
		if !errors.As(err, new(*TensorsError)) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v, want %s: %s", err, path, what)
		}
	}
	if _, err := Import(filepath.Join(t.TempDir(), "no"), languageModel(t, "gpt2-2-16", config)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
