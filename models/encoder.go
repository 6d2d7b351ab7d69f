package models

import (
	"fmt"
	"strings"

	"plimsoll/kernels"
)

// Encoder holds the sizes and the names of a text encoder like BERT. A sample has one class of Classes or, with Masked, each token has one of the
// vocabulary.
type Encoder struct {
	Language
	Names     EncoderNames
	Masked    bool
	Classes   int
	Types     int     // rows of the table of token types, of which every token has the first; 0: there is none
	Padding   int     // 1 + the token whose row of the embedding is not trained; 0: none
	Uncounted int     // see kernels.Embedding
	Pooled    float32 // dropout before the classifier
	PoolFirst bool    // dropout comes before the dense layer of a classifier too
	Pooler    kernels.Op
	Transform kernels.Op // of the head of masked tokens
}

// EncoderNames are the names that a family has for its parameters.
type EncoderNames struct {
	Module, Blocks                       string
	Queries, Keys, Values, Output        string // of attention
	OutputNorm, Up, Down, Norm           string // of a block
	Dense, DenseNorm, Decoder, TokenBias string // of the head of masked tokens
	Pool, Classifier                     string // of the head of a class
}

// EncoderOf returns the text encoder of Devlin et al. 2019, BERT, section 3, with one of two heads. Attention sees both directions, norms come
// behind the sums, positions are learned, and tokens have types. RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019) differ by fields.
// Each half of a block, attention and MLP, is a layer of the chain. The head of masked tokens has the embedding's weight.
//
// Queries, keys and values are the rows, in this order, of one weight, which files have as three. Errors: ErrConfig, ErrGraph.
func EncoderOf(name string, e Encoder) (*Model, error) {
	classes := e.Vocabulary
	if !e.Masked {
		classes = e.Classes
	}
	if err := e.checkEncoder(classes); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b := NewBuilder(name, kernels.Desc{Shape: kernels.Shape{e.Batch, e.Length}, DType: kernels.Int32}, classes)
	b.DType, b.LinearStart, b.BiasStart, b.Parts = e.DType, NormalFiftieth, Zeros, e.encoderParts
	if !e.Masked {
		b.PerSample()
	}
	b.Layer("embed", e.Names.Module+".embeddings", e.embed)
	for i := range e.Blocks {
		block := fmt.Sprintf("%s.%d", e.Names.Blocks, i)
		b.Layer(block+".attn", e.Names.Module+"."+block, e.attend)
		b.Layer(block+".mlp", e.Names.Module+"."+block, e.feed)
	}
	if e.Masked {
		b.Tie(e.Names.Decoder+".weight", e.Names.Module+".embeddings.words.weight")
		b.Layer("head", "", e.unmask)
	} else {
		b.Layer("head", "", e.classify)
	}
	return b.Model()
}

// embed is norm(words + positions + type).
func (e Encoder) embed(g *Graph, x Value) Value {
	x = g.Op("words", kernels.Embedding{
		Vocabulary: e.Vocabulary, Width: e.Width, Positions: e.Positions, To: e.DType.Stored(), Fixed: e.Padding, Uncounted: e.Uncounted,
	}, x)
	if e.Types > 0 {
		x = g.Op("token_type_embeddings", kernels.AddRows{Rows: e.Types}, x)
	}
	return e.drop(g, "drop", e.layerNorm(g, "LayerNorm", x))
}

// attend is norm(x + output(attention(qkv(x)))).
func (e Encoder) attend(g *Graph, x Value) Value {
	y := g.Op("attention", kernels.Attention{Heads: e.Heads, Bidirectional: true}, g.Dense("qkv", x, 3*e.Width))
	sum := g.Add("add_1", x, e.drop(g, "attention.drop", g.Dense(e.Names.Output, y, e.Width)))
	return e.layerNorm(g, e.Names.OutputNorm, sum)
}

// feed is norm(x + down(act(up(x)))).
func (e Encoder) feed(g *Graph, x Value) Value {
	y := g.Op("act", e.activation(kernels.GELU{}), g.Dense(e.Names.Up, x, e.Hidden))
	return e.layerNorm(g, e.Names.Norm, g.Add("add_2", x, e.drop(g, "drop", g.Dense(e.Names.Down, y, e.Width))))
}

// unmask is decoder(norm(act(dense(x)))).
func (e Encoder) unmask(g *Graph, x Value) Value {
	y := e.layerNorm(g, e.Names.DenseNorm, g.Op("act", e.Transform, g.Dense(e.Names.Dense, x, e.Width)))
	return g.Dense(e.Names.Decoder, y, e.Vocabulary)
}

// classify is classifier(pooler(dense(x[0]))) of the first token.
func (e Encoder) classify(g *Graph, x Value) Value {
	e.Dropout = e.Pooled
	first := g.Op("first", kernels.Slice{H: 1, W: 1, C: e.Width}, x)
	if e.PoolFirst {
		first = e.drop(g, "drop_1", first)
	}
	y := g.Op("pooler", e.Pooler, g.Linear(e.Names.Pool, first, e.Width))
	return g.Linear(e.Names.Classifier, e.drop(g, "drop_2", y), e.Classes)
}

// encoderParts gives parameters the names and the shapes of the family.
func (e Encoder) encoderParts(p Parameter) []Part {
	embeddings := e.Names.Module + ".embeddings."
	if module, kind, fused := strings.Cut(p.Name, ".qkv."); fused {
		return []Part{
			{Name: module + "." + e.Names.Queries + "." + kind, Rows: e.Width},
			{Name: module + "." + e.Names.Keys + "." + kind, Rows: e.Width},
			{Name: module + "." + e.Names.Values + "." + kind, Rows: e.Width},
		}
	}
	one := Part{Name: p.Name, Rows: p.Desc.Shape[0]}
	switch p.Name {
	case embeddings + "words.weight":
		one.Name = embeddings + "word_embeddings.weight"
	case embeddings + "words.position":
		one.Name = embeddings + "position_embeddings.weight"
	case e.Names.Decoder + ".bias":
		one.Name = e.Names.TokenBias
	default:
		return nil
	}
	return []Part{one}
}

func (e Encoder) checkEncoder(classes int) error {
	err := e.check(extent{"positions", e.Positions}, extent{"hidden", e.Hidden}, extent{"classes", classes})
	switch most := e.Positions - e.Uncounted; {
	case err != nil:
		return err
	case e.Length > most:
		return fmt.Errorf("%w: length is %d, more than %d positions", ErrConfig, e.Length, most)
	case e.Types < 0 || e.Types > kernels.MaxExtent/4:
		return fmt.Errorf("%w: %d types of tokens, want at most %d", ErrConfig, e.Types, kernels.MaxExtent/4)
	}
	return nil
}
