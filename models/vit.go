package models

import (
	"fmt"
	"strings"

	"plimsoll/kernels"
)

// Vision holds the sizes of a vision transformer.
type Vision struct {
	Batch, Image, Channels int // Image is the height and width in pixels
	Patch                  int // pixels of each side of a patch
	Classes                int
	Width                  int // channels
	Heads                  int // of attention; they divide the width
	Blocks                 int // of attention and MLP
	Hidden                 int // channels of the MLP
	QKVBias                bool
	Dropout                float32       // after the embedding and each half of a block
	Epsilon                float32       // of the norms
	Activation             kernels.Op    // of the MLP
	DType                  kernels.DType // of the activations
}

// ViT returns the model of Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, section 3.1. A class token
// stands ahead of the patches, positions are learned, norms come before attention and MLP, and the classifier reads the first position. Each half of a block is a layer of the chain. Parameters
// are named as Hugging Face has them; queries, keys and values are the rows of one weight, which files have as three. Errors: ErrConfig, ErrGraph.
func ViT(name string, v Vision) (*Model, error) {
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b := NewBuilder(name, kernels.F32(v.Batch, v.Image, v.Image, v.Channels), v.Classes)
	b.DType, b.LinearStart, b.BiasStart, b.Parts = v.DType, NormalFiftieth, Zeros, v.parts
	b.Layer("embed", "vit.embeddings", v.embed)
	for i := range v.Blocks {
		block := fmt.Sprintf("encoder.layer.%d", i)
		b.Layer(block+".attn", "vit."+block, v.attend)
		b.Layer(block+".mlp", "vit."+block, v.feed)
	}
	b.Layer("head", "", func(g *Graph, x Value) Value {
		first := g.Op("first", kernels.Slice{H: 1, W: 1, C: v.Width}, x)
		return g.Linear("classifier", g.Op("vit.layernorm", kernels.LayerNorm{Epsilon: v.Epsilon}, first), v.Classes)
	})
	return b.Model()
}

// patches returns the patches of an image.
func (v Vision) patches() int { return (v.Image / v.Patch) * (v.Image / v.Patch) }

// embed is positions + [class, patches].
func (v Vision) embed(g *Graph, x Value) Value {
	p := v.Patch
	x = g.Op("patch_embeddings.projection", kernels.Conv2D{Out: v.Width, KernelH: p, KernelW: p, StrideH: p, StrideW: p, Bias: true}, x)
	rows := []kernels.Loop{{N: v.Batch * v.patches() * v.Width, Stride: 1}}
	x = g.Op("patches", kernels.NewRearrange([]int{v.Batch, v.patches(), v.Width}, 0, rows), x)
	x = g.Op("position", kernels.Bias{Axes: 2}, g.Op("class", kernels.Prepend{Rows: 1}, x))
	return v.drop(g, "drop", x)
}

// attend is x + output(attention(qkv(layernorm_before(x)))).
func (v Vision) attend(g *Graph, x Value) Value {
	qkv := g.Rows("qkv", g.Op("layernorm_before", kernels.LayerNorm{Epsilon: v.Epsilon}, x), 3*v.Width, v.QKVBias)
	y := g.Op("attention", kernels.Attention{Heads: v.Heads, Bidirectional: true}, qkv)
	return g.Add("add_1", x, v.drop(g, "attention.drop", g.Dense("attention.output.dense", y, v.Width)))
}

// feed is x + output(act(intermediate(layernorm_after(x)))).
func (v Vision) feed(g *Graph, x Value) Value {
	y := g.Dense("intermediate.dense", g.Op("layernorm_after", kernels.LayerNorm{Epsilon: v.Epsilon}, x), v.Hidden)
	return g.Add("add_2", x, v.drop(g, "drop", g.Dense("output.dense", g.Op("act", v.Activation, y), v.Width)))
}

func (v Vision) drop(g *Graph, name string, x Value) Value {
	if v.Dropout == 0 {
		return x
	}
	return g.Dropout(name, x, v.Dropout)
}

// parts are Hugging Face's.
func (v Vision) parts(p Parameter) []Part {
	const embeddings = "vit.embeddings."
	if module, kind, fused := strings.Cut(p.Name, ".qkv."); fused {
		module += ".attention.attention."
		return []Part{{Name: module + "query." + kind, Rows: v.Width}, {Name: module + "key." + kind, Rows: v.Width}, {Name: module + "value." + kind, Rows: v.Width}}
	}
	one := Part{Rows: p.Desc.Shape[0], Shape: append([]int{1}, p.Desc.Shape...)}
	switch p.Name {
	case embeddings + "class.weight":
		one.Name = embeddings + "cls_token"
	case embeddings + "position.weight":
		one.Name = embeddings + "position_embeddings"
	default:
		return nil
	}
	return []Part{one}
}

func (v Vision) check() error {
	for _, f := range []extent{
		{"batch", v.Batch}, {"image", v.Image}, {"channels", v.Channels}, {"patch", v.Patch}, {"classes", v.Classes}, {"width", v.Width}, {"heads", v.Heads},
		{"blocks", v.Blocks}, {"hidden", v.Hidden},
	} {
		if f.value < 1 || f.value > kernels.MaxExtent/4 {
			return fmt.Errorf("%w: %s is %d, want from 1 to %d", ErrConfig, f.name, f.value, kernels.MaxExtent/4)
		}
	}
	switch {
	case v.Width%v.Heads != 0:
		return fmt.Errorf("%w: %d heads do not divide a width of %d", ErrConfig, v.Heads, v.Width)
	case v.patches() >= kernels.MaxExtent/4:
		return fmt.Errorf("%w: images of %d pixels have %d patches, want fewer than %d", ErrConfig, v.Image, v.patches(), kernels.MaxExtent/4)
	case v.Patch > v.Image:
		return fmt.Errorf("%w: patches of %d pixels are larger than images of %d", ErrConfig, v.Patch, v.Image)
	}
	return nil
}
