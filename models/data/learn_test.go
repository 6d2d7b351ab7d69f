package data

import (
	"math"
	"testing"
)

// samples returns n samples as rows.
func samples(t testing.TB, set Dataset, split Split, n int64) (images [][]float32, labels []int) {
	for i := range n {
		dst := canvas(set)
		labels = append(labels, fill(t, set, split, i, dst))
		images = append(images, dst)
	}
	return images, labels
}

func distance(a, b []float32) (d float32) {
	for i, v := range a {
		d += (v - b[i]) * (v - b[i])
	}
	return d
}

func nearest(x []float32, all [][]float32) (best int) {
	least := float32(math.Inf(1))
	for i, y := range all {
		if d := distance(x, y); d < least {
			best, least = i, d
		}
	}
	return best
}

// accuracy is the share of the test samples whose nearest reference has their label.
func accuracy(t testing.TB, set Dataset, references [][]float32, labels []int, n int64) float64 {
	images, truth := samples(t, set, Test, n)
	right := 0
	for i, x := range images {
		if labels[nearest(x, references)] == truth[i] {
			right++
		}
	}
	return float64(right) / float64(n)
}

// The nearest training picture names a test digit; augmentation keeps a digit readable as what it is.
func TestDigitsCanBeLearned(t *testing.T) {
	t.Parallel()
	plain := open(t, "digits", Options{Image: 8, Channels: 1, NoAugment: true})
	images, labels := samples(t, plain, Train, plain.TrainLen())
	if a := accuracy(t, plain, images, labels, plain.TestLen()); a < 0.97 {
		t.Errorf("the nearest of the training pictures is right for %.3f of the test pictures", a)
	}
	augmented := open(t, "digits", Options{Image: 8, Channels: 1, Seed: 1})
	images, labels = samples(t, augmented, Train, 3*augmented.TrainLen())
	if a := accuracy(t, augmented, images, labels, augmented.TestLen()); a < 0.97 {
		t.Errorf("the nearest of three epochs of augmented pictures is right for %.3f", a)
	}
}

// The nearest class mean, which knows nothing of place and slant, names over a third of the glyphs: chance is 1 in
// 62.
func TestGlyphsCanBeLearned(t *testing.T) {
	t.Parallel()
	set := small(t, "glyphs")
	images, labels := samples(t, set, Train, 62*60)
	means := make([][]float32, set.Classes())
	classes := make([]int, set.Classes())
	for c := range means {
		means[c], classes[c] = canvas(set), c
	}
	for i, x := range images {
		for k, v := range x {
			means[labels[i]][k] += v / 60
		}
	}
	if a := accuracy(t, set, means, classes, set.TestLen()); a < 0.35 {
		t.Errorf("the nearest class mean is right for %.3f of the test glyphs", a)
	}
}

// Letters whose two cases differ only in size stay apart: the smallest capital is at least a tenth higher than the
// largest small letter, in every face.
func TestCasesStayApart(t *testing.T) {
	t.Parallel()
	set := small(t, "glyphs").(*glyphs)
	big := open(t, "glyphs", Options{Image: 200, Channels: 1}).(*glyphs)
	pairs := 0
	for f := range big.faces {
		for _, c := range "coskpuvwxz" {
			lower, upper := indexOf(c), indexOf(c-'a'+'A')
			low, up := &big.faces[f][lower], &big.faces[f][upper]
			if c != 'k' && c != 'p' && float64(up.h-2)*(1-glyphJitter.grow) < 1.1*float64(low.h-2)*(1+glyphJitter.grow) {
				t.Errorf("face %d: %c is %d pixels high, its capital %d", f, c, low.h-2, up.h-2)
			}
			pairs++
		}
	}
	if pairs != 10*len(set.faces) {
		t.Errorf("%d pairs were compared", pairs)
	}
}

func indexOf(c rune) int {
	for i, a := range alphabet {
		if a == c {
			return i
		}
	}
	return -1
}

// However a glyph is turned and moved, at most the serifs of the widest letters leave the image.
func TestGlyphsFit(t *testing.T) {
	t.Parallel()
	const side = 48
	set := open(t, "glyphs", Options{Image: side, Channels: 1}).(*glyphs)
	dst := canvas(set)
	drawn := 0
	for f := range set.faces {
		for c := range set.faces[f] {
			g := &set.faces[f][c]
			g.draw(dst, side, 1, place(side, set.zoom, g.cu, g.cv, pose{scale: 1}), tone{gain: 1}, nil)
			whole := ink(dst)
			for corner := range 32 {
				p := cornerOf(glyphJitter, corner)
				g.draw(dst, side, 1, place(side, set.zoom, g.cu, g.cv, p), tone{gain: 1}, nil)
				drawn++
				// Ink grows as the determinant of the map from the picture to the image.
				growth := p.scale * p.scale / (1 + p.turn*(p.turn+p.slant))
				if left := ink(dst) / (whole * growth); left < 0.96 || left > 1.02 {
					t.Errorf("face %d, %q: %.3f of the ink is left at corner %05b", f, alphabet[c], left, corner)
				}
			}
		}
	}
	if drawn != 10*62*32 {
		t.Errorf("%d glyphs were drawn", drawn)
	}
}

func ink(pixels []float32) (sum float64) {
	for _, v := range pixels {
		sum += float64(v)
	}
	return sum
}

// cornerOf returns the extreme pose that the bits of a number choose.
func cornerOf(j jitter, bits int) pose {
	side := func(bit int, x float64) float64 {
		if bits>>bit&1 == 1 {
			return x
		}
		return -x
	}
	return pose{1 + side(0, j.grow), side(1, j.turn), side(2, j.slant), side(3, j.shift[0]), side(4, j.shift[1])}
}
