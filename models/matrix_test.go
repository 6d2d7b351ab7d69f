package models_test

import (
	"strings"
	"testing"

	"plimsoll/models"
)

// Matrices are the weights of linear layers and convolutions but the head, outputs by all else: those that an optimizer for hidden
// layers is for.
func TestMatrices(t *testing.T) {
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
