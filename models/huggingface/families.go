package huggingface

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"plimsoll/internal/fields"
	"plimsoll/models"
)

// family is a kind of model: the one architecture of it that is built, and what reads its fields.
type family struct {
	architecture string
	read         func(r *reader) *config
}

// families are the model types by their names in config.json.
var families = map[string]family{
	"gpt2":    {"GPT2LMHeadModel", readGPT2},
	"llama":   {"LlamaForCausalLM", readLlama},
	"mistral": {"MistralForCausalLM", readMistral},
	"phi3":    {"Phi3ForCausalLM", readPhi3},
	"qwen2":   {"Qwen2ForCausalLM", readQwen2},
	"qwen3":   {"Qwen3ForCausalLM", readQwen3},
}

// readGPT2 reads a GPT2Config.
func readGPT2(r *reader) *config {
	l := models.Language{
		Vocabulary: r.size("vocab_size"), Positions: r.size("n_positions"), Width: r.size("n_embd"), Heads: r.size("n_head"), Blocks: r.blocks("n_layer"),
		Hidden: r.sizeOr("n_inner", 0), Epsilon: r.epsilon("layer_norm_epsilon"), Activation: r.activation("activation_function", "gelu_new"),
		Tied: r.o.Bool("tie_word_embeddings", true),
	}
	const published = 0.1 // of each dropout where the config says nothing
	l.Dropout = r.probability("resid_pdrop", published)
	if p := r.probability("embd_pdrop", published); p != l.Dropout {
		r.o.Refuse("embd_pdrop", fmt.Sprint(p), fmt.Sprintf("is another one than resid_pdrop, %v: only the same one is supported", l.Dropout))
	}
	if p := r.probability("attn_pdrop", published); p != 0 {
		r.o.Refuse("attn_pdrop", fmt.Sprint(p), "is not supported, and missing means 0.1: set it to 0, so that attention weights are not dropped out")
	}
	r.only("scale_attn_weights", "true")
	r.only("scale_attn_by_inverse_layer_idx", "false")
	r.only("reorder_and_upcast_attn", "false")
	r.only("n_ctx", strconv.Itoa(l.Positions))
	return &config{language: l, build: models.GPT2, longest: longest{l.Positions, "n_positions"}}
}

// decoder reads the fields that all families like Llama have. kvHeads are the heads of keys and values where no field says them; 0: those of
// queries.
func (r *reader) decoder(kvHeads int) *config {
	l := models.Language{
		Vocabulary: r.size("vocab_size"), Width: r.size("hidden_size"), Heads: r.size("num_attention_heads"), Blocks: r.blocks("num_hidden_layers"),
		Hidden: r.size("intermediate_size"), Epsilon: r.epsilon("rms_norm_eps"), Activation: r.activation("hidden_act", "silu"),
		Tied: r.o.Bool("tie_word_embeddings", false),
	}
	if _, there := r.o.Rest()["num_key_value_heads"]; there {
		kvHeads = 0 // null means those of queries
	}
	l.KVHeads = r.sizeOr("num_key_value_heads", kvHeads)
	r.rope(&l)
	return &config{language: l, build: models.Llama}
}

// readLlama reads a LlamaConfig.
func readLlama(r *reader) *config {
	c := r.decoder(0)
	f := &c.language.Form
	f.HeadDim, f.Padding = r.sizeOr("head_dim", 0), r.padding(noPadding, c.language.Vocabulary)
	f.QKVBias = r.o.Bool("attention_bias", false)
	f.OutputBias, f.MLPBias = f.QKVBias, r.o.Bool("mlp_bias", false)
	return c
}

// readQwen2 reads a Qwen2Config.
func readQwen2(r *reader) *config {
	c := r.decoder(0)
	f := &c.language.Form
	f.HeadDim, f.Padding, f.QKVBias = r.sizeOr("head_dim", 0), r.padding(noPadding, c.language.Vocabulary), true
	r.chosenWindow(c)
	return c
}

// readQwen3 reads a Qwen3Config. Where no field says the channels of a head, versions of transformers differ.
func readQwen3(r *reader) *config {
	c := r.decoder(0)
	f := &c.language.Form
	f.HeadDim, f.Padding, f.NormHeads = r.size("head_dim"), r.padding(noPadding, c.language.Vocabulary), true
	f.QKVBias = r.o.Bool("attention_bias", false)
	f.OutputBias = f.QKVBias
	r.chosenWindow(c)
	return c
}

// readMistral reads a MistralConfig.
func readMistral(r *reader) *config {
	const published, window = 8, 4096 // where the config says nothing
	c := r.decoder(published)
	c.language.Form.HeadDim, c.language.Form.Padding = r.sizeOr("head_dim", 0), r.padding(noPadding, c.language.Vocabulary)
	missing := 0
	if _, there := r.o.Rest()["sliding_window"]; !there {
		missing = window
	}
	c.longest = longest{r.sizeOr("sliding_window", missing), "sliding_window"}
	return c
}

// readPhi3 reads a Phi3Config.
func readPhi3(r *reader) *config {
	const padding = 32000 // where the config says nothing
	c := r.decoder(0)
	c.language.Form.Joined, c.language.Form.Padding = true, r.padding(padding, c.language.Vocabulary)
	r.only("embd_pdrop", "0")
	r.only("resid_pdrop", "0")
	r.only("attention_bias", "false")
	c.longest = longest{r.sizeOr("sliding_window", 0), "sliding_window"}
	return c
}

// chosenWindow reads the fields by which some layers of Qwen see a window alone. Samples that fit into it are computed alike.
func (r *reader) chosenWindow(c *config) {
	window := longest{r.sizeOr("sliding_window", 0), "sliding_window"}
	slides := r.o.Bool("use_sliding_window", false)
	layers := r.o.Array("layer_types")
	if layers != nil && len(layers) != c.language.Blocks {
		r.o.Refuse("layer_types", fmt.Sprintf("an array of %d", len(layers)), fmt.Sprintf("is not one of num_hidden_layers, %d", c.language.Blocks))
	}
	for i, raw := range layers {
		switch string(raw) {
		case `"full_attention"`:
		case `"sliding_attention"`:
			slides = true
		default:
			r.o.Refuse(fmt.Sprintf("layer_types[%d]", i), brief(raw), "is neither full_attention nor sliding_attention")
		}
	}
	switch {
	case slides && window.tokens == 0:
		r.o.Refuse("sliding_window", "", "is missing, and use_sliding_window or layer_types says that layers have one")
	case slides:
		c.longest = window
	}
}

// normalBase is the base of the angles where a config says nothing.
const normalBase = 10000

// rope reads how positions turn: rope_parameters, as transformers 5 writes it, or rope_theta and rope_scaling, as earlier versions do.
func (r *reader) rope(l *models.Language) {
	l.RotaryBase = normalBase
	base := r.o.OptionalFloat("rope_theta")
	partial := r.o.OptionalFloat("partial_rotary_factor")
	for _, name := range []string{"rope_scaling", "rope_parameters"} {
		if !r.o.Has(name) {
			continue
		}
		inner := r.o.Object(name)
		for _, field := range []struct {
			name string
			to   **float64
		}{{"rope_theta", &base}, {"partial_rotary_factor", &partial}} {
			x := inner.OptionalFloat(field.name)
			if x != nil && *field.to != nil && **field.to != *x {
				inner.Refuse(field.name, fmt.Sprint(*x), fmt.Sprintf("is not the %v that another field says", **field.to))
			}
			if x != nil {
				*field.to = x
			}
		}
		r.scaling(l, inner)
		if err := inner.Err(); err != nil {
			r.o.Refuse(name, "an object", "cannot be used: "+err.Error())
		}
	}
	if base != nil {
		l.RotaryBase = *base
		if !(*base > 1) || *base > 1e30 {
			r.o.Refuse("rope_theta", fmt.Sprint(*base), "is not from more than 1 to 1e30")
		}
	}
	if partial != nil && *partial != 1 {
		r.o.Refuse("partial_rotary_factor", fmt.Sprint(*partial), "is not supported: all channels of a head turn, as with 1")
	}
}

// scaling reads how the angles are scaled.
func (r *reader) scaling(l *models.Language, o *fields.Object) {
	kind := o.String("rope_type", "")
	if old := o.String("type", kind); kind == "" {
		kind = old
	}
	s := &l.Scaling
	switch kind {
	case "", "default":
	case "linear":
		o.Require("factor")
		s.Factor, s.High = o.Float("factor", 1), 1
	case "llama3":
		o.Require("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
		s.Factor, s.Low, s.High = o.Float("factor", 1), o.Float("low_freq_factor", 1), o.Float("high_freq_factor", 1)
		s.Positions = float64(r.within("original_max_position_embeddings", o.Int("original_max_position_embeddings", 1), 1, mostSize))
		if !(s.Low >= 0 && s.Low < s.High && s.High <= mostSize) {
			o.Refuse("low_freq_factor", fmt.Sprint(s.Low), fmt.Sprintf("is not from 0 to less than high_freq_factor, %v", s.High))
		}
	default:
		o.Refuse("rope_type", strconv.Quote(kind), "is none of default, linear, llama3, which alone are supported")
	}
	if kind != "" && kind != "default" && !(s.Factor >= 1 && s.Factor <= mostSize) {
		o.Refuse("factor", fmt.Sprint(s.Factor), fmt.Sprintf("is not from 1 to %d", mostSize))
	}
	rest := o.Rest()
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		if string(rest[name]) != "null" {
			o.Refuse(name, brief(rest[name]), "is not supported")
		}
	}
}
