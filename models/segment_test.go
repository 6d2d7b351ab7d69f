package models_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// A U-Net that segments differs from the one that classifies only in the mean over the pixels. Both have the same parameters, layers and
// skips. The means of the pixels' scores are the other's logits, which are PyTorch's (TestTorchvision).
func TestSegmentingUNet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ sizes, image string }{{"1-8", "32"}, {"3-8", "64"}} {
		var image int
		_, err := fmt.Sscan(c.image, &image)
		must(t, err)
		config := models.Config{Batch: 2, Image: image, Classes: 5}
		whole, pixels := build(t, "unet-"+c.sizes, config), build(t, "unetseg-"+c.sizes, config)
		if !slices.EqualFunc(whole.Params(), pixels.Params(), func(a, b models.Parameter) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("unetseg-%s has other parameters", c.sizes)
		}
		if !slices.Equal(whole.Skips(), pixels.Skips()) || len(whole.Layers) != len(pixels.Layers) {
			t.Errorf("unetseg-%s has %d layers with skips %v, want %d, %v", c.sizes, len(pixels.Layers), pixels.Skips(), len(whole.Layers), whole.Skips())
		}
		if want := (kernels.Desc{Shape: kernels.Shape{2, image, image}, DType: kernels.Int32}); !pixels.Labels.Equal(want) {
			t.Errorf("its labels are %v, want %v", pixels.Labels, want)
		}
		want, scores := evaluate(t, whole), evaluate(t, pixels)
		if len(scores) != 2*image*image*5 {
			t.Fatalf("%d scores", len(scores))
		}
		got := make([]float64, len(want))
		for i, v := range scores {
			got[i/(image*image*5)*5+i%5] += float64(v) / float64(image*image)
		}
		for i := range want {
			if math.Abs(got[i]-float64(want[i])) > 1e-5*largest(want) {
				t.Errorf("unetseg-%s: the mean score %d is %v, the logit %v", c.sizes, i, got[i], want[i])
			}
		}
	}
}

// Its last layers have the derivatives of their definition, in one memory as small as can be, in float32 and in bfloat16.
func TestSegmentingLayers(t *testing.T) {
	t.Parallel()
	for _, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
		m := build(t, "unetseg-1-4", models.Config{Batch: 2, Image: 32, Classes: 3, DType: d})
		programs := compiled(t, m)
		n := len(m.Layers)
		checkDerivative(t, m, programs, n-1)
		// The loss keeps its result, and three numbers of each pixel; its workspace is the library's.
		if got, want := programs[n-1].SavedBytes, int64(64+2*32*32*3*4); got != want {
			t.Errorf("%v: the loss saves %d bytes, want %d", d, got, want)
		}
		for i, l := range m.Layers {
			if extents, bounds := models.Extents(l, i > 0, true); !slices.Equal(extents, bounds) {
				t.Errorf("%v: %s has %v bytes of scratch, its lower bounds are %v", d, l.Name, extents, bounds)
			}
		}
	}
}

// Labels of pixels are for images, and are asked for before the first layer.
func TestPerPixelRefuses(t *testing.T) {
	t.Parallel()
	text := models.NewBuilder("text", kernels.Desc{Shape: kernels.Shape{2, 4}, DType: kernels.Int32}, 3)
	text.PerPixel()
	late := models.NewBuilder("late", kernels.F32(1, 4, 4, 1), 2)
	late.Layer("conv", "", func(g *models.Graph, x models.Value) models.Value { return g.Conv("conv", x, 2, 1, 1) })
	late.PerPixel()
	few := models.NewBuilder("few", kernels.F32(1, 4, 4, 1), 2)
	few.PerPixel()
	few.Layer("conv", "", func(g *models.Graph, x models.Value) models.Value { return g.Conv("conv", x, 2, 1, 2) })
	for says, b := range map[string]*models.Builder{"PerPixel is for images": text, "before the first layer": late, "the logits are float32[1 2 2 2], want float32[1 4 4 2]": few} {
		if _, err := b.Model(); !errors.Is(err, models.ErrGraph) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	if !models.Segments("unetseg") || !models.Segments("unetseg-2-8") || models.Segments("unet") || models.Segments("unet-2-8") {
		t.Error("names of models that segment are not told apart")
	}
}
