package models_test

import (
	"math"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

func initial(p models.Parameter, seed uint64) []float32 {
	v := make([]float32, p.Desc.Elements())
	models.Init(p, seed, v)
	return v
}

func parameter(t *testing.T, m *models.Model, name string) models.Parameter {
	t.Helper()
	for _, p := range m.Params() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("%s has no parameter %q", m.Name, name)
	return models.Parameter{}
}

// A tensor's values do not depend on how many more there are, and so not on where processors begin to draw.
func TestInitDrawsOneSequence(t *testing.T) {
	t.Parallel()
	p := parameter(t, build(t, "gpt2-1-64", models.Config{Batch: 1, Image: 8, Classes: 50}), "transformer.h.0.attn.c_attn.weight")
	of := func(n int) []float32 {
		p.Desc = kernels.F32(n)
		return initial(p, 7)
	}
	all := of(300_001)
	for _, n := range []int{1, 2, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1<<17 + 2, 200_000, 300_000} {
		if !slices.Equal(of(n), all[:n]) {
			t.Errorf("%d values are not the first ones of %d", n, len(all))
		}
	}
}

// The moments follow torchvision's initialization. Convolutions have kaiming_normal by fan_out in ResNets and by fan_in in DenseNets.
// Linear layers are uniform within ±1/sqrt(fan_in). Deviations are 0.01 in VGG's linear layers and 0.1 in Inception. Norms have weights of
// 1 and biases of 0. The tolerance is four standard errors.
func TestInitMoments(t *testing.T) {
	t.Parallel()
	c := models.Config{Batch: 1, Image: 224, Classes: 1000}
	res, dense := build(t, "resnet18", c), build(t, "densenet121", c)
	gpt := build(t, "gpt2-8-64", models.Config{Batch: 1, Image: 8, Classes: 50})
	vgg, inception := build(t, "vgg16", c), build(t, "inception_v3", c)
	for _, x := range []struct {
		model           *models.Model
		name            string
		mean, deviation float64
		bound           float64 // 0: none
	}{
		{res, "conv1.weight", 0, math.Sqrt(2.0 / (64 * 49)), 0},
		{res, "layer3.0.conv1.weight", 0, math.Sqrt(2.0 / (256 * 9)), 0},
		{res, "layer3.0.downsample.0.weight", 0, math.Sqrt(2.0 / 256), 0},
		{res, "fc.weight", 0, 1 / math.Sqrt(3*512), 1 / math.Sqrt(512)},
		{res, "fc.bias", 0, 1 / math.Sqrt(3*512), 1 / math.Sqrt(512)},
		{res, "bn1.weight", 1, 0, 1}, {res, "bn1.bias", 0, 0, 0},
		{res, "bn1.running_mean", 0, 0, 0}, {res, "bn1.running_var", 1, 0, 1},
		{dense, "features.conv0.weight", 0, math.Sqrt(2.0 / (3 * 49)), 0},
		{dense, "features.denseblock1.denselayer1.conv2.weight", 0, math.Sqrt(2.0 / (128 * 9)), 0},
		{dense, "classifier.weight", 0, 1 / math.Sqrt(3*1024), 1 / math.Sqrt(1024)},
		{dense, "classifier.bias", 0, 0, 0},
		{vgg, "features.5.weight", 0, math.Sqrt(2.0 / (128 * 9)), 0}, {vgg, "features.5.bias", 0, 0, 0},
		{vgg, "classifier.6.weight", 0, 0.01, 0}, {vgg, "classifier.6.bias", 0, 0, 0},
		{inception, "Mixed_6b.branch7x7_2.conv.weight", 0, 0.1, 0}, {inception, "fc.weight", 0, 0.1, 0},
		{gpt, "transformer.h.3.attn.c_attn.weight", 0, 0.02, 0}, {gpt, "transformer.h.3.mlp.c_fc.weight", 0, 0.02, 0},
		{gpt, "transformer.h.3.attn.c_proj.weight", 0, 0.02 / math.Sqrt(16), 0}, {gpt, "transformer.h.7.mlp.c_proj.weight", 0, 0.02 / math.Sqrt(16), 0},
		{inception, "fc.bias", 0, 1 / math.Sqrt(3*2048), 1 / math.Sqrt(2048)},
	} {
		v := initial(parameter(t, x.model, x.name), 1)
		mean, deviation := moments(v)
		n := math.Sqrt(float64(len(v)))
		if math.Abs(mean-x.mean) > 4*x.deviation/n || math.Abs(deviation-x.deviation) > 4*x.deviation/n {
			t.Errorf("%s: mean %v, deviation %v, want %v and %v", x.name, mean, deviation, x.mean, x.deviation)
		}
		if x.bound > 0 && largest(v) > x.bound {
			t.Errorf("%s: %v is beyond %v", x.name, largest(v), x.bound)
		}
	}
}

func moments(v []float32) (mean, deviation float64) {
	for _, x := range v {
		mean += float64(x) / float64(len(v))
	}
	for _, x := range v {
		deviation += (float64(x) - mean) * (float64(x) - mean) / float64(len(v))
	}
	return mean, math.Sqrt(deviation)
}

// Values depend on seed and name alone.
func TestInitSeeds(t *testing.T) {
	t.Parallel()
	m := build(t, "tiny", models.Config{Batch: 1, Image: 16, Classes: 5})
	p, q := parameter(t, m, "conv1.weight"), parameter(t, m, "dense.conv1.weight")
	again := build(t, "tiny", models.Config{Batch: 64, Image: 32, Classes: 3})
	if !slices.Equal(initial(p, 1), initial(parameter(t, again, "conv1.weight"), 1)) {
		t.Errorf("the same parameter starts with two values")
	}
	if slices.Equal(initial(p, 1), initial(p, 2)) {
		t.Errorf("two seeds give the same values")
	}
	q.Desc, q.FanOut = p.Desc, p.FanOut
	if slices.Equal(initial(p, 1), initial(q, 1)) {
		t.Errorf("two parameters start with the same values")
	}
}

// The bits are the same on every machine: these came from one.
func TestInitBits(t *testing.T) {
	t.Parallel()
	p := models.Parameter{Name: "conv1.weight", Desc: kernels.F32(4), Start: models.KaimingFanOut, FanOut: 8}
	if got, want := initial(p, 1), []float32{-0.12702087, 0.13583913, -0.66939783, 0.65187705}; !slices.Equal(got, want) {
		t.Errorf("normal: %v, want %v", got, want)
	}
	p.Start, p.FanIn = models.UniformFanIn, 4
	if got, want := initial(p, 1), []float32{-0.32989106, 0.35279337, 0.2507025, -0.48260015}; !slices.Equal(got, want) {
		t.Errorf("uniform: %v, want %v", got, want)
	}
}

// ln agrees with math.Log to the last bits.
func TestLn(t *testing.T) {
	t.Parallel()
	for _, x := range []float64{1e-300, 0x1p-54, 0.1, 0.3, 0.5, math.Sqrt2 / 2, 0.9, 0.999999, 1 - 0x1p-53} {
		if got, want := models.Ln(x), math.Log(x); math.Abs(got-want) > 4e-16*math.Abs(want) {
			t.Errorf("ln(%v) = %v, want %v", x, got, want)
		}
	}
}
