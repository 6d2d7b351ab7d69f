package models

import (
	"cmp"
	"fmt"
	"strings"

	"plimsoll/kernels"
)

// TinyLlama is the model of 1.1B parameters of Zhang et al. 2024, TinyLlama, table 1, for a batch of sequences.
func TinyLlama(batch, length int) Language {
	return Language{Batch: batch, Length: length, Vocabulary: 32000, Width: 2048, Heads: 32, KVHeads: 4, Hidden: 5632, Blocks: 22}
}

// llama is a Llama of published sizes, for samples of any length.
func llama(sizes Language) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		s := sizes
		s.Batch, s.Length, s.Vocabulary, s.DType, s.Tied = c.Batch, c.Image, c.Classes, c.DType, tied(name, false)
		return namedLlama(name, s)
	}
}

// smallLlama is a Llama of so many blocks and channels and, if given, heads, heads of keys and values, and channels of the MLP. If not,
// heads have 64 channels, or there are 4, two share keys and values, and the MLP has 8/3 times the channels.
func smallLlama(sizes []int) func(string, Config) (*Model, error) {
	return func(name string, c Config) (*Model, error) {
		s := Language{Batch: c.Batch, Length: c.Image, Vocabulary: c.Classes, Blocks: sizes[0], Width: sizes[1], DType: c.DType, Tied: tied(name, false)}
		if s.Width%8 != 0 {
			return nil, fmt.Errorf("%s: %w: %d channels, want a multiple of 8", name, ErrConfig, s.Width)
		}
		s.Heads = headsOf(s.Width, 2)
		s.KVHeads = s.Heads / (2 - s.Heads%2)
		s.Hidden = (8*s.Width/3 + 7) / 8 * 8
		for i, size := range []*int{&s.Heads, &s.KVHeads, &s.Hidden} {
			if len(sizes) > 2+i {
				*size = sizes[2+i]
			}
		}
		return namedLlama(name, s)
	}
}

// namedLlama is Llama with the constants that the name gives.
func namedLlama(name string, c Language) (*Model, error) {
	c, err := c.take(name, ropeTheta, rmsNormEps, llamaHeads, llamaKVHeads)
	if err != nil {
		return nil, err
	}
	return Llama(name, c)
}

// Llama returns the model of Touvron et al. 2023, LLaMA: Open and Efficient Foundation Language Models, section 2.2, and of Llama 2
// and 3. It names parameters as Hugging Face does. Root mean square norms come before attention and MLP, positions are rotations,
// and the MLP is silu(gate(x)) * up(x). Groups of heads share keys and values (Ainslie et al. 2023, GQA). No layer has biases;
// without Tied, the last layer has a weight of its own. Each half of a block, attention and MLP, is a layer of the chain.
//
// Queries, keys and values are the rows, in this order, of one weight, self_attn.qkv_proj, which files have as three. Errors: ErrConfig, ErrGraph.
func Llama(name string, c Language) (*Model, error) {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if err := c.checkLlama(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b := NewBuilder(name, kernels.Desc{Shape: kernels.Shape{c.Batch, c.Length}, DType: kernels.Int32}, c.Vocabulary)
	b.DType, b.LinearStart, b.Parts = c.DType, NormalFiftieth, c.llamaParts
	b.Layer("embed", "model", func(g *Graph, x Value) Value {
		embed := kernels.Embedding{Vocabulary: c.Vocabulary, Width: c.Width, To: c.DType.Stored(), Fixed: c.Form.Padding}
		x = g.Op("embed_tokens", embed, x)
		if c.Form.EmbedFactor != 0 {
			x = g.Op("embed_factor", kernels.Affine{Factor: c.Form.EmbedFactor}, x)
		}
		return c.drop(g, "drop", x)
	})
	for i := range c.Blocks {
		block := fmt.Sprintf("layers.%d", i)
		b.Layer(block+".attn", "model."+block, c.llamaAttention)
		b.Layer(block+".mlp", "model."+block, c.llamaMLP)
	}
	if c.Tied {
		b.Tie("lm_head.weight", "model.embed_tokens.weight")
	}
	b.Layer("head", "", func(g *Graph, x Value) Value {
		return g.Project("lm_head", c.rmsNorm(g, "model.norm", x), c.Vocabulary)
	})
	return b.Model()
}

// headDim returns the channels of a Llama's head.
func (c Language) headDim() int { return cmp.Or(c.Form.HeadDim, c.Width/c.Heads) }

// llamaParts are Hugging Face's: projections to queries, keys and values are tensors of their own, unless they are Joined.
func (c Language) llamaParts(p Parameter) []Part {
	module, kind, fused := strings.Cut(p.Name, "qkv_proj")
	if !fused || c.Form.Joined {
		return nil
	}
	dim := c.headDim()
	return []Part{
		{Name: module + "q_proj" + kind, Rows: c.Heads * dim},
		{Name: module + "k_proj" + kind, Rows: c.KVHeads * dim},
		{Name: module + "v_proj" + kind, Rows: c.KVHeads * dim},
	}
}

// llamaAttention is x + o_proj(attention(rotary(qkv_proj(input_layernorm(x))))).
func (c Language) llamaAttention(g *Graph, x Value) Value {
	dim := c.headDim()
	qkv := g.Rows("self_attn.qkv_proj", c.rmsNorm(g, "input_layernorm", x), (c.Heads+2*c.KVHeads)*dim, c.Form.QKVBias)
	if c.Form.NormHeads {
		qkv = c.normHeads(g, qkv)
	}
	turned := g.Op("self_attn.rotary", c.rotary(), qkv)
	y := g.Op("self_attn.attention", kernels.Attention{Heads: c.Heads, KVHeads: c.KVHeads}, turned)
	return g.Add("add_1", x, c.drop(g, "self_attn.drop", g.Rows("self_attn.o_proj", y, c.Width, c.Form.OutputBias)))
}

// rotary turns the heads of queries and keys.
func (c Language) rotary() kernels.Rotary {
	return kernels.Rotary{Heads: c.Heads + c.KVHeads, Dim: c.headDim(), Base: c.RotaryBase, Turned: c.Form.Turned, Scaling: c.Scaling}
}

// normHeads normalizes each head of queries and of keys, which are N,T,C with the values.
func (c Language) normHeads(g *Graph, qkv Value) Value {
	dim, width := c.headDim(), g.Channels(qkv)
	take := func(name string, head, heads int) Value {
		rows := kernels.NewRearrange([]int{c.Batch, c.Length, heads, dim}, head*dim, []kernels.Loop{{N: c.Batch * c.Length, Stride: width}, {N: heads * dim, Stride: 1}})
		return g.Op("self_attn."+name, rows, qkv)
	}
	q := c.rmsNorm(g, "self_attn.q_norm", take("queries", 0, c.Heads))
	k := c.rmsNorm(g, "self_attn.k_norm", take("keys", c.Heads, c.KVHeads))
	all := g.Op("self_attn.heads", kernels.Concat{Axis: 2}, q, k, take("values", c.Heads+c.KVHeads, c.KVHeads))
	return g.Op("self_attn.normed", kernels.NewRearrange([]int{c.Batch, c.Length, width}, 0, []kernels.Loop{{N: c.Batch * c.Length * width, Stride: 1}}), all)
}

// llamaMLP is x + down_proj(act(gate_proj(y)) * up_proj(y)) with y = post_attention_layernorm(x).
func (c Language) llamaMLP(g *Graph, x Value) Value {
	gate, up := c.gateAndUp(g, c.rmsNorm(g, "post_attention_layernorm", x))
	product := g.Op("mlp.multiply", kernels.Multiply{}, g.Op("mlp.act", c.activation(kernels.SiLU{}), gate), up)
	return g.Add("add_2", x, c.drop(g, "mlp.drop", g.Rows("mlp.down_proj", product, c.Width, c.Form.MLPBias)))
}

// gateAndUp returns the two products that an MLP multiplies: of a weight each, or of one with the rows of both.
func (c Language) gateAndUp(g *Graph, y Value) (gate, up Value) {
	if !c.Form.Joined {
		return g.Rows("mlp.gate_proj", y, c.Hidden, c.Form.MLPBias), g.Rows("mlp.up_proj", y, c.Hidden, c.Form.MLPBias)
	}
	both := g.Rows("mlp.gate_up_proj", y, 2*c.Hidden, c.Form.MLPBias)
	half := func(name string, from int) Value {
		rows := kernels.NewRearrange([]int{c.Batch, c.Length, c.Hidden}, from, []kernels.Loop{{N: c.Batch * c.Length, Stride: 2 * c.Hidden}, {N: c.Hidden, Stride: 1}})
		return g.Op(name, rows, both)
	}
	return half("mlp.gate", 0), half("mlp.up", c.Hidden)
}

func (c Language) rmsNorm(g *Graph, name string, x Value) Value {
	return g.Op(name, kernels.RMSNorm{Epsilon: c.Epsilon, FromOne: c.Form.FromOne}, x)
}

func (c Language) checkLlama() error {
	if err := c.check(extent{"heads of keys and values", c.KVHeads}, extent{"hidden", c.Hidden}); err != nil {
		return err
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%w: %d heads of keys and values do not divide %d heads", ErrConfig, c.KVHeads, c.Heads)
	case c.Form.HeadDim < 0 || c.Form.HeadDim > kernels.MaxExtent/4:
		return fmt.Errorf("%w: a head has %d channels, want from 1 to %d", ErrConfig, c.Form.HeadDim, kernels.MaxExtent/4)
	case c.headDim()%2 != 0:
		return fmt.Errorf("%w: a head has %d channels, want an even number, which rotation has in pairs", ErrConfig, c.headDim())
	case c.Form.Turned < 0 || c.Form.Turned > c.headDim() || c.Form.Turned%2 != 0:
		return fmt.Errorf("%w: %d channels of a head turn, want an even number up to %d", ErrConfig, c.Form.Turned, c.headDim())
	case c.Positions != 0:
		return fmt.Errorf("%w: positions is %d, want 0: rotation needs none that are learned", ErrConfig, c.Positions)
	}
	return nil
}
