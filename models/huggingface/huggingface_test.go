package huggingface

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/models"
)

// fixtures are the folders in testdata, which bench/research/peers/src/torch_folders.py has written.
var fixtures = []string{
	"bert", "bert-classes", "distilbert", "distilbert-classes", "gemma", "gpt2", "llama", "llama-biases", "llama3", "mistral", "phi3", "phi3-partial", "qwen2", "qwen3-tied",
	"roberta", "roberta-classes", "vit",
}

func configOf(t testing.TB, name string) map[string]json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name, configFile))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// described is a model in words: each op with its attributes, each parameter with its parts.
func described(t testing.TB, all map[string]json.RawMessage) (string, error) {
	t.Helper()
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return describe(text)
}

func describe(config []byte) (string, error) {
	c, err := readConfig(config)
	if err != nil {
		return "", err
	}
	if l := c.language; l.Vocabulary > 1e4 || l.Width > 1e4 || l.Blocks > 100 { // large, and right
		return fmt.Sprint(l), nil
	}
	of := models.Config{Batch: 2, Image: 10, Classes: c.classes, Channels: c.channels}
	if c.image > 0 {
		of.Image = c.image
	}
	m, err := c.model("folder", of)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, layer := range m.Layers {
		for _, n := range layer.Nodes {
			fmt.Fprintf(&b, "%s %#v %v\n", n.Name, n.Op, n.In)
			for _, p := range n.Params {
				fmt.Fprintln(&b, p.Name, p.Desc, p.Parts, p.Of != nil)
			}
		}
	}
	return b.String(), nil
}

// Every field of a config changes the model, is refused with another value, or is one that changes no number.
func TestEveryFieldIsHonouredOrRefused(t *testing.T) {
	t.Parallel()
	others := []string{`7`, `1000003`, `0.5`, `true`, `false`, `"gelu"`, `"other"`, `{"rope_theta": 77, "rope_type": "default"}`, `[]`, `["full_attention"]`, `-1`}
	counted := 0
	for _, name := range fixtures {
		all := configOf(t, name)
		was, err := described(t, all)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for field, value := range all {
			if _, known := unread[field]; known && field != "architectures" {
				continue
			}
			counted++
			matters := false
			for _, other := range others {
				if other == string(value) {
					continue
				}
				all[field] = json.RawMessage(other)
				now, err := described(t, all)
				if err != nil && !strings.Contains(err.Error(), field) && !errors.Is(err, models.ErrConfig) {
					t.Errorf("%s: %s=%s: %v does not name the field", name, field, other, err)
				}
				matters = matters || err == nil && now != was || err != nil
			}
			if all[field] = value; !matters {
				t.Errorf("%s: no value of %s matters", name, field)
			}
		}
	}
	if counted < 250 {
		t.Errorf("%d fields were changed, want at least 250", counted)
	}
}

// with returns a config in which fields have other values; "" removes one.
func with(all map[string]json.RawMessage, changes map[string]string) map[string]json.RawMessage {
	all = maps.Clone(all)
	for field, value := range changes {
		if all[field] = json.RawMessage(value); value == "" {
			delete(all, field)
		}
	}
	return all
}

// A config that is not understood is refused with the field and what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, field, value, want string
	}{
		{"llama", "model_type", `"mamba"`, `field "model_type" is "mamba", which is none of bert, distilbert, gemma, gpt2, llama, mistral, phi3, qwen2, qwen3, roberta, vit`},
		{"llama", "model_type", ``, `field "model_type" is missing`},
		{"llama", "architectures", `["LlamaForSequenceClassification"]`, `field "architectures" is "LlamaForSequenceClassification", which is not supported: want LlamaForCausalLM alone`},
		{"llama", "vocab_size", ``, `field "vocab_size" is missing`},
		{"llama", "hidden_size", `-4`, `field "hidden_size" is -4, which is not from 1 to`},
		{"llama", "hidden_size", `1e30`, `field "hidden_size" is 1e30, which is too large`},
		{"llama", "num_hidden_layers", `1000000`, `field "num_hidden_layers" is 1000000, which is not from 1 to 4096`},
		{"llama", "num_key_value_heads", `3`, "3 heads of keys and values do not divide 4 heads"},
		{"llama", "rms_norm_eps", `0`, `field "rms_norm_eps" is 0, which is no positive number that float32 has`},
		{"llama", "rms_norm_eps", `1e-60`, `field "rms_norm_eps" is 1e-60, which is no positive number`},
		{"llama", "hidden_act", `"quick_gelu"`, `field "hidden_act" is "quick_gelu", which is none of gelu`},
		{"llama", "attention_dropout", `0.1`, `field "attention_dropout" is 0.1, which is not supported: set it to 0`},
		{"llama", "quantization_config", `{"bits": 4}`, `field "quantization_config" is {"bits":4}, which is not supported: a field that nobody reads could change the model`},
		{"llama", "rope_theta", `7`, `field "rope_theta" is 500000, which is not the 7 that another field says`},
		{"llama", "rope_parameters", `{"rope_type": "yarn", "factor": 4}`, `field "rope_type" is "yarn", which is none of default, linear, llama3`},
		{"llama", "rope_parameters", `{"rope_type": "linear", "factor": 0.5}`, `field "factor" is 0.5, which is not from 1 to`},
		{"llama", "rope_parameters", `{"rope_type": "linear"}`, `field "factor" is missing`},
		{"llama3", "rope_parameters", `{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4, "original_max_position_embeddings": 16}`, `field "low_freq_factor" is 4, which is not from 0`},
		{"llama", "rope_parameters", `{"rope_theta": 1}`, `field "rope_theta" is 1, which is not from more than 1`},
		{"llama", "rope_parameters", `{"beta_fast": 1}`, `field "beta_fast" is 1, which is not supported`},
		{"llama", "partial_rotary_factor", `0.75`, `field "partial_rotary_factor" is 0.75, which is not supported: all channels of a head turn`},
		{"llama-biases", "pad_token_id", `96`, `field "pad_token_id" is 96, which is not from 0 to 95`},
		{"phi3", "pad_token_id", ``, `field "pad_token_id" is missing, which means 32000, beyond the vocabulary of 96`},
		{"qwen2", "layer_types", `["full_attention"]`, `field "layer_types" is an array of 1, which is not one of num_hidden_layers, 2`},
		{"qwen2", "layer_types", `["full_attention", "linear_attention"]`, `field "layer_types[1]" is "linear_attention", which is neither`},
		{"qwen2", "use_sliding_window", `true`, `field "sliding_window" is missing, and use_sliding_window or layer_types says`},
		{"qwen3-tied", "head_dim", ``, `field "head_dim" is missing`},
		{"mistral", "sliding_window", `9`, `--length is 10, and field "sliding_window" of its config.json allows 9`},
		{"phi3-partial", "rope_parameters", `{"partial_rotary_factor": 0.1}`, `field "partial_rotary_factor" is 0.1, which is no share of a head's 8 channels that is an even number from 2`},
		{"phi3-partial", "rope_parameters", `{"partial_rotary_factor": 1.5}`, `field "partial_rotary_factor" is 1.5, which is no share`},
		{"gemma", "hidden_activation", `"gelu"`, `field "hidden_activation" is "gelu", which is not supported: set it to "gelu_pytorch_tanh"`},
		{"gemma", "use_bidirectional_attention", `true`, `field "use_bidirectional_attention" is true, which is not supported`},
		{"bert", "architectures", `["BertModel"]`, `field "architectures" is "BertModel", which is not supported: want BertForMaskedLM or BertForSequenceClassification`},
		{"bert", "architectures", ``, `field "architectures" is an array of 0, which does not say which head the model has`},
		{"bert", "attention_probs_dropout_prob", ``, `field "attention_probs_dropout_prob" is 0.1, which is not supported, and missing means 0.1: set it to 0`},
		{"bert", "position_embedding_type", `"relative_key"`, `field "position_embedding_type" is "relative_key", which is not supported: set it to "absolute"`},
		{"bert", "is_decoder", `true`, `field "is_decoder" is true, which is not supported`},
		{"bert", "tie_word_embeddings", `false`, `field "tie_word_embeddings" is false, which is not supported`},
		{"bert", "max_position_embeddings", `9`, `--length is 10, and field "max_position_embeddings" of its config.json allows 9`},
		{"bert-classes", "problem_type", `"regression"`, `field "problem_type" is "regression", which is not supported: set it to "single_label_classification"`},
		{"bert-classes", "num_labels", `3`, `field "num_labels" is 3, which is not the number of classes that id2label has, 5`},
		{"bert-classes", "id2label", `{"0": "one"}`, `field "id2label" is 1, which is not from 2`},
		{"roberta", "max_position_embeddings", `11`, `allows 9: give at most that`},
		{"roberta", "pad_token_id", `null`, `field "pad_token_id" is -1, which is no token below max_position_embeddings`},
		{"roberta", "pad_token_id", `40`, `field "pad_token_id" is 40, which is no token below max_position_embeddings, 32`},
		{"distilbert", "sinusoidal_pos_embds", `true`, `field "sinusoidal_pos_embds" is true, which is not supported`},
		{"vit", "image_size", `[16, 16]`, `field "image_size"`},
		{"vit", "patch_size", `17`, `patches of 17 pixels are larger than images of 16`},
		{"vit", "num_attention_heads", `3`, `3 heads do not divide a width of 16`},
		{"gpt2", "n_positions", `9`, `--length is 10, and field "n_positions" of its config.json allows 9`},
		{"gpt2", "attn_pdrop", ``, `field "attn_pdrop" is 0.1, which is not supported, and missing means 0.1: set it to 0`},
		{"gpt2", "embd_pdrop", `0.2`, `field "embd_pdrop" is 0.2, which is another one than resid_pdrop, 0`},
		{"gpt2", "scale_attn_by_inverse_layer_idx", `true`, `field "scale_attn_by_inverse_layer_idx" is true, which is not supported`},
	} {
		_, err := described(t, with(configOf(t, c.name), map[string]string{c.field: c.value}))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s=%s: %v, want %s", c.name, c.field, c.value, err, c.want)
		}
	}
}

// Fields as earlier versions of transformers write them say the same, and null is no value.
func TestOtherSpellings(t *testing.T) {
	t.Parallel()
	all := configOf(t, "llama")
	want, err := described(t, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, changes := range []map[string]string{
		{"rope_parameters": "", "rope_theta": "500000"},
		{"rope_parameters": "", "rope_theta": "5e5", "rope_scaling": "null"},
		{"rope_parameters": "", "rope_theta": "5e5", "rope_scaling": `{"type": "default"}`},
		{"rope_theta": "500000.0"},
		{"head_dim": "null"},
		{"head_dim": "", "mlp_bias": "", "attention_bias": "", "tie_word_embeddings": "", "hidden_act": "", "torch_dtype": `"bfloat16"`, "architectures": ""},
		{"quantization_config": "null"},
	} {
		if have, err := described(t, with(all, changes)); err != nil || have != want {
			t.Errorf("%v: %v, %t", changes, err, have == want)
		}
	}
}

// Saved weights are float32, so that the config beside them says so; it is otherwise the one that was read.
func TestConfigBesideWeights(t *testing.T) {
	t.Parallel()
	f, err := Open(filepath.Join("testdata", "llama"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := f.Beside()
	if err != nil {
		t.Fatal(err)
	}
	var have, want map[string]any
	text, _ := json.Marshal(configOf(t, "llama"))
	if err := errors.Join(json.Unmarshal(files[configFile], &have), json.Unmarshal(text, &want)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(have, want) || len(files) != 1 {
		t.Errorf("%v, %d files", have, len(files))
	}
	for _, field := range []string{"dtype", "torch_dtype"} {
		text, err := inFloat32([]byte(`{"` + field + `": "bfloat16", "vocab_size": 12345678901234567890}`))
		if err != nil || !strings.Contains(string(text), `"`+field+`": "float32"`) || !strings.Contains(string(text), "12345678901234567890") {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// Files that are links, and folders that are something else, are refused.
func TestNothingOutsideTheFolderIsRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	inside, err := filepath.Abs(filepath.Join("testdata", "llama", configFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(inside, filepath.Join(folder, configFile)); err != nil {
		t.Skip(err)
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), filepath.Join(folder, configFile)) {
		t.Error(err)
	}
}

// No change of some bytes of a config makes a panic, a hang or a model of huge memory.
func TestMutatedConfigs(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	built := 0
	for i := range 3000 {
		text, err := os.ReadFile(filepath.Join("testdata", fixtures[i%len(fixtures)], configFile))
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(3) {
			at := r.IntN(len(text))
			switch r.IntN(4) {
			case 0:
				text[at] ^= 1 << r.IntN(8)
			case 1:
				text[at] = "0123456789.eE-{}[]\",:"[r.IntN(21)]
			case 2:
				text = slices.Delete(text, at, min(at+1+r.IntN(8), len(text)))
			case 3:
				text = slices.Insert(text, at, text[r.IntN(at+1):][:min(4, len(text)-at)]...)
			}
		}
		if _, err := describe(text); err == nil {
			built++
		}
	}
	if built == 0 || built == 3000 {
		t.Errorf("%d of 3000 were built: want some", built)
	}
}
