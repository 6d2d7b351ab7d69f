package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"
)

// masked returns the values and the mask of a sample.
func masked(t *testing.T, set Dataset, split Split, index int64) (dst []float32, mask []int32) {
	t.Helper()
	dst, mask = canvas(set), slices.Repeat([]int32{7777}, Labels(set))
	if err := set.(Masks).FillMask(split, index, dst, mask); err != nil {
		t.Fatal(err)
	}
	return dst, mask
}

// The masks are what they were when the set was written, on every platform, as TestGolden's images are.
func TestMasksAreGolden(t *testing.T) {
	t.Parallel()
	set := open(t, "shapes", Options{Seed: 7, Image: 24, Channels: 2, Classes: 7})
	h := sha256.New()
	for _, split := range []Split{Train, Test} {
		for i := range int64(400) {
			dst, mask := masked(t, set, split, i)
			addTo(h, dst)
			if err := binary.Write(h, binary.LittleEndian, mask); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := hex.EncodeToString(h.Sum(nil)[:12]), "1838f0019feea592287d4540"; got != want {
		t.Errorf("samples and masks hash to %s, want %s", got, want)
	}
}

// A mask gives the class of each pixel of its image. Without noise, a pixel's tone is in the band of its class, or is a tone of the ground.
// Every class has pixels, at any size and number of classes. Images are the same with and without a mask.
func TestMasksAreTheShapes(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Image: 16, Channels: 1}, {Image: 33, Channels: 3, Classes: 2}, {Image: 64, Channels: 2, Classes: 9}, {Image: 48, Classes: 22}} {
		set := open(t, "shapes", o)
		s := set.(*shapes)
		seen, plain := make([]int, set.Classes()), canvas(set)
		for i := range int64(200) {
			dst, mask := masked(t, set, Train, i)
			if top := fill(t, set, Train, i, plain); !slices.Equal(dst, plain) || top < 1 || top >= set.Classes() {
				t.Fatalf("%+v: sample %d is another one without a mask, or its class is %d", o, i, top)
			}
			for k, class := range mask {
				seen[class]++
				value := float64(dst[k*s.options.Channels])*shapesDeviation + shapesMean
				if lo, hi := s.band(int(class)); value < lo-0.25 || value > hi+0.25 { // noise deviates by 0.1 at most, and ends at 2.44 times that
					t.Fatalf("%+v: sample %d has %.3f where class %d is, from %.3f to %.3f", o, i, value, class, lo, hi)
				}
			}
		}
		if slices.Min(seen) == 0 {
			t.Errorf("%+v: pixels of each class: %v", o, seen)
		}
	}
}

// band returns the tones of a class.
func (s *shapes) band(class int) (lo, hi float64) {
	if class == 0 {
		return 0.05, 0.35
	}
	width := 0.5 / (float64(s.bands) - 0.5)
	lo = 0.5 + width*float64((class-1)/shapesKinds)
	return lo, lo + width/2
}

// Drawn large, shapes have the areas of their formulas, wherever they are turned, and lie within their radius.
func TestFiguresHaveTheirAreas(t *testing.T) {
	t.Parallel()
	const side, r = 400, 150.0
	for _, c := range []struct {
		name string
		f    figure
		want float64
	}{
		{"circle", figure{kind: 0, c: 1, a: r, radius: r}, math.Pi * r * r},
		{"square", figure{kind: 1, c: 1, a: r, b: r, radius: 2 * r}, 4 * r * r},
		{"turned rectangle", figure{kind: 1, c: 0.8, s: 0.6, a: r, b: r / 2, radius: 1.5 * r}, 2 * r * r},
		{"triangle", figure{kind: 2, c: 1, a: r, radius: r}, 3 * math.Sqrt(3) / 4 * r * r},
		{"triangle on its tip", figure{kind: 2, c: -0.8, s: -0.6, a: r, radius: r}, 3 * math.Sqrt(3) / 4 * r * r},
	} {
		c.f.x, c.f.y = side/2, side/2
		dst, mask := make([]float32, side*side), make([]int32, side*side)
		c.f.paint(dst, mask, side, 1, 5, 3)
		area, middle := 0, [2]float64{}
		for i, class := range mask {
			if class == 3 {
				area++
				middle[0] += float64(i%side) + 0.5 - side/2
				middle[1] += float64(i/side) + 0.5 - side/2
			}
			if (class == 3) != (dst[i] == 5) {
				t.Fatalf("%s: pixel %d is of class %d with tone %v", c.name, i, class, dst[i])
			}
		}
		if math.Abs(float64(area)-c.want) > 0.01*c.want || math.Hypot(middle[0], middle[1]) > 0.5*float64(area) {
			t.Errorf("%s covers %d pixels about %v, want %.0f about the middle", c.name, area, middle, c.want)
		}
	}
}

// Batches have a class for each pixel, the same from a batcher and a loader; images with masks are no bytes.
func TestBatchesOfMasks(t *testing.T) {
	t.Parallel()
	set := open(t, "shapes", Options{Seed: 3, Image: 20, Channels: 1})
	b := newBatcher(t, set, Train, 4, 1)
	l, err := NewLoader(t.Context(), b, 5, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	images, labels := make([]float32, 4*400), make([]int32, 4*400)
	again, labelsAgain := slices.Clone(images), slices.Clone(labels)
	for step := int64(5); step < 9; step++ {
		fillBatch(t, b, step, images, labels)
		if _, err := l.Next(again, labelsAgain); err != nil || !slices.Equal(images, again) || !slices.Equal(labels, labelsAgain) {
			t.Fatalf("batch %d of the loader is another one, %v", step, err)
		}
		for i := range 4 {
			if _, mask := masked(t, set, Train, step*4+int64(i)); !slices.Equal(mask, labels[i*400:(i+1)*400]) {
				t.Fatalf("batch %d: the labels of image %d are not its mask", step, i)
			}
		}
	}
	if !Masked(set) || Masked(small(t, "digits")) || Palette(bytesWithMasks{}) != nil {
		t.Error("what has masks is not told apart")
	}
}

// bytesWithMasks is a data set of bytes with masks.
type bytesWithMasks struct {
	Pictures
}

func (bytesWithMasks) FillMask(Split, int64, []float32, []int32) error { return nil }

// The set says what it is drawn with.
func TestShapesAreDescribed(t *testing.T) {
	t.Parallel()
	if !strings.Contains(shapesInfo.Summary, "--classes") || open(t, "shapes", Options{Image: 16, Classes: 5}).Classes() != 5 {
		t.Error("shapes have as many classes as are asked for")
	}
}
