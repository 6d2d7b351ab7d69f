package models_test

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// A loss of elements has a float target for each logit, in all layers, and is refused where logits are not N,C.
func TestLossesOfElements(t *testing.T) {
	t.Parallel()
	for c := kernels.MSE; c < kernels.Criteria; c++ {
		m, err := models.New("tiny", models.Config{Batch: 3, Image: 8, Classes: 5, Loss: c})
		if err != nil {
			t.Fatal(err)
		}
		want := kernels.F32(3, 5)
		for _, l := range m.Layers {
			if got := l.Desc(models.GraphLabels); !got.Equal(want) || !m.Labels.Equal(want) || m.Logits() != 15 {
				t.Errorf("%v: labels of layer %s are %v, those of the model %v, want %v", c, l.Name, got, m.Labels, want)
			}
		}
		last := m.Layers[len(m.Layers)-1]
		if got := last.Nodes[len(last.Nodes)-1].Op; got != (kernels.ElementLoss{Of: c}) {
			t.Errorf("%v: the model ends with %+v", c, got)
		}
		for name, image := range map[string]int{"unetseg-1-4": 32, "gpt2-1-16": 8} {
			_, err := models.New(name, models.Config{Batch: 1, Image: image, Classes: 5, Loss: c})
			if !errors.Is(err, models.ErrConfig) || !strings.Contains(err.Error(), "loss "+c.String()+" is for models with outputs N,C") {
				t.Errorf("%s with %v: %v", name, c, err)
			}
		}
	}
}
