package models_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/modeltest"
)

// toy is a GPT-2 of few parameters.
var toy = models.Language{Batch: 2, Length: 7, Vocabulary: 11, Positions: 9, Width: 12, Heads: 3, Blocks: 2, Dropout: 0.2}

func gpt2(t testing.TB, c models.Language) *models.Model {
	t.Helper()
	m, err := models.GPT2("gpt2", c)
	must(t, err)
	return m
}

// Radford et al. 2019: GPT-2 small has 124,439,808 parameters as published, whose head has none of its own.
func TestGPT2ParameterCount(t *testing.T) {
	t.Parallel()
	m := gpt2(t, models.GPT2Small(1, 8))
	if got := m.ParamCount(); got != 124_439_808 {
		t.Errorf("%d parameters, want 124439808", got)
	}
	untied := build(t, "gpt2-untied", models.Config{Batch: 1, Image: 8, Classes: 50257})
	if got, head := untied.ParamCount(), int64(50257*768); got-head != 124_439_808 {
		t.Errorf("%d parameters, %d without the head's, want 124439808", got, got-head)
	}
	if got, want := len(m.Layers), 1+2*12+1+1; got != want {
		t.Errorf("%d layers, want %d", got, want)
	}
}

// Every layer's programs compute the definition's output and gradients, and save nothing that they do not need.
func TestGPT2Layers(t *testing.T) {
	t.Parallel()
	for _, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
		c := toy
		c.DType = d
		m := gpt2(t, c)
		programs := compiled(t, m)
		for l := range m.Layers {
			t.Run(fmt.Sprintf("%v %s", d, m.Layers[l].Name), func(t *testing.T) { checkLayer(t, m, programs, l+1) })
		}
	}
}

// A toy GPT-2 learns that each token follows the one before it by a fixed rule, at the same losses on both libraries.
func TestGPT2Learns(t *testing.T) {
	t.Parallel()
	c := toy
	c.Dropout = 0
	m := gpt2(t, c)
	fast, err := m.Compile(onCPU(nil))
	must(t, err)
	chains := []*modeltest.Chain{modeltest.NewChain(m, compiled(t, m), 1, reference), modeltest.NewChain(m, fast, 1, onCPU)}
	r := rand.New(rand.NewPCG(1, 1))
	var first, last float32
	for step := range 60 {
		tokens, labels := make([]float32, m.Input.Elements()), make([]int32, m.Labels.Elements())
		for i := range labels {
			token := r.IntN(c.Vocabulary)
			tokens[i], labels[i] = math.Float32frombits(uint32(token)), int32((3*token+1)%c.Vocabulary)
		}
		var losses [2]float32
		for i, chain := range chains {
			losses[i], err = chain.Step(tokens, labels)
			must(t, err)
			descend(chain, 0.5)
		}
		if math.Abs(float64(losses[0]-losses[1])) > 1e-5 && step < 10 { // later, differences of rounding grow
			t.Fatalf("step %d: losses %v", step, losses)
		}
		if step == 0 {
			first = losses[1]
		}
		last = losses[1]
	}
	if math.Abs(float64(first)-math.Log(11)) > 0.1 || last > first/2 {
		t.Errorf("the loss went from %v to %v, want from ln 11 to less than half of it", first, last)
	}
}

// descend takes a step of gradient descent.
func descend(c *modeltest.Chain, rate float32) {
	for _, f := range c.Frames {
		for _, p := range f.Layer.Params() {
			value, gradient := f.Floats(p.Value), f.Floats(p.Grad)
			for i := range value {
				value[i] -= rate * gradient[i]
			}
			modeltest.Put(f.Slice(p.Value), value)
		}
	}
}

func TestGPT2Errors(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*models.Language){
		func(c *models.Language) { c.Batch = 0 },
		func(c *models.Language) { c.Length = 10 },
		func(c *models.Language) { c.Heads = 5 },
		func(c *models.Language) { c.Vocabulary = -1 },
		func(c *models.Language) { c.Width = math.MaxInt },
		func(c *models.Language) { c.DType = kernels.Int32 },
	} {
		c := toy
		change(&c)
		if _, err := models.GPT2("gpt2", c); !errors.Is(err, models.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
