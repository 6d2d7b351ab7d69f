package models_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// A model has the constants that its name gives, and the published values of all others.
func TestNamesGiveConstants(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"llama-1-16":                "rope_theta=10000 rms_norm_eps=1e-05 num_attention_heads=4 num_key_value_heads=2",
		"llama-1-16,rope_theta=5e5": "rope_theta=500000! rms_norm_eps=1e-05 num_attention_heads=4 num_key_value_heads=2",
		"llama-1-16-tied,rms_norm_eps=1e-6,rope_theta=1e6": "rope_theta=1e+06! rms_norm_eps=1e-06! num_attention_heads=4 num_key_value_heads=2",
		"llama-1-16-2,num_key_value_heads=1":               "rope_theta=10000 rms_norm_eps=1e-05 num_attention_heads=2! num_key_value_heads=1!",
		"llama-1-16-8-2-tied":                              "rope_theta=10000 rms_norm_eps=1e-05 num_attention_heads=8! num_key_value_heads=2!",
		"tinyllama,rms_norm_eps=1e-6":                      "rope_theta=10000 rms_norm_eps=1e-06! num_attention_heads=32 num_key_value_heads=4",
		"llama3-8b":                                        "rope_theta=500000 rms_norm_eps=1e-05 num_attention_heads=32 num_key_value_heads=8",
		"gpt2-1-16,layer_norm_epsilon=1e-6":                "layer_norm_epsilon=1e-06! n_head=4",
		"gpt2-1-16,n_head=2":                               "layer_norm_epsilon=1e-05 n_head=2!",
		"gpt2-untied":                                      "layer_norm_epsilon=1e-05 n_head=12",
		"resnet18":                                         "",
	} {
		var all []string
		constants, err := models.Constants(name)
		must(t, err)
		for _, c := range constants {
			given := ""
			if c.Given {
				given = "!"
			}
			all = append(all, fmt.Sprintf("%s=%s%s", c.Name, c.Text(), given))
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// Every rotation and norm of a model has the constants of its name; nothing else changes.
func TestConstantsReachEveryOp(t *testing.T) {
	t.Parallel()
	c := models.Config{Batch: 2, Image: 4, Classes: 11}
	m := build(t, "llama-2-16-tied,rope_theta=500000,rms_norm_eps=0.001", c)
	rotations, norms := 0, 0
	for _, l := range m.Layers {
		for _, n := range l.Nodes {
			switch op := n.Op.(type) {
			case kernels.Rotary:
				if rotations++; op.Base != 500000 {
					t.Errorf("%s %s: %+v", l.Name, n.Name, op)
				}
			case kernels.RMSNorm:
				if norms++; op.Epsilon != 0.001 {
					t.Errorf("%s %s: %+v", l.Name, n.Name, op)
				}
			}
		}
	}
	if rotations != 2 || norms != 5 {
		t.Errorf("%d rotations and %d norms", rotations, norms)
	}
	if plain := build(t, "llama-2-16-tied", c); plain.ParamCount() != m.ParamCount() || len(m.Tied()) != 1 {
		t.Errorf("%d parameters, %d of them tied; without constants %d", m.ParamCount(), len(m.Tied()), plain.ParamCount())
	}
}

// Errors name the constants that a model's name can give.
func TestBadConstants(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"llama-1-16,theta=3":                   "llama-1-16,theta=3: a name like this gives rope_theta and rms_norm_eps and num_attention_heads and num_key_value_heads",
		"gpt2-1-16,rope_theta=3":               "gives layer_norm_epsilon",
		"llama-1-16,rope_theta=x":              "rope_theta is a positive number",
		"llama-1-16,rope_theta=":               "rope_theta is a positive number",
		"llama-1-16,rms_norm_eps=-1":           "rms_norm_eps is a positive number",
		"llama-1-16,rms_norm_eps=1e-60":        "rms_norm_eps is a positive number",
		"llama-1-16,rope_theta=NaN":            "rope_theta is a positive number",
		"llama-1-16,rope_theta=0.5":            "not more than 1",
		"llama-1-16,rope_theta=3,rope_theta=4": "each once",
		"llama-1-16,num_attention_heads=1.5":   "num_attention_heads is a whole number",
		"gpt2-1-16,n_head=3":                   "width is 16, which 3 heads do not divide",
	} {
		if _, err := models.New(name, models.Config{Batch: 1, Image: 2, Classes: 3}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if _, err := models.New("resnet18,rope_theta=3", models.Config{Batch: 1, Image: 32, Classes: 3}); !errors.Is(err, models.ErrUnknown) {
		t.Error(err)
	}
}

// WithConstant replaces what a name gives.
func TestWithConstant(t *testing.T) {
	t.Parallel()
	name := models.WithConstant("llama-1-16", models.Constant{Name: "rope_theta", Value: 500000})
	name = models.WithConstant(name, models.Constant{Name: "rms_norm_eps", Value: 1e-6})
	name = models.WithConstant(name, models.Constant{Name: "rope_theta", Value: 2e6})
	if want := "llama-1-16,rms_norm_eps=1e-06,rope_theta=2e+06"; name != want {
		t.Errorf("%s, want %s", name, want)
	}
	if got, want := models.Untied("gpt2-1-16-tied,layer_norm_epsilon=1e-06"), "gpt2-1-16-untied,layer_norm_epsilon=1e-06"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
