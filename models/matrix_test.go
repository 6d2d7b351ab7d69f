package models_test

import (
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Matrices are the weights of linear layers and convolutions but the head, outputs by all else: those that an optimizer for hidden
// layers is for.
func TestMatrices(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		count   int
		example string
		rows    int64
		columns int64
	}{
		"gpt2-2-16":      {8, "transformer.h.1.mlp.c_fc.weight", 64, 16},
		"gpt2-2-16-tied": {8, "transformer.h.0.attn.c_proj.weight", 16, 16},
		"llama-1-16":     {5, "model.layers.0.mlp.down_proj.weight", 16, 0},
		"resnet20":       {21, "layer2.0.conv1.weight", 32, 144},
		"vgg16":          {15, "features.2.weight", 64, 576},
		"mlp":            {3, "", 0, 0},
	} {
		c := models.Config{Batch: 2, Image: 32, Classes: 10}
		if strings.HasPrefix(name, "gpt2") || strings.HasPrefix(name, "llama") {
			c = models.Config{Batch: 2, Image: 8, Classes: 50}
		}
		m := build(t, name, c)
		count, found := 0, want.example == ""
		for _, q := range m.Params() {
			if !q.Matrix.Is() {
				continue
			}
			count++
			if q.Matrix.Rows*q.Matrix.Columns != q.Desc.Elements() {
				t.Errorf("%s: %s of %v is %v", name, q.Name, q.Desc, q.Matrix)
			}
			found = found || q.Name == want.example && q.Matrix.Rows == want.rows && (want.columns == 0 || q.Matrix.Columns == want.columns)
			if strings.Contains(q.Name, "embed") || strings.Contains(q.Name, "head") || strings.HasPrefix(q.Name, "fc") {
				t.Errorf("%s: %s is a matrix of a hidden layer", name, q.Name)
			}
		}
		if count != want.count || !found {
			t.Errorf("%s: %d matrices, want %d, %s of %d rows among them: %v", name, count, want.count, want.example, want.rows, found)
		}
	}
}

// TestMatricesOfFiles checks that Muon's matrices are the tensors of files: queries, keys and values of a Llama are three, the c_attn of
// a GPT-2 is one.
func TestMatricesOfFiles(t *testing.T) {
	t.Parallel()
	c := models.Config{Batch: 2, Image: 8, Classes: 50}
	for name, want := range map[string][]kernels.Matrix{
		"llama-1-16 self_attn.qkv_proj": {{Rows: 16, Columns: 16}, {Rows: 8, Columns: 16}, {Rows: 8, Columns: 16}},
		"llama-1-16 self_attn.o_proj":   {{Rows: 16, Columns: 16}},
		"llama-1-16 embed_tokens":       {{}},
		"llama-1-16 lm_head":            {{}},
		"gpt2-1-16 attn.c_attn":         {{Rows: 48, Columns: 16}},
	} {
		model, part, _ := strings.Cut(name, " ")
		found := false
		for _, q := range build(t, model, c).Params() {
			if !strings.HasSuffix(q.Name, part+".weight") {
				continue
			}
			found = true
			if got := q.Matrices(); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		if !found {
			t.Errorf("%s: there is no such parameter", name)
		}
	}
}

// TestUpdates checks how an update is split. With Muon, the rows of three matrices follow each other in the parameter, its gradient and its
// state. Other rules, gains and biases have one update each. Only gains and biases are vectors.
func TestUpdates(t *testing.T) {
	t.Parallel()
	whole := kernels.UpdateOperands{
		Elements: 512, Param: runtime.Span{Bytes: 2048}, Grad: runtime.Span{Offset: 4096, Bytes: 2048}, States: []runtime.Span{{Offset: 8192, Bytes: 2048}},
	}
	q := parameter(t, build(t, "llama-1-16", models.Config{Batch: 2, Image: 8, Classes: 50}), "model.layers.0.self_attn.qkv_proj.weight")
	at := int64(0)
	for i, o := range q.Updates(kernels.Muon{}, whole) {
		bytes := []int64{1024, 512, 512}[i]
		if o.Elements*4 != bytes || o.Vector || o.Matrix != q.Matrices()[i] ||
			o.Param != whole.Param.Part(at, bytes) || o.Grad != whole.Grad.Part(at, bytes) || o.States[0] != whole.States[0].Part(at, bytes) {
			t.Errorf("matrix %d: %+v", i, o)
		}
		at += bytes
	}
	if at != 2048 || whole.States[0].Bytes != 2048 {
		t.Errorf("the matrices have %d bytes of 2048; the whole has now %+v", at, whole)
	}
	if all := q.Updates(kernels.AdamW{}, whole); len(all) != 1 || all[0].Matrix.Is() || all[0].Elements != 512 {
		t.Errorf("AdamW: %+v", all)
	}
	for name, vector := range map[string]bool{"bn1.weight": true, "bn1.bias": true, "conv1.weight": false, "fc.weight": false, "fc.bias": true} {
		q := parameter(t, build(t, "resnet20", models.Config{Batch: 2, Image: 32, Classes: 10}), name)
		if o := q.Updates(kernels.SGD{}, kernels.UpdateOperands{}); o[0].Vector != vector {
			t.Errorf("%s: vector is %v", name, o[0].Vector)
		}
	}
}
