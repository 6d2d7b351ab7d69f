package data

import (
	"math"
	"slices"
	"testing"
)

// The bytes of a sample, looked up in the palette, are its values bit for bit. This holds for every reader, with and without augmentation,
// scaled and not, in color and grey, alone, in batches and in pairs.
func TestBytesAreTheValuesThroughThePalette(t *testing.T) {
	t.Parallel()
	compared := 0
	eachFiles(t, func(t *testing.T, name string) {
		for _, o := range []Options{{Seed: 1, Image: 24}, {Seed: 1, Image: 32, Channels: 1}, {Seed: 2, Image: 16, NoAugment: true}} {
			for _, set := range []Dataset{open(t, name, o), Pairs(open(t, name, o), 5)} {
				compared += compareBytes(t, set)
			}
		}
	})
	if compared < 100 {
		t.Errorf("compared %d batches", compared)
	}
	for _, set := range []Dataset{small(t, "digits"), Pairs(small(t, "digits"), 1), small(t, "glyphs")} {
		if p := Palette(set); p != nil {
			t.Errorf("%s has a palette", set.Name())
		}
	}
}

// compareBytes compares some batches, those of a loader, and returns how many.
func compareBytes(t *testing.T, set Dataset) (compared int) {
	t.Helper()
	palette, shape := Palette(set), set.Shape()
	if len(palette) != 256*shape[2] {
		t.Fatalf("%s: a palette of %d values", set.Name(), len(palette))
	}
	const size = 6
	pixels := size * shape[0] * shape[1] * shape[2]
	for _, split := range []Split{Train, Test} {
		values, err := NewBatcher(set, split, size, 9)
		must(t, err)
		raw, err := NewByteBatcher(set.(Pictures), split, size, 9)
		must(t, err)
		l, err := NewLoader(t.Context(), raw, 0, 2, 2)
		must(t, err)
		for step := range min(raw.Steps(), 4) {
			want, got, wantLabels, labels := make([]float32, pixels), make([]uint8, pixels), make([]int32, size), make([]int32, size)
			wantFresh, err := values.Fill(step, want, wantLabels)
			must(t, err)
			fresh, err := l.Next(got, labels)
			must(t, err)
			for i, v := range got {
				if math.Float32bits(palette[i%shape[2]*256+int(v)]) != math.Float32bits(want[i]) {
					t.Fatalf("%s, %v batch %d: element %d is byte %d, and the value %v", set.Name(), split, step, i, v, want[i])
				}
			}
			if fresh != wantFresh || !slices.Equal(labels, wantLabels) {
				t.Fatalf("%s, %v batch %d: labels %v, want %v", set.Name(), split, step, labels, wantLabels)
			}
			compared++
		}
		l.Close()
	}
	return compared
}

// A palette has (v/255 - mean) / deviation, in float64 and rounded once, for all 256 bytes of each channel; grey repeats one.
func TestPaletteIsTheNormalization(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Image: 32}, {Image: 32, Channels: 1}} {
		eachFiles(t, func(t *testing.T, name string) {
			set := open(t, name, o)
			tones, grey := imagenet, o.Channels == 1
			switch s := set.(type) {
			case *stored:
				if tones = cifarTones; s.planes == 1 {
					tones, grey = measure(s.parts[Train].pixels), true
				}
			}
			for i, got := range Palette(set) {
				mean, deviation := tones.greyMean, tones.greyDeviation
				if !grey {
					mean, deviation = tones.mean[i/256], tones.deviation[i/256]
				}
				if want := float32((float64(i%256)/255 - mean) / deviation); math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%s, %d channels: byte %d of channel %d is %v, want %v", name, o.Channels, i%256, i/256, got, want)
				}
			}
		})
	}
}
