package checkpoint

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
)

// adapted is a model in memory with a weight and an adapter of it, which files of the base lack.
func adapted(seed uint64) *memory {
	m := &memory{values: map[string][]float32{}}
	m.add("fc.weight", "weight", 3, 5)
	m.add("fc.lora_A.weight", "weight", 2, 5)
	m.tensors = append(m.tensors, executor.Tensor{Name: "fc.lora_scale", Role: "constant", Desc: kernels.F32(2)})
	m.add("fc.lora_B.weight", "weight", 3, 2)
	m.fill(seed)
	return m
}

// An adapter that is written is read again with its settings, every element at its place, and nothing else of the model changes.
func TestAdaptersAreReadAgain(t *testing.T) {
	t.Parallel()
	for _, l := range []models.LoRA{{Rank: 2, Alpha: 3.5, Dropout: 0.1, Targets: "fc"}, {Rank: 2, Alpha: 2, Targets: models.AllLinear}, {Rank: 1, Alpha: 1, Targets: "a.b+c"}} {
		dir, from, into := t.TempDir(), adapted(1), adapted(2)
		var weights, settings bytes.Buffer
		must(t, EncodeAdapter(&weights, from))
		must(t, EncodeAdapterSettings(&settings, l, "base", true))
		must(t, os.WriteFile(filepath.Join(dir, AdapterWeights), weights.Bytes(), 0o600))
		must(t, os.WriteFile(filepath.Join(dir, AdapterSettings), settings.Bytes(), 0o600))
		if got, err := ReadAdapter(dir); err != nil || got != l {
			t.Errorf("%+v, %v, want %+v", got, err, l)
		}
		before := adapted(2)
		must(t, FitsAdapter(dir, into.Tensors()))
		must(t, ImportAdapter(dir, into))
		for _, x := range into.tensors {
			want := before
			if models.IsAdapter(x.Name) {
				want = from
			}
			if got := into.values[key(x)]; !slices.Equal(got, want.values[key(x)]) {
				t.Errorf("%s is %v, want %v", x.Name, got, want.values[key(x)])
			}
		}
	}
}

// A file of the base begins a model with adapters; one with half of an adapter is refused.
func TestBaseWithoutAdapters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "base.safetensors")
	base := adapted(1)
	base.tensors = base.tensors[:1]
	must(t, Export(path, base, Batches{}, nil))
	into := adapted(2)
	if _, err := Import(path, into); err != nil || into.values["weight of fc.weight"][0] != base.values["weight of fc.weight"][0] {
		t.Errorf("%v", err)
	}
	if has, err := HasAdapter(path); has || err != nil {
		t.Errorf("%v, %v", has, err)
	}
	half := adapted(1)
	half.tensors = half.tensors[:2]
	must(t, Export(path, half, Batches{}, nil))
	if _, err := Import(path, into); !errors.As(err, new(*TensorsError)) || !strings.Contains(err.Error(), "1 missing: fc.lora_B.weight") {
		t.Errorf("%v", err)
	}
}

// Every field of adapter_config.json is honoured or refused by name.
func TestAdapterSettings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[]`:                  "no JSON object",
		`{}`:                  `field "peft_type" is ""`,
		`{"peft_type":"IA3"}`: `field "peft_type" is "IA3"`,
		`{"peft_type":"LORA","target_modules":["q"],"r":"x"}`:                       "r of type int",
		`{"peft_type":"LORA","target_modules":["q"],"r":0}`:                         "r is 0",
		`{"peft_type":"LORA","target_modules":["q"],"use_dora":true}`:               `field "use_dora" is true`,
		`{"peft_type":"LORA","target_modules":["q"],"rank_pattern":{"q":3}}`:        `field "rank_pattern" is {"q":3}`,
		`{"peft_type":"LORA","target_modules":["q"],"modules_to_save":["lm_head"]}`: `field "modules_to_save"`,
		`{"peft_type":"LORA","target_modules":["q"],"layers_to_transform":[1]}`:     `field "layers_to_transform"`,
		`{"peft_type":"LORA","target_modules":["q"],"bias":"all"}`:                  `field "bias" is "all"`,
		`{"peft_type":"LORA","target_modules":["q"],"init_lora_weights":"pissa"}`:   `field "init_lora_weights" is "pissa"`,
		`{"peft_type":"LORA","target_modules":"q_.*"}`:                              `field "target_modules" is "q_.*"`,
		`{"peft_type":"LORA"}`: `field "target_modules"`,
		`{"peft_type":"LORA","target_modules":["q"],"something_new":1}`:                                                                `field "something_new" is 1`,
		`{"peft_type":"LORA","target_modules":["v","q"],"use_rslora":true,"r":4,"lora_alpha":3,"use_dora":false,"peft_version":"0.1"}`: "",
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, AdapterSettings), []byte(text), 0o600))
		l, err := ReadAdapter(dir)
		if want == "" && (err != nil || l != models.LoRA{Rank: 4, Alpha: 6, Targets: "q+v"}) {
			t.Errorf("%s: %+v, %v", text, l, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), AdapterSettings)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := ReadAdapter(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
