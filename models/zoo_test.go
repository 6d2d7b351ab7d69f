package models_test

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/models/modeltest"
)

func build(t testing.TB, name string, c models.Config) *models.Model {
	t.Helper()
	m, err := models.New(name, c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func reference(m modeltest.Memory) kernels.Library { return ref.New(m) }

func compiled(t testing.TB, m *models.Model) []*models.Programs {
	t.Helper()
	programs, err := m.Compile(ref.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	return programs
}

// Published counts. ImageNet: torchvision's tables. Small images: He et al. 2015, table 6, gives 0.27M, 0.46M, 0.85M
// and 1.7M with shortcuts that have no parameters. Our two projections add 16*32 + 32*64 weights and 2*(32+64) for
// their norms. He et al. 2016, table 4, gives 1.7M and 10.2M.
func TestParameterCounts(t *testing.T) {
	t.Parallel()
	const projections = 16*32 + 32*64 + 2*(32+64)
	for _, c := range []struct {
		image, classes int
		counts         map[string]int64
	}{
		{224, 1000, map[string]int64{
			"resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032, "resnet101": 44_549_160,
			"resnet152": 60_192_808, "densenet121": 7_978_856, "densenet161": 28_681_000,
			"densenet169": 14_149_480, "densenet201": 20_013_928,
			"vgg16": 138_357_544, "vgg16_bn": 138_365_992, "inception_v3": 23_834_568}},
		{32, 10, map[string]int64{
			"resnet20": 269_722 + projections, "resnet32": 464_154 + projections, "resnet56": 853_018 + projections,
			"resnet110": 1_727_962 + projections, "resnet164": 1_703_258, "resnet1001": 10_327_706}},
	} {
		for name, want := range c.counts {
			m := build(t, name, models.Config{Batch: 1, Image: c.image, Classes: c.classes})
			if got := m.ParamCount(); got != want {
				t.Errorf("%s has %d parameters, want %d", name, got, want)
			}
		}
	}
}

// Names are torchvision's.
func TestParameterNames(t *testing.T) {
	t.Parallel()
	for model, names := range map[string][]string{
		"resnet50": {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer1.0.downsample.0.weight",
			"layer2.0.downsample.1.running_mean", "layer4.2.bn3.bias", "fc.weight", "fc.bias"},
		"resnet18": {"layer2.0.downsample.0.weight", "layer4.1.bn2.weight"},
		"densenet121": {"features.conv0.weight", "features.norm0.weight", "features.denseblock1.denselayer1.norm1.weight",
			"features.denseblock4.denselayer16.conv2.weight", "features.transition3.conv.weight",
			"features.norm5.running_mean", "classifier.bias"},
	} {
		have := map[string]bool{}
		for _, p := range build(t, model, models.Config{Batch: 1, Image: 224, Classes: 1000}).Params() {
			have[p.Name] = true
		}
		for _, name := range names {
			if !have[name] {
				t.Errorf("%s has no parameter %q", model, name)
			}
		}
	}
}

// A layer's parameters lie in its blocks aligned, in order, without gaps beyond the alignment.
func TestParameterPlaces(t *testing.T) {
	t.Parallel()
	m := build(t, "tiny", models.Config{Batch: 2, Image: 16, Classes: 5})
	for i, p := range compiled(t, m) {
		var params, grads int64
		for _, q := range m.Layers[i].Params() {
			if q.Layer != i+1 || q.Value != (models.Ref{Block: models.Params, Offset: params, Bytes: q.Desc.Bytes()}) {
				t.Errorf("%s lies at %+v, want offset %d", q.Name, q.Value, params)
			}
			params += q.Desc.Storage()
			if !q.Trained {
				continue
			}
			if q.Grad != (models.Ref{Block: models.Grads, Offset: grads, Bytes: q.Desc.Bytes()}) {
				t.Errorf("gradient of %s lies at %+v, want offset %d", q.Name, q.Grad, grads)
			}
			grads += q.Desc.Storage()
		}
		if p.ParamBytes != params || p.GradBytes != grads {
			t.Errorf("layer %d has %d and %d bytes, want %d and %d", i+1, p.ParamBytes, p.GradBytes, params, grads)
		}
	}
}

// Every size of image that the ops allow works: 1x1 for small ResNets, and so on; 32x32 for all but those of smallest.
func TestZooAnyImageSize(t *testing.T) {
	t.Parallel()
	smallest := map[string]int{"inception_v3": 75}
	built, refused := 0, 0
	for _, k := range models.Zoo() {
		for _, image := range []int{1, 8, 31, 32, 33, 74, 75, 224} {
			m, err := models.New(k.Name, models.Config{Batch: 3, Image: image, Channels: 1, Classes: 7})
			var op *kernels.OpError
			switch {
			case err == nil:
				built++
				compiled(t, m)
			case image%32 != 0 && errors.Is(err, models.ErrConfig) && strings.Contains(err.Error(), "want a multiple of 32"):
				refused++ // U-Net and AmoebaNet-D, whose reductions want even sizes
			case !errors.As(err, &op) || !strings.Contains(err.Error(), "layer "):
				t.Errorf("%s at %d: %v", k.Name, image, err)
			case image >= max(32, smallest[k.Name]):
				t.Errorf("%s refuses images of %d: %v", k.Name, image, err)
			}
		}
	}
	if built < 100 || refused != 12 {
		t.Errorf("only %d models built, %d refused a size that is no multiple of 32", built, refused)
	}
}

func TestZooRefuses(t *testing.T) {
	t.Parallel()
	ok := models.Config{Batch: 1, Image: 32, Classes: 10}
	with := func(change func(*models.Config)) models.Config {
		c := ok
		change(&c)
		return c
	}
	for _, c := range []struct {
		name   string
		config models.Config
		is     error
		says   string
	}{
		{"resnet51", ok, models.ErrUnknown, "densenet201"},
		{"resnet18", with(func(c *models.Config) { c.Batch = 0 }), models.ErrConfig, "batch is 0"},
		{"resnet18", with(func(c *models.Config) { c.Image = -1 }), models.ErrConfig, "image is -1"},
		{"resnet18", with(func(c *models.Config) { c.Channels = -3 }), models.ErrConfig, "channels is -3"},
		{"resnet18", with(func(c *models.Config) { c.Classes = 0 }), models.ErrConfig, "classes is 0"},
		{"resnet18", with(func(c *models.Config) { c.Image = 1 << 40 }), models.ErrConfig, "too large"},
		{"resnet18", with(func(c *models.Config) { c.Batch = 1 << 62 }), models.ErrConfig, "too large"},
		{"mlp", with(func(c *models.Config) { c.Classes = 1 << 50 }), nil, "op \"fc\""},
	} {
		m, err := models.New(c.name, c.config)
		if m != nil || err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %+v: %v", c.name, c.config, err)
		}
	}
	_, err := models.New("densenet121", models.Config{Batch: 1, Image: 8, Classes: 10})
	var op *kernels.OpError
	if !errors.As(err, &op) || !strings.Contains(err.Error(), "transition2") {
		t.Errorf("an image too small for a transition: %v", err)
	}
}

// Footprints hold the bytes of the programs and nothing else.
func TestFootprints(t *testing.T) {
	t.Parallel()
	m := build(t, "resnet20", models.Config{Batch: 4, Image: 32, Classes: 10})
	programs := compiled(t, m)
	c := m.Footprints(programs)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.InputBytes != 4*32*32*3*4 || c.Len() != 12 || c.Gradient(12) != 0 || c.Batch != 4 || c.Name != "resnet20" {
		t.Errorf("chain is %+v", c)
	}
	for i := range c.Layers {
		l, p := &c.Layers[i], programs[i]
		if l.OutputBytes != p.OutputBytes || l.SavedBytes != p.SavedBytes || l.GradientBytes != p.GradientBytes ||
			l.ForwardOverheadBytes != p.Save.Scratch || l.DiscardOverhead() != p.Forget.Scratch ||
			l.BackwardOverheadBytes != p.Back.Scratch || l.WeightBytes != p.ParamBytes || l.ForwardS != 0 {
			t.Errorf("layer %s is %+v, its programs have %+v", l.Name, l, p)
		}
	}
}
