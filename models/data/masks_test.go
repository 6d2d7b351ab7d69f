package data

import (
	"errors"
	"image"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// quarters is a mask of so many pixels with class 1 in the left quarter, 2 right of the middle, 255 at the bottom, else 0.
func quarters(w, h int, paletted bool) image.Image {
	rect := image.Rect(0, 0, w, h)
	grey, indexed := image.NewGray(rect), image.NewPaletted(rect, make(color.Palette, 256))
	for i := range indexed.Palette {
		indexed.Palette[i] = color.RGBA{uint8(i * 7), uint8(i), uint8(255 - i), 255}
	}
	for y := range h {
		for x := range w {
			class := quarter(x, y, w, h)
			grey.SetGray(x, y, color.Gray{class})
			indexed.SetColorIndex(x, y, class)
		}
	}
	if paletted {
		return indexed
	}
	return grey
}

func quarter(x, y, w, h int) uint8 {
	switch {
	case y >= h*7/8:
		return maskIgnored
	case x < w/4:
		return 1
	case x >= w/2:
		return 2
	}
	return 0
}

// TestMasks: each pixel has the class of where it comes from, which pictures of coordinates tell, also where crops are scaled and mirrored.
func TestMasks(t *testing.T) {
	t.Parallel()
	const w, h, side = 200, 150, 32
	for _, paletted := range []bool{false, true} {
		root := t.TempDir()
		for _, split := range []string{"train", "val"} {
			write(t, filepath.Join(root, split, "images", "a.png"), pngBytes(t, coded(w, h)))
			write(t, filepath.Join(root, split, "masks", "a.png"), pngBytes(t, quarters(w, h, paletted)))
		}
		set := open(t, "masks:"+root, Options{Image: side, Seed: 3, Classes: 3}).(Masks)
		dst, mask := canvas(set), make([]int32, side*side)
		seen := map[int32]int{}
		for i := range int64(60) {
			split := Split(i % 2)
			must(t, set.FillMask(split, i, dst, mask))
			for at, got := range mask {
				position := func(c int) float64 { return 255 * (float64(dst[at*3+c])*imagenet.deviation[c] + imagenet.mean[c]) }
				x, y := position(0), position(1)
				const blur = 5 // pixels, of scaling and rounding
				want := quarter(int(x), int(y), w, h)
				edge := math.Abs(x-w/4) < blur || math.Abs(x-w/2) < blur || math.Abs(y-h*7/8) < blur
				if seen[got]++; !edge && got != map[uint8]int32{0: 0, 1: 1, 2: 2, maskIgnored: Ignored}[want] {
					t.Fatalf("%v sample %d: the pixel from (%.0f, %.0f) has class %d, want %d", split, i, x, y, got, want)
				}
			}
		}
		if len(seen) != 4 {
			t.Errorf("classes %v", seen)
		}
	}
}

// TestMasksOfFewBits: grey values of one bit are the classes 0 and 1.
func TestMasksOfFewBits(t *testing.T) {
	t.Parallel()
	// A PNG of 8x8 pixels of one bit of grey: Pillow wrote it, its left half is white.
	file, err := os.ReadFile("testdata/mask-1bit.png")
	must(t, err)
	root := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, filepath.Join(root, "images", name+".jpg"), jpegBytes(t, coded(8, 8)))
		write(t, filepath.Join(root, "masks", name+".png"), file)
	}
	set := open(t, "masks:"+root, Options{Image: 8, Classes: 2}).(Masks)
	mask := make([]int32, 64)
	must(t, set.FillMask(Test, 0, canvas(set), mask))
	if set.TrainLen() != 2 || set.TestLen() != 1 || mask[0] != 1 || mask[7] != 0 {
		t.Errorf("%d and %d samples, classes %v", set.TrainLen(), set.TestLen(), mask)
	}
}

// TestBadMasks: each is refused with the file and the reason.
func TestBadMasks(t *testing.T) {
	t.Parallel()
	picture := pngBytes(t, coded(40, 40))
	rgb := image.NewRGBA(image.Rect(0, 0, 40, 40))
	for _, c := range []struct {
		mask    []byte
		name    string
		classes int
		want    error
		words   string
	}{
		{pngBytes(t, quarters(40, 40, false)), "a.png", 2, ErrLabel, "has class 2, want 0 to 1 (--classes 2), or 255"},
		{pngBytes(t, quarters(40, 39, false)), "a.png", 3, ErrCorrupt, "it has (40,39) pixels, and its picture (40,40)"},
		{pngBytes(t, rgb), "a.png", 3, ErrCorrupt, "a mask is a PNG file with a palette"},
		{jpegBytes(t, quarters(40, 40, false)), "a.png", 3, ErrCorrupt, "a mask is a PNG file with a palette"},
		{pngBytes(t, quarters(40, 40, true))[:300], "a.png", 3, ErrTruncated, "a.png"},
		{picture, "b.png", 3, ErrNoImages, "a.png has no mask"},
		{picture, "a.png", 0, ErrOption, "give --classes, from 1 to 255"},
		{picture, "a.png", 256, ErrOption, "give --classes, from 1 to 255"},
	} {
		root := t.TempDir()
		for _, split := range []string{"train", "test"} {
			write(t, filepath.Join(root, split, "images", "a.png"), picture)
			write(t, filepath.Join(root, split, "masks", c.name), c.mask)
		}
		set, err := Open("masks:"+root, Options{Image: 40, Channels: 3, Classes: c.classes, NoAugment: true})
		if err == nil {
			err = set.(Masks).FillMask(Train, 0, canvas(set), make([]int32, 1600))
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v, want %v with %q", err, c.want, c.words)
		}
	}
	if _, err := Open("masks:"+t.TempDir(), Options{Image: 40, Channels: 3, Classes: 3}); !errors.Is(err, ErrNoImages) || !strings.Contains(err.Error(), "neither images and masks") {
		t.Errorf("an empty folder: %v", err)
	}
}
