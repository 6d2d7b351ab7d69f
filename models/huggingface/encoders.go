package huggingface

import (
	"fmt"
	"strings"

	"plimsoll/kernels"
	"plimsoll/models"
)

// readBERT reads a BertConfig.
func readBERT(r *reader, architecture string) *config {
	e := r.encoder(architecture)
	e.Padding = r.padding(0, e.Vocabulary)
	e.Names = blocksOfBERT("bert")
	e.Names.Pool, e.Names.Classifier = "bert.pooler.dense", "classifier"
	e.Names.Dense, e.Names.DenseNorm = "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"
	e.Names.Decoder, e.Names.TokenBias = "cls.predictions.decoder", "cls.predictions.bias"
	e.Pooler, e.Transform = kernels.Pointwise{Of: kernels.Tanh}, e.Activation
	return ofEncoder(e)
}

// readRoBERTa reads a RobertaConfig. Positions count from behind the token of padding.
func readRoBERTa(r *reader, architecture string) *config {
	const padding = 1 // where the config says nothing
	e := r.encoder(architecture)
	if e.Padding = r.padding(padding, e.Vocabulary); e.Padding == 0 || e.Padding >= e.Positions {
		r.o.Refuse("pad_token_id", fmt.Sprint(e.Padding-1), fmt.Sprintf("is no token below max_position_embeddings, %d, from which positions count", e.Positions))
		e.Padding = 1
	}
	e.Uncounted = e.Padding
	e.Names = blocksOfBERT("roberta")
	e.Names.Pool, e.Names.Classifier = "classifier.dense", "classifier.out_proj"
	e.Names.Dense, e.Names.DenseNorm, e.Names.Decoder, e.Names.TokenBias = "lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"
	e.PoolFirst, e.Pooler, e.Transform = true, kernels.Pointwise{Of: kernels.Tanh}, kernels.GELU{}
	return ofEncoder(e)
}

// readDistilBERT reads a DistilBertConfig.
func readDistilBERT(r *reader, architecture string) *config {
	const droppedBefore, epsilon = 0.2, 1e-12 // of the classifier where the config says nothing; of all norms
	e := models.Encoder{Language: models.Language{
		Vocabulary: r.size("vocab_size"), Width: r.size("dim"), Heads: r.size("n_heads"), Blocks: r.blocks("n_layers"), Hidden: r.size("hidden_dim"),
		Positions: r.size("max_position_embeddings"), Dropout: r.probability("dropout", published), Epsilon: epsilon, Activation: r.activation("activation", "gelu"),
	}}
	r.keepAttention("attention_dropout", published)
	r.only("sinusoidal_pos_embds", "false")
	r.only("tie_word_embeddings", "true")
	e.Padding = r.padding(0, e.Vocabulary)
	e.Pooled = r.probability("seq_classif_dropout", droppedBefore)
	r.head(&e, architecture)
	e.Names = models.EncoderNames{
		Module: "distilbert", Blocks: "transformer.layer",
		Queries: "attention.q_lin", Keys: "attention.k_lin", Values: "attention.v_lin", Output: "attention.out_lin", OutputNorm: "sa_layer_norm",
		Up: "ffn.lin1", Down: "ffn.lin2", Norm: "output_layer_norm",
		Dense: "vocab_transform", DenseNorm: "vocab_layer_norm", Decoder: "vocab_projector", TokenBias: "vocab_projector.bias",
		Pool: "pre_classifier", Classifier: "classifier",
	}
	e.Pooler, e.Transform = kernels.ReLU{}, e.Activation
	return ofEncoder(e)
}

// encoder reads the fields that BERT and RoBERTa have.
func (r *reader) encoder(architecture string) models.Encoder {
	e := models.Encoder{Language: models.Language{
		Vocabulary: r.size("vocab_size"), Width: r.size("hidden_size"), Heads: r.size("num_attention_heads"), Blocks: r.blocks("num_hidden_layers"),
		Hidden: r.size("intermediate_size"), Positions: r.size("max_position_embeddings"), Dropout: r.probability("hidden_dropout_prob", published),
		Epsilon: r.epsilon("layer_norm_eps"), Activation: r.activation("hidden_act", "gelu"),
	}, Types: r.size("type_vocab_size")}
	e.Pooled = e.Dropout
	if r.o.Has("classifier_dropout") {
		e.Pooled = r.probability("classifier_dropout", 0)
	}
	r.o.Raw("classifier_dropout")
	r.keepAttention("attention_probs_dropout_prob", published)
	r.only("is_decoder", "false")
	r.only("position_embedding_type", `"absolute"`)
	r.only("tie_word_embeddings", "true")
	r.head(&e, architecture)
	return e
}

// head reads the fields of the head that an architecture has.
func (r *reader) head(e *models.Encoder, architecture string) {
	if e.Masked = strings.HasSuffix(architecture, "ForMaskedLM"); !e.Masked {
		e.Classes = r.labels()
	}
}

// blocksOfBERT are the names of blocks that BERT and RoBERTa have.
func blocksOfBERT(module string) models.EncoderNames {
	return models.EncoderNames{
		Module: module, Blocks: "encoder.layer",
		Queries: "attention.self.query", Keys: "attention.self.key", Values: "attention.self.value", Output: "attention.output.dense",
		OutputNorm: "attention.output.LayerNorm", Up: "intermediate.dense", Down: "output.dense", Norm: "output.LayerNorm",
	}
}

// ofEncoder makes the config of a text encoder.
func ofEncoder(e models.Encoder) *config {
	c := &config{language: e.Language, classes: e.Vocabulary, masked: e.Masked, perSample: !e.Masked}
	c.longest = longest{e.Positions - e.Uncounted, "max_position_embeddings"}
	if c.perSample {
		c.classes = e.Classes
	}
	c.build = func(name string, of models.Config) (*models.Model, error) {
		e := e
		e.Language = c.sized(of)
		return models.EncoderOf(name, e)
	}
	return c
}

// readViT reads a ViTConfig.
func readViT(r *reader, _ string) *config {
	v := models.Vision{
		Image: r.size("image_size"), Patch: r.size("patch_size"), Channels: r.size("num_channels"), Width: r.size("hidden_size"),
		Heads: r.size("num_attention_heads"), Blocks: r.blocks("num_hidden_layers"), Hidden: r.size("intermediate_size"), QKVBias: r.o.Bool("qkv_bias", true),
		Dropout: r.probability("hidden_dropout_prob", 0), Epsilon: r.epsilon("layer_norm_eps"), Activation: r.activation("hidden_act", "gelu"), Classes: r.labels(),
	}
	r.keepAttention("attention_probs_dropout_prob", 0)
	c := &config{classes: v.Classes, image: v.Image, channels: v.Channels}
	c.build = func(name string, of models.Config) (*models.Model, error) {
		v := v
		v.Batch, v.DType = of.Batch, of.DType
		return models.ViT(name, v)
	}
	return c
}
