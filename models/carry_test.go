package models_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// unetNorms returns the number of parameters that BatchNorm adds to a U-Net of (B, C): two for each channel that a convolution makes.
func unetNorms(convs, width int) (n int64) {
	level := func(mid, out int) { n += int64(2 * ((convs-1)*mid + out)) }
	for i := range 5 {
		level(width<<i, width<<i)
		level(width<<i/2, width<<i/2)
	}
	level(width<<5, width<<4)
	return n
}

// Published counts. U-Net: torchgpipe's table 4 (image segmentation into one class), whose instance normalization has no
// parameters. AmoebaNet-D: GPipe's table 1.
func TestPublishedParameterCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		classes   int
		norms     int64
		millions  float64
		precision float64 // of the published count
	}{
		{"unet-6-72", 1, unetNorms(6, 72), 362.2, 0.1},
		{"unet-11-128", 1, unetNorms(11, 128), 2_210, 10},
		{"unet-24-128", 1, unetNorms(24, 128), 4_990, 10},
		{"unet-24-160", 1, unetNorms(24, 160), 7_800, 10},
		{"unet-48-160", 1, unetNorms(48, 160), 15_820, 10},
		{"amoebanet-18-208", 1000, 0, 82, 1},
		{"amoebanet-18-416", 1000, 0, 318, 2}, // 319.0 million here
		{"amoebanet-18-544", 1000, 0, 542, 1},
		{"amoebanet-36-544", 1000, 0, 1_050, 10},
		{"amoebanet-72-512", 1000, 0, 1_800, 100},
	} {
		m := build(t, c.name, models.Config{Batch: 1, Image: 224, Classes: c.classes})
		got := float64(m.ParamCount()-c.norms) / 1e6
		if got < c.millions-c.precision || got > c.millions+c.precision {
			t.Errorf("%s has %.1f million parameters, want %v", c.name, got, c.millions)
		}
	}
	if got := build(t, "unet-6-72", models.Config{Batch: 1, Image: 224, Classes: 1}).ParamCount() - unetNorms(6, 72); got != 362_157_516 {
		t.Errorf("the convolutions of unet-6-72 have %d weights", got)
	}
}

// The activations between layers: what a layer works on, then the skips that pass it.
func TestCarriedShapes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"unet-3-8": `
			down1.1 [2 32 32 8]
			down1.2 [2 32 32 8]
			down1.3 [2 1 1 10240]
			down2.1 [2 1 1 12288]
			down2.2 [2 1 1 13312]
			down3.1 [2 1 1 14848]
			down4.1 [2 1 1 15616]
			down5.1 [2 1 1 16000]
			bottom.1 [2 1 1 16000]
			up5.1 [2 1 1 15616]
			up4.1 [2 1 1 14848]
			up3.1 [2 1 1 13312]
			up2.1 [2 1 1 10240]
			up2.2 [2 1 1 10240]
			up1.1 [2 32 32 4]
			up1.2 [2 32 32 4]
			up1.3 [2 32 32 4]
			segment [2 5]`,
		"amoebanet-6-16": `
			stem1 [2 16 16 4]
			stem2 [2 1 1 2560]
			stem3 [2 1 1 2304]
			cell1.1 [2 1 1 1792]
			cell1.2 [2 1 1 2048]
			cell2 [2 1 1 1408]
			cell3.1 [2 1 1 896]
			cell3.2 [2 1 1 1024]
			cell4 [2 1 1 704]
			cell5.1 [2 1 1 448]
			cell5.2 [2 1 1 256]
			classify [2 5]`,
	} {
		m := build(t, name, models.Config{Batch: 2, Image: 32, Classes: 5})
		var got []string
		for _, l := range m.Layers[:len(m.Layers)-1] {
			got = append(got, fmt.Sprintf("%s %v", l.Name, l.Desc(l.Output()).Shape))
		}
		if want := strings.Split(strings.ReplaceAll(strings.TrimSpace(want), "\t", ""), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestFamiliesRefuse(t *testing.T) {
	t.Parallel()
	ok := models.Config{Batch: 1, Image: 64, Classes: 10}
	small := models.Config{Batch: 1, Image: 48, Classes: 10}
	for _, c := range []struct {
		name   string
		config models.Config
		is     error
		says   string
	}{
		{"unet-2", ok, models.ErrUnknown, "unet-B-C"},
		{"unet-2-16-1", ok, models.ErrUnknown, "unet-B-C"},
		{"unet-two-16", ok, models.ErrUnknown, "amoebanet-L-F"},
		{"amoebanet-3-x", ok, models.ErrUnknown, "amoebanet-L-F"},
		{"resnet-5-0", ok, models.ErrUnknown, "unet-B-C"},
		{"unet-0-16", ok, models.ErrConfig, "0 convolutions"},
		{"unet-2-17", ok, models.ErrConfig, "17 channels"},
		{"unet-99999999-16", ok, models.ErrConfig, "up to"},
		{"unet", small, models.ErrConfig, "image is 48, want a multiple of 32"},
		{"amoebanet-4-32", ok, models.ErrConfig, "4 normal cells"},
		{"amoebanet-0-32", ok, models.ErrConfig, "0 normal cells"},
		{"amoebanet-3-12", ok, models.ErrConfig, "12 filters"},
		{"amoebanet", small, models.ErrConfig, "image is 48, want a multiple of 32"},
		{"amoebanet-3-8", models.Config{Image: 32, Classes: 10}, models.ErrConfig, "batch is 0"},
	} {
		m, err := models.New(c.name, c.config)
		if m != nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %+v: %v, want %q", c.name, c.config, err, c.says)
		}
	}
}

// Programs of models whose activations carry several tensors compute what the definition does, in both types.
func TestCarryingPrograms(t *testing.T) {
	t.Parallel()
	layers := 0
	for _, name := range []string{"unet-1-2", "unet-3-2", "amoebanet-3-8"} {
		for _, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
			if testing.Short() && d == kernels.BFloat16 {
				continue
			}
			m := build(t, name, models.Config{Batch: 2, Image: 32, Classes: 5, DType: d})
			programs := compiled(t, m)
			for l := range different(m) {
				t.Run(fmt.Sprintf("%s/%v/%s", name, d, m.Layers[l-1].Name), func(t *testing.T) {
					checkLayer(t, m, programs, l)
					checkHalves(t, newHalved(t, m, programs, l, reference))
				})
				layers++
			}
		}
	}
	if layers < 30 || layers < 60 && !testing.Short() {
		t.Errorf("only %d layers ran", layers)
	}
}
