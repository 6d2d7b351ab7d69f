package models_test

import (
	"errors"
	"reflect"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// The bytes of a small ResNet's stem and of one of its blocks in bfloat16, batch 4, by hand. The image of 8x8 with 3
// channels has 768 elements, a map with 16 channels has 4096 elements: m = 8192 bytes; a statistic of 16 channels has
// 64 bytes.
//
//   - Stem: a_0 is float32, 3072 bytes; a = m. ā: the output m, the image in bfloat16 (1536), the convolution's output m
//     and two statistics. The gradient of the output has m bytes, that of the image is never asked for. Forgetting: the
//     image in bfloat16 is read while the convolution writes where the output goes: it lies in scratch.
//   - Block: a = m. ā: the output, conv1's, bn1's and conv2's m, four statistics.
//   - The last layer is linear: logits of 4x5 in bfloat16 (40, stored in 64). Its ā has the mean of each channel too:
//     4x64 (512), more than fits where the output goes.
//   - The loss: two float32 (64), three for each row (48, stored in 64); no gradient.
//   - Parameters and their gradients are float32.
func TestBFloat16Bytes(t *testing.T) {
	t.Parallel()
	const m = 4 * 8 * 8 * 16 * 2
	model := build(t, "resnet20", models.Config{Batch: 4, Image: 8, Classes: 5, DType: kernels.BFloat16})
	c := model.Footprints(compiled(t, model))
	if c.InputBytes != 3072 || c.DType != "bfloat16" || model.DType() != kernels.BFloat16 {
		t.Errorf("the chain has an input of %d bytes and activations in %s", c.InputBytes, c.DType)
	}
	for _, want := range []struct {
		layer                                             int
		output, saved, gradient, forget, backward, weight int64
	}{
		{1, m, 2*m + 1536 + 128, m, 1536, 0, 4*16*27 + 256},
		{2, m, 4*m + 256, m, m, 0, 2 * (4*16*144 + 256)},
		{11, 64, 64 + 512, 64, 512, 0, 4*5*64 + 64},
		{12, 64, 64 + 64, 0, 0, 0, 0},
	} {
		l := c.Layers[want.layer-1]
		got := []int64{l.OutputBytes, l.SavedBytes, l.GradientBytes, l.DiscardOverhead(), l.BackwardOverheadBytes, l.WeightBytes}
		for i, w := range []int64{want.output, want.saved, want.gradient, want.forget, want.backward, want.weight} {
			if got[i] != w {
				t.Errorf("layer %d (%s): output, saved, gradient, scratch forgetting, scratch backward, weights are %v, the %dth is to be %d",
					want.layer, l.Name, got, i+1, w)
			}
		}
	}
}

// In bfloat16 a model is the same graph with the same parameters behind one cast. Its stored tensors have half the bytes, but for
// statistics, indices and alignment.
func TestBFloat16Halves(t *testing.T) {
	t.Parallel()
	for _, k := range models.Zoo() {
		if k.Name == "resnet1001" { // resnet164, longer
			continue
		}
		config := models.Config{Batch: 8, Image: 96, Classes: 10}
		wide := build(t, k.Name, config)
		config.DType = kernels.BFloat16
		short := build(t, k.Name, config)
		w, s := wide.Footprints(compiled(t, wide)), short.Footprints(compiled(t, short))
		if cast, is := short.Layers[0].Nodes[0].Op.(kernels.Cast); !is || cast.To != kernels.BFloat16 {
			t.Errorf("%s begins with %+v", k.Name, short.Layers[0].Nodes[0].Op)
		}
		if len(short.Layers[0].Nodes) != len(wide.Layers[0].Nodes)+1 || w.InputBytes != s.InputBytes || w.Len() != s.Len() {
			t.Errorf("%s is another model in bfloat16", k.Name)
		}
		params := wide.Params()
		for i, p := range short.Params() {
			if q := params[i]; p.Name != q.Name || !p.Desc.Equal(q.Desc) || p.Value != q.Value || p.Grad != q.Grad {
				t.Errorf("%s: parameter %+v is %+v in bfloat16", k.Name, q, p)
			}
		}
		for i := range s.Layers[:len(s.Layers)-1] {
			a, b := &w.Layers[i], &s.Layers[i]
			if b.OutputBytes != kernels.Align(a.OutputBytes/2) || b.GradientBytes != kernels.Align(a.GradientBytes/2) {
				t.Errorf("%s %s: output %d, gradient %d; in bfloat16 %d, %d", k.Name, a.Name, a.OutputBytes, a.GradientBytes, b.OutputBytes, b.GradientBytes)
			}
			for j, n := range short.Layers[i].Nodes {
				if d := short.Layers[i].Desc(models.Value(j + 1)); d.DType != kernels.BFloat16 {
					t.Errorf("%s %s: %s is %v", k.Name, a.Name, n.Name, d)
				}
			}
		}
	}
}

// A type that activations cannot have is refused.
func TestTypeRefused(t *testing.T) {
	t.Parallel()
	for _, d := range []kernels.DType{kernels.Int32, 9} {
		if _, err := models.New("tiny", models.Config{Batch: 1, Image: 8, Classes: 2, DType: d}); !errors.Is(err, models.ErrConfig) {
			t.Errorf("%v: %v", d, err)
		}
		b := models.NewBuilder("m", kernels.F32(2, 4), 3)
		b.DType = d
		b.Layer("fc", "", func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, 3) })
		var op *kernels.OpError
		if _, err := b.Model(); !errors.As(err, &op) || op.Kind != "cast" {
			t.Errorf("a layer in %v: %v", d, err)
		}
	}
}

// inTF32 makes the products of a parameter's update those of a model in TF32.
func inTF32(q *models.Parameter) {
	if q.Matrix.Is() {
		q.Matrix.DType = kernels.TF32
	}
	if q.Of != nil {
		inTF32(q.Of)
	}
}

// In TF32 a model has the graph, the parameters and the bytes of one in float32; only its products, and so its chain's
// name of the type, are others.
func TestTF32IsFloat32(t *testing.T) {
	t.Parallel()
	products := 0
	for _, k := range models.Zoo() {
		if k.Name == "resnet1001" { // resnet164, longer
			continue
		}
		config := models.Config{Batch: 2, Image: 96, Classes: 10}
		wide := build(t, k.Name, config)
		config.DType = kernels.TF32
		rounds := build(t, k.Name, config)
		if wide.DType() != kernels.Float32 || rounds.DType() != kernels.TF32 || rounds.Input.DType != kernels.Float32 {
			t.Errorf("%s is in %v and in %v of %v", k.Name, wide.DType(), rounds.DType(), rounds.Input)
		}
		w, r := wide.Footprints(compiled(t, wide)), rounds.Footprints(compiled(t, rounds))
		w.DType = "tf32"
		params := wide.Params()
		for i := range params {
			inTF32(&params[i])
		}
		if !reflect.DeepEqual(w, r) || !reflect.DeepEqual(params, rounds.Params()) {
			t.Errorf("%s in TF32 has other sizes or parameters", k.Name)
		}
		for i, l := range rounds.Layers {
			for j, n := range l.Nodes {
				if want := kernels.InTF32(wide.Layers[i].Nodes[j].Op); n.Op != want {
					t.Errorf("%s %s: %s is %+v, want %+v", k.Name, l.Name, n.Name, n.Op, want)
				}
				if kernels.UsesTF32(n.Op) {
					products++
				}
			}
		}
	}
	if products < 500 {
		t.Errorf("only %d ops round", products)
	}
}
