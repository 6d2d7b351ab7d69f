package huggingface

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/fields"
	"plimsoll/kernels"
)

// reader takes the fields of a config.json one by one.
type reader struct {
	o      *fields.Object
	turned *float64 // the share of a head's channels that turn, unless its family has taken it; nil: all turn
}

// mostBlocks and mostSize bound what a config may ask for, so that a bad one costs no time.
const (
	mostBlocks = 4096
	mostSize   = kernels.MaxExtent / 4
)

// unread are fields that change no number that training computes, each with the reason.
var unread = map[string]string{
	"_name_or_path":                    "a name",
	"architectures":                    "checked before",
	"auto_map":                         "names code beside the model, which nothing runs",
	"bos_token_id":                     "for generation and tokenizers",
	"decoder_start_token_id":           "for generation",
	"dtype":                            "weights are computed with in the type of --dtype",
	"encoder_stride":                   "of another head",
	"eos_token_id":                     "for generation and tokenizers",
	"gradient_checkpointing":           "what PyTorch keeps",
	"id2label":                         "names of classes that language models do not have",
	"initializer_range":                "weights are read, not drawn",
	"is_decoder":                       "decoders alone are built",
	"label2id":                         "names of classes that language models do not have",
	"max_position_embeddings":          "rotation has no table: every length is computed alike",
	"max_window_layers":                "a window is refused in any layer",
	"original_max_position_embeddings": "for scalings of positions that are refused",
	"output_attentions":                "what is returned",
	"output_hidden_states":             "what is returned",
	"pooler_act":                       "of another head",
	"pooler_output_size":               "of another head",
	"pretraining_tp":                   "the order of sums",
	"problem_type":                     "for classifiers of sequences",
	"qa_dropout":                       "of another head",
	"return_dict":                      "what is returned",
	"return_dict_in_generate":          "for generation",
	"summary_activation":               "of another head",
	"summary_first_dropout":            "of another head",
	"summary_proj_to_labels":           "of another head",
	"summary_type":                     "of another head",
	"summary_use_proj":                 "of another head",
	"task_specific_params":             "for generation",
	"tokenizer_class":                  "a name",
	"torch_dtype":                      "see dtype",
	"torchscript":                      "how PyTorch runs it",
	"transformers_version":             "a name",
	"use_cache":                        "for generation",
}

// finish refuses fields that have another value than the one that is supported, and fields that nobody has read. Null is no value.
func (r *reader) finish() {
	if r.turned != nil && *r.turned != 1 {
		r.o.Refuse("partial_rotary_factor", fmt.Sprint(*r.turned), "is not supported: all channels of a head turn, as with 1")
	}
	r.only("attention_dropout", "0")
	r.only("add_cross_attention", "false")
	r.only("is_encoder_decoder", "false")
	r.only("chunk_size_feed_forward", "0")
	r.only("tie_encoder_decoder", "false")
	rest := r.o.Rest()
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		if _, known := unread[name]; known || string(rest[name]) == "null" {
			continue
		}
		r.o.Refuse(name, brief(rest[name]), "is not supported: a field that nobody reads could change the model")
	}
}

// brief shortens a value for a message.
func brief(raw []byte) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}

// only takes a field that may have one value, as it is written in JSON, or be missing.
func (r *reader) only(name, value string) {
	raw := r.o.Raw(name)
	if raw == nil || string(raw) == value || string(raw) == "null" {
		return
	}
	want, wantErr := strconv.ParseFloat(value, 64)
	if have, err := strconv.ParseFloat(string(raw), 64); err == nil && wantErr == nil && have == want {
		return
	}
	r.o.Refuse(name, brief(raw), fmt.Sprintf("is not supported: set it to %s if the model is to be trained so", value))
}

// size takes a whole number from 1, which must be there.
func (r *reader) size(name string) int {
	r.o.Require(name)
	return r.within(name, r.o.Int(name, 1), 1, mostSize)
}

// sizeOr takes a whole number from 1; missing or null is another number.
func (r *reader) sizeOr(name string, missing int) int {
	if n := r.o.OptionalInt(name); n != nil {
		return r.within(name, *n, 1, mostSize)
	}
	return missing
}

func (r *reader) within(name string, n, least, most int64) int {
	if n < least || n > most {
		r.o.Refuse(name, strconv.FormatInt(n, 10), fmt.Sprintf("is not from %d to %d", least, most))
		return int(least)
	}
	return int(n)
}

// blocks takes the number of blocks.
func (r *reader) blocks(name string) int {
	r.o.Require(name)
	return r.within(name, r.o.Int(name, 1), 1, mostBlocks)
}

// epsilon takes what norms add before the root.
func (r *reader) epsilon(name string) float32 {
	r.o.Require(name)
	x := r.o.Float(name, 1)
	if e := float32(x); !(e > 0) || math.IsInf(float64(e), 1) {
		r.o.Refuse(name, strconv.FormatFloat(x, 'g', -1, 64), "is no positive number that float32 has")
	}
	return float32(x)
}

// probability takes the share that a dropout drops.
func (r *reader) probability(name string, missing float64) float32 {
	p := r.o.Float(name, missing)
	if !(p >= 0 && p < 1) {
		r.o.Refuse(name, strconv.FormatFloat(p, 'g', -1, 64), "is not from 0 to less than 1")
	}
	return float32(p)
}

// activations are the functions of an MLP by their names in transformers.
var activations = map[string]kernels.Op{
	"gelu": kernels.GELU{}, "gelu_new": kernels.GELU{Tanh: true}, "gelu_pytorch_tanh": kernels.GELU{Tanh: true},
	"relu": kernels.ReLU{}, "silu": kernels.SiLU{}, "swish": kernels.SiLU{},
}

// activation takes the function of an MLP.
func (r *reader) activation(name, missing string) kernels.Op {
	text := r.o.String(name, missing)
	op, known := activations[text]
	if !known {
		r.o.Refuse(name, strconv.Quote(text), "is none of "+strings.Join(slices.Sorted(maps.Keys(activations)), ", "))
	}
	return op
}

// padding takes the token whose row of the embedding is not trained, plus 1; missing is the family's, null is none.
func (r *reader) padding(missing int64, vocabulary int) int {
	if _, there := r.o.Rest()["pad_token_id"]; !there {
		if missing >= int64(vocabulary) {
			r.o.Refuse("pad_token_id", "", fmt.Sprintf("is missing, which means %d, beyond the vocabulary of %d: write null or a token", missing, vocabulary))
			return 0
		}
		return int(missing) + 1
	}
	if n := r.o.OptionalInt("pad_token_id"); n != nil {
		return r.within("pad_token_id", *n, 0, int64(vocabulary)-1) + 1
	}
	return 0
}

// noPadding is the token of padding of families that have none unless a config says so.
const noPadding = -1

// checkArchitecture returns the architecture that a config names, and refuses others than those of its family.
func (r *reader) checkArchitecture(family []string) string {
	want := strings.Join(family, " or ")
	raw := r.o.Array("architectures")
	if len(family) == 1 {
		want += " alone"
	} else if len(raw) != 1 && r.o.Err() == nil {
		r.o.Refuse("architectures", fmt.Sprintf("an array of %d", len(raw)), "does not say which head the model has: want "+want)
	}
	found := family[0]
	for _, name := range raw {
		i := slices.IndexFunc(family, func(f string) bool { return string(name) == strconv.Quote(f) })
		if i < 0 {
			r.o.Refuse("architectures", brief(name), "is not supported: want "+want)
			continue
		}
		found = family[i]
	}
	return found
}

// published is the share that families drop where the config says nothing.
const published = 0.1

// keepAttention refuses a share of attention weights that is dropped out.
func (r *reader) keepAttention(name string, missing float64) {
	if p := r.probability(name, missing); p != 0 {
		r.o.Refuse(name, fmt.Sprint(p), fmt.Sprintf("is not supported, and missing means %v: set it to 0, so that attention weights are not dropped out", missing))
	}
}

// labels takes the number of classes of a classifier; missing means 2.
func (r *reader) labels() int {
	const normal, field = 2, "id2label"
	n := normal
	if r.o.Has(field) {
		n = r.within(field, int64(len(r.o.Object(field).Rest())), 2, mostSize)
	} else {
		r.o.Raw(field)
	}
	if told := r.o.OptionalInt("num_labels"); told != nil && *told != int64(n) {
		r.o.Refuse("num_labels", strconv.FormatInt(*told, 10), fmt.Sprintf("is not the number of classes that id2label has, %d", n))
	}
	r.only("problem_type", `"single_label_classification"`)
	return n
}
