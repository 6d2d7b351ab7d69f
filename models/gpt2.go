package models

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/kernels"
)

// Language gives the sizes that a language model is built for: a batch of sequences of tokens, whose labels are the tokens
// that follow.
type Language struct {
	Batch, Length int           // sequences and their tokens
	Vocabulary    int           // tokens that there are
	Positions     int           // that have learned vectors: the longest sequence
	Width         int           // channels
	Heads         int           // of attention; they divide the width
	Blocks        int           // of attention and MLP
	Dropout       float32       // after the embedding and each half of a block
	DType         kernels.DType // of the activations
	Tied          bool          // the last layer's weight is the embedding's

	Epsilon    float32    // of the norms: see kernels.LayerNorm and kernels.RMSNorm
	Hidden     int        // channels of the MLP; 0 means 4*Width, of GPT-2 alone
	Activation kernels.Op // of the MLP; nil means GELU by tanh for GPT-2 and SiLU for Llamas

	// Of Llamas alone, which have no learned positions:

	KVHeads    int     // of keys and values; they divide the heads; 0 means Heads
	RotaryBase float64 // see kernels.Rotary
	Scaling    kernels.RotaryScaling
	Form       LlamaForm
}

// take sets the constants that a name gives, of those that a family of models has.
func (c Language) take(name string, family ...string) (Language, error) {
	plain, given := cutConstants(name)
	seen := map[string]bool{}
	for _, text := range given {
		key, value, _ := strings.Cut(text, "=")
		if !slices.Contains(family, key) || seen[key] {
			return c, fmt.Errorf("%w: %s,%s: a name like this gives %s, each once, as in %s,%s=VALUE", ErrConfig, plain, text, strings.Join(family, " and "), plain, family[0])
		}
		seen[key] = true
		if err := c.set(key, value); err != nil {
			return c, fmt.Errorf("%w: %s,%s: %w", ErrConfig, plain, text, err)
		}
	}
	return c, nil
}

// set gives a constant the value that a text says.
func (c *Language) set(key, text string) error {
	v, err := strconv.ParseFloat(text, 32)
	if err != nil || !(v > 0) || math.IsInf(v, 1) || float32(v) == 0 {
		return fmt.Errorf("%s is a positive number, as in %s=1e-6", key, key)
	}
	switch key {
	case ropeTheta:
		c.RotaryBase = v
	case rmsNormEps, layerNormEps:
		c.Epsilon = float32(v)
	default:
		if v != math.Trunc(v) || v > kernels.MaxExtent {
			return fmt.Errorf("%s is a whole number, as in %s=4", key, key)
		}
		if key == llamaKVHeads {
			c.KVHeads = int(v)
		} else {
			c.Heads = int(v)
		}
	}
	return nil
}

// GPT2Small is the smallest GPT-2, of 124M parameters, for a batch of sequences.
func GPT2Small(batch, length int) Language {
	return Language{Batch: batch, Length: length, Vocabulary: 50257, Positions: 1024, Width: 768, Heads: 12, Blocks: 12, Dropout: 0.1, Tied: true}
}

// The published figures of GPT-2: the positions that have learned vectors, the channels of a head, the share that is
// dropped.
const (
	publishedPositions = 1024
	headChannels       = 64
	publishedDropout   = 0.1
)

// gpt2 is GPT-2 with so many blocks and channels; for longer samples with more positions than published.
func gpt2(blocks, width int) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		return namedGPT2(name, Language{
			Batch: c.Batch, Length: c.Image, Vocabulary: c.Classes, Positions: max(publishedPositions, c.Image),
			Width: width, Heads: max(width/headChannels, 1), Blocks: blocks, Dropout: publishedDropout, DType: c.DType, Tied: tied(name, true),
		})
	}
}

// smallGPT2 is GPT-2 with at least 4 heads, as many positions as a sample has and no dropout, for little text.
func smallGPT2(blocks, width int) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		if width%4 != 0 {
			return nil, fmt.Errorf("%s: %w: %d channels, want a multiple of 4", name, ErrConfig, width)
		}
		return namedGPT2(name, Language{
			Batch: c.Batch, Length: c.Image, Vocabulary: c.Classes, Positions: c.Image, Width: width, Heads: headsOf(width, 1), Blocks: blocks,
			DType: c.DType, Tied: tied(name, false),
		})
	}
}

// namedGPT2 is GPT2 with the constants that the name gives.
func namedGPT2(name string, c Language) (*Model, error) {
	c, err := c.take(name, layerNormEps, gptHeads)
	if err != nil {
		return nil, err
	}
	return GPT2(name, c)
}

// headsOf returns how many heads a small model of so many channels, a multiple of 4 units, has: of 64 channels, or at least 4. A head's
// channels are a multiple of unit.
func headsOf(width, unit int) int {
	heads := max(width/headChannels, 4)
	for width%(heads*unit) != 0 {
		heads--
	}
	return heads
}

// GPT2 returns the model of Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2.3. It has pre-activation
// norms, learned positions, GELU by tanh, and smaller initial weights of residual projections (gpt2StartScale). Each half of a block,
// attention and MLP, is a layer of the chain. Parameters are named as Hugging Face has them, and files have them as it does: see gpt2Parts.
//
// Attention weights are not dropped out, as published they are; and without Tied the last layer has a weight of its own (so a model has
// Vocabulary*Width more parameters). Errors: ErrConfig, ErrGraph.
func GPT2(name string, c Language) (*Model, error) {
	if err := c.checkGPT2(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b := NewBuilder(name, kernels.Desc{Shape: kernels.Shape{c.Batch, c.Length}, DType: kernels.Int32}, c.Vocabulary)
	b.DType, b.LinearStart, b.BiasStart, b.StartScale, b.Parts = c.DType, NormalFiftieth, Zeros, c.gpt2StartScale, gpt2Parts
	b.Layer("embed", "transformer", func(g *Graph, x Value) Value {
		embed := kernels.Embedding{Vocabulary: c.Vocabulary, Width: c.Width, Positions: c.Positions, To: c.DType.Stored()}
		return c.drop(g, "drop", g.Op("embed", embed, x))
	})
	for i := range c.Blocks {
		block := fmt.Sprintf("h.%d", i)
		b.Layer(block+".attn", "transformer."+block, c.attention)
		b.Layer(block+".mlp", "transformer."+block, c.mlp)
	}
	if c.Tied {
		b.Tie("lm_head.weight", "transformer.embed.weight")
	}
	b.Layer("head", "", func(g *Graph, x Value) Value {
		return g.Project("lm_head", c.layerNorm(g, "transformer.ln_f", x), c.Vocabulary)
	})
	return b.Model()
}

// gpt2Parts are Hugging Face's: tables of tokens and positions have names of their own, and the matrices of a block are in, out.
func gpt2Parts(p Parameter) []Part {
	one := Part{Name: p.Name, Rows: p.Desc.Shape[0]}
	switch {
	case p.Name == "transformer.embed.weight":
		one.Name = "transformer.wte.weight"
	case p.Name == "transformer.embed.position":
		one.Name = "transformer.wpe.weight"
	case strings.HasPrefix(p.Name, "transformer.h.") && len(p.Desc.Shape) == 2:
		one.Transposed = true
	}
	return []Part{one}
}

// gpt2StartScale makes the weights of residual projections smaller at the start, by 1/sqrt(N) of N residual layers, two a block.
func (c Language) gpt2StartScale(p Parameter) float64 {
	if strings.HasSuffix(p.Name, ".c_proj.weight") {
		return 1 / math.Sqrt(float64(2*c.Blocks))
	}
	return 1
}

// attention is x + c_proj(attention(c_attn(ln_1(x)))).
func (c Language) attention(g *Graph, x Value) Value {
	qkv := g.Dense("attn.c_attn", c.layerNorm(g, "ln_1", x), 3*c.Width)
	y := g.Op("attn.attention", kernels.Attention{Heads: c.Heads}, qkv)
	return g.Add("add_1", x, c.drop(g, "attn.drop", g.Dense("attn.c_proj", y, c.Width)))
}

// mlp is x + c_proj(gelu(c_fc(ln_2(x)))).
func (c Language) mlp(g *Graph, x Value) Value {
	y := g.Op("mlp.act", c.activation(kernels.GELU{Tanh: true}), g.Dense("mlp.c_fc", c.layerNorm(g, "ln_2", x), cmp.Or(c.Hidden, 4*c.Width)))
	return g.Add("add_2", x, c.drop(g, "mlp.drop", g.Dense("mlp.c_proj", y, c.Width)))
}

func (c Language) layerNorm(g *Graph, name string, x Value) Value {
	return g.Op(name, kernels.LayerNorm{Epsilon: c.Epsilon}, x)
}

// activation returns the activation of the MLP, which is normal unless the model says otherwise.
func (c Language) activation(normal kernels.Op) kernels.Op {
	if c.Activation == nil {
		return normal
	}
	return c.Activation
}

func (c Language) drop(g *Graph, name string, x Value) Value {
	if c.Dropout == 0 {
		return x
	}
	return g.Dropout(name, x, c.Dropout)
}

func (c Language) checkGPT2() error {
	switch err := c.check(extent{"positions", c.Positions}); {
	case err != nil:
		return err
	case c.Hidden < 0 || c.Hidden > kernels.MaxExtent/4:
		return fmt.Errorf("%w: hidden is %d, want from 1 to %d", ErrConfig, c.Hidden, kernels.MaxExtent/4)
	case c.Length > c.Positions:
		return fmt.Errorf("%w: length is %d, more than %d positions", ErrConfig, c.Length, c.Positions)
	}
	return nil
}

// extent is a size, and what it is called.
type extent struct {
	name  string
	value int
}

// check refuses sizes, those of all language models and more, that none can have.
func (c Language) check(more ...extent) error {
	for _, f := range append([]extent{
		{"batch", c.Batch}, {"length", c.Length}, {"vocabulary", c.Vocabulary}, {"width", c.Width}, {"heads", c.Heads}, {"blocks", c.Blocks},
	}, more...) {
		if f.value < 1 || f.value > kernels.MaxExtent/4 {
			return fmt.Errorf("%w: %s is %d, want from 1 to %d", ErrConfig, f.name, f.value, kernels.MaxExtent/4)
		}
	}
	switch {
	case c.Form.HeadDim == 0 && c.Width%c.Heads != 0:
		return fmt.Errorf("%w: width is %d, which %d heads do not divide", ErrConfig, c.Width, c.Heads)
	case !c.DType.Stored().Float():
		return fmt.Errorf("%w: dtype is %v, want float32, tf32 or bfloat16", ErrConfig, c.DType)
	}
	return nil
}
