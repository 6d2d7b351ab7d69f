package huggingface

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"plimsoll/internal/fields"
	"plimsoll/kernels"
	"plimsoll/models"
)

// family is a kind of model: the architectures of it that are built, and what reads its fields.
type family struct {
	architectures []string
	read          func(r *reader, architecture string) *config
}

// families are the model types by their names in config.json.
var families = map[string]family{
	"bert":       {[]string{"BertForMaskedLM", "BertForSequenceClassification"}, readBERT},
	"distilbert": {[]string{"DistilBertForMaskedLM", "DistilBertForSequenceClassification"}, readDistilBERT},
	"gemma":      {[]string{"GemmaForCausalLM"}, readGemma},
	"gpt2":       {[]string{"GPT2LMHeadModel"}, readGPT2},
	"llama":      {[]string{"LlamaForCausalLM"}, readLlama},
	"mistral":    {[]string{"MistralForCausalLM"}, readMistral},
	"phi3":       {[]string{"Phi3ForCausalLM"}, readPhi3},
	"qwen2":      {[]string{"Qwen2ForCausalLM"}, readQwen2},
	"qwen3":      {[]string{"Qwen3ForCausalLM"}, readQwen3},
	"roberta":    {[]string{"RobertaForMaskedLM", "RobertaForSequenceClassification"}, readRoBERTa},
	"vit":        {[]string{"ViTForImageClassification"}, readViT},
}

// readGPT2 reads a GPT2Config.
func readGPT2(r *reader, _ string) *config {
	l := models.Language{
		Vocabulary: r.size("vocab_size"), Positions: r.size("n_positions"), Width: r.size("n_embd"), Heads: r.size("n_head"), Blocks: r.blocks("n_layer"),
		Hidden: r.sizeOr("n_inner", 0), Epsilon: r.epsilon("layer_norm_epsilon"), Activation: r.activation("activation_function", "gelu_new"),
		Tied: r.o.Bool("tie_word_embeddings", true),
	}
	l.Dropout = r.probability("resid_pdrop", published)
	if p := r.probability("embd_pdrop", published); p != l.Dropout {
		r.o.Refuse("embd_pdrop", fmt.Sprint(p), fmt.Sprintf("is another one than resid_pdrop, %v: only the same one is supported", l.Dropout))
	}
	r.keepAttention("attn_pdrop", published)
	r.only("scale_attn_weights", "true")
	r.only("scale_attn_by_inverse_layer_idx", "false")
	r.only("reorder_and_upcast_attn", "false")
	r.only("n_ctx", strconv.Itoa(l.Positions))
	c := ofDecoder(l, models.GPT2)
	c.longest = longest{l.Positions, "n_positions"}
	return c
}

// decoder reads the fields that all families like Llama have. If no field gives the heads of keys and values, they are kvHeads; 0: as many
// as of queries. If no field says whether the last layer has the embedding's weight, tied does.
func (r *reader) decoder(kvHeads int, tied bool) *config {
	l := models.Language{
		Vocabulary: r.size("vocab_size"), Width: r.size("hidden_size"), Heads: r.size("num_attention_heads"), Blocks: r.blocks("num_hidden_layers"),
		Hidden: r.size("intermediate_size"), Epsilon: r.epsilon("rms_norm_eps"), Tied: r.o.Bool("tie_word_embeddings", tied),
	}
	if _, there := r.o.Rest()["num_key_value_heads"]; there {
		kvHeads = 0 // null means those of queries
	}
	l.KVHeads = r.sizeOr("num_key_value_heads", kvHeads)
	r.rope(&l)
	return ofDecoder(l, models.Llama)
}

// readLlama reads a LlamaConfig.
func readLlama(r *reader, _ string) *config {
	c := r.decoder(0, false)
	c.language.Activation = r.activation("hidden_act", "silu")
	f := &c.language.Form
	f.HeadDim, f.Padding = r.sizeOr("head_dim", 0), r.padding(noPadding, c.language.Vocabulary)
	f.QKVBias = r.o.Bool("attention_bias", false)
	f.OutputBias, f.MLPBias = f.QKVBias, r.o.Bool("mlp_bias", false)
	return c
}

// readQwen2 reads a Qwen2Config.
func readQwen2(r *reader, _ string) *config {
	c := r.decoder(0, false)
	c.language.Activation = r.activation("hidden_act", "silu")
	f := &c.language.Form
	f.HeadDim, f.Padding, f.QKVBias = r.sizeOr("head_dim", 0), r.padding(noPadding, c.language.Vocabulary), true
	r.chosenWindow(c)
	return c
}

// readQwen3 reads a Qwen3Config. Where no field says the channels of a head, versions of transformers differ.
func readQwen3(r *reader, _ string) *config {
	c := r.decoder(0, false)
	c.language.Activation = r.activation("hidden_act", "silu")
	f := &c.language.Form
	f.HeadDim, f.Padding, f.NormHeads = r.size("head_dim"), r.padding(noPadding, c.language.Vocabulary), true
	f.QKVBias = r.o.Bool("attention_bias", false)
	f.OutputBias = f.QKVBias
	r.chosenWindow(c)
	return c
}

// readMistral reads a MistralConfig.
func readMistral(r *reader, _ string) *config {
	const heads, window = 8, 4096 // where the config says nothing
	c := r.decoder(heads, false)
	c.language.Activation = r.activation("hidden_act", "silu")
	c.language.Form.HeadDim, c.language.Form.Padding = r.sizeOr("head_dim", 0), r.padding(noPadding, c.language.Vocabulary)
	missing := 0
	if _, there := r.o.Rest()["sliding_window"]; !there {
		missing = window
	}
	c.longest = longest{r.sizeOr("sliding_window", missing), "sliding_window"}
	return c
}

// readPhi3 reads a Phi3Config.
func readPhi3(r *reader, _ string) *config {
	const padding = 32000 // where the config says nothing
	c := r.decoder(0, false)
	c.language.Activation = r.activation("hidden_act", "silu")
	c.language.Form.Joined, c.language.Form.Padding = true, r.padding(padding, c.language.Vocabulary)
	r.partial(c)
	r.only("embd_pdrop", "0")
	r.only("resid_pdrop", "0")
	r.only("attention_bias", "false")
	c.longest = longest{r.sizeOr("sliding_window", 0), "sliding_window"}
	return c
}

// readGemma reads a GemmaConfig. The activation "gelu" means the one by tanh, as transformers has it.
func readGemma(r *reader, _ string) *config {
	const act = "gelu_pytorch_tanh"
	c := r.decoder(0, true)
	l := &c.language
	l.Activation = r.activation("hidden_act", act)
	if l.Activation == (kernels.GELU{}) {
		l.Activation = kernels.GELU{Tanh: true}
	}
	r.only("hidden_activation", strconv.Quote(act))
	r.only("use_bidirectional_attention", "false")
	l.Form.HeadDim, l.Form.Padding, l.Form.FromOne = r.size("head_dim"), r.padding(0, l.Vocabulary), true
	l.Form.EmbedFactor = float32(math.Sqrt(float64(l.Width)))
	l.Form.QKVBias = r.o.Bool("attention_bias", false)
	l.Form.OutputBias = l.Form.QKVBias
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
	r.turned = partial
}

// partial takes the share of a head's channels that turn.
func (r *reader) partial(c *config) {
	share := r.turned
	width, heads := c.language.Width, c.language.Heads
	if r.turned = nil; share == nil || *share == 1 || width%heads != 0 {
		return
	}
	dim := width / heads
	n := int(float64(dim) * *share)
	if !(*share > 0 && *share < 1) || n < 2 || n%2 != 0 {
		r.o.Refuse("partial_rotary_factor", fmt.Sprint(*share), fmt.Sprintf("is no share of a head's %d channels that is an even number from 2", dim))
	}
	c.language.Form.Turned = n
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
