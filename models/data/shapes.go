package data

import (
	"fmt"
	"math"
	"math/rand/v2"
)

var shapesInfo = Info{
	Name:     "shapes",
	Summary:  "an endless stream of circles, rectangles and triangles, seeded, with a class for each pixel; as many classes as --classes",
	Source:   "drawn by the program",
	MinImage: 16,
	Open:     openShapes,
}

// Shapes are drawn over each other, first to last; class 0 is the ground.
const (
	shapesKinds   = 3 // circle, rectangle, triangle
	shapesClasses = 1 + shapesKinds
	// shapesMost bounds the classes: of each kind shapes have one of seven tones then.
	shapesMost   = 1 + 7*shapesKinds
	shapesNumber = 5   // at most, in an image
	shapesTest   = 252 // as many of each class on top, for most numbers of classes
)

// Pixel values before normalization are 0 (black) to 1 (white); shapesMean and shapesDeviation are those of the training samples with
// four classes.
const (
	shapesMean      = 0.326
	shapesDeviation = 0.262
)

// shapes is the data set of that name. The tones of shapes are divided into bands, with unused tones between them. Class 1 + kind +
// 3*band is the class of the shapes of a kind in a band. With up to four classes there is one band.
type shapes struct {
	options Options
	classes int
	bands   int
}

func openShapes(_ string, o Options) (Dataset, error) {
	classes := o.Classes
	if classes == 0 {
		classes = shapesClasses
	}
	if classes < 2 || classes > shapesMost {
		return nil, fmt.Errorf("%w: data set %s with %d classes; 2, the ground and circles, to %d work", ErrOption, "shapes", classes, shapesMost)
	}
	return &shapes{o, classes, (classes-2)/shapesKinds + 1}, nil
}

func (s *shapes) Name() string    { return shapesInfo.Name }
func (s *shapes) Classes() int    { return s.classes }
func (s *shapes) Shape() [3]int   { return s.options.shape() }
func (s *shapes) TrainLen() int64 { return 0 }
func (s *shapes) TestLen() int64  { return shapesTest }

// Fill implements Dataset, with the class of the shape that is drawn last.
func (s *shapes) Fill(split Split, index int64, dst []float32) (int, error) {
	return s.draw(split, index, dst, nil), nil
}

// FillMask implements Masks.
func (s *shapes) FillMask(split Split, index int64, dst []float32, mask []int32) error {
	s.draw(split, index, dst, mask)
	return nil
}

// draw draws a sample, and its mask if there is one, and returns the class of the shape on top.
func (s *shapes) draw(split Split, index int64, dst []float32, mask []int32) (last int) {
	if split == Test {
		index %= shapesTest
	}
	o := &s.options
	var r rand.PCG
	stream(&r, o.Seed, split, index)
	ground := uniform(&r, 0.05, 0.35)
	noise := float32(uniform(&r, 0.02, 0.1) / shapesDeviation / noiseUnit)
	base := normalized(ground)
	for i := range o.Image * o.Image {
		dst[i*o.Channels] = base
	}
	clear(mask)
	for n := 1 + below(&r, shapesNumber); n > 0; n-- {
		if last = 1 + below(&r, s.classes-1); n == 1 {
			last = s.lastClass(split, index)
		}
		f := drawFigure(&r, (last-1)%shapesKinds, o.Image)
		f.paint(dst, mask, o.Image, o.Channels, s.tone(&r, (last-1)/shapesKinds), int32(last))
	}
	finish(dst, o.Channels, noise, &r)
	return last
}

// lastClass returns the class of the shape on top: every run of as many samples as there are classes of shapes, from a multiple on, has
// each once.
func (s *shapes) lastClass(split Split, index int64) int {
	n := uint64(s.classes - 1)
	block, place := uint64(index)/n, uint64(index)%n
	return 1 + int(newPermutation(n, hash(s.options.Seed, classKey, block<<1|uint64(split))).at(place))
}

// tone draws the tone of a shape in a band: a half of the band's width is the gap to the next one.
func (s *shapes) tone(r *rand.PCG, band int) float32 {
	const lo, hi = 0.5, 1
	width := (hi - lo) / (float64(s.bands) - 0.5)
	from := lo + float64(float64(band)*width)
	return normalized(uniform(r, from, from+width/2))
}

func normalized(v float64) float32 { return float32((v - shapesMean) / shapesDeviation) }

// figure is a shape in pixels: what it covers about its middle, turned by the angle whose cosine and sine are c and s.
type figure struct {
	kind   int
	x, y   float64
	c, s   float64
	a, b   float64 // half of the sides of a rectangle; a is the radius of a circle, and of that around a triangle
	radius float64 // nothing is farther from the middle
}

// drawFigure draws a figure of a kind somewhere in an image, its middle included.
func drawFigure(r *rand.PCG, kind, image int) figure {
	side := float64(image)
	f := figure{kind: kind, x: uniform(r, 0, side), y: uniform(r, 0, side), a: uniform(r, 0.1*side, 0.3*side)}
	slope := uniform(r, -1, 1)
	f.c = 1 / math.Sqrt(1+float64(slope*slope))
	f.s = f.c * slope
	f.b = f.a * uniform(r, 0.5, 1)
	f.radius = f.a
	switch {
	case kind == 1: // a rectangle, whose corners are farther away
		f.radius = f.a + f.b
	case kind == 2 && r.Uint64()&1 == 0: // a triangle on its tip
		f.c, f.s = -f.c, -f.s
	}
	return f
}

// covers reports whether a position lies in the figure.
func (f *figure) covers(x, y float64) bool {
	dx, dy := x-f.x, y-f.y
	u, v := float64(f.c*dx)+float64(f.s*dy), float64(f.c*dy)-float64(f.s*dx)
	switch f.kind {
	case 0:
		return float64(u*u)+float64(v*v) <= f.a*f.a
	case 1:
		return math.Abs(u) <= f.a && math.Abs(v) <= f.b
	}
	const sqrt3 = 1.7320508075688772 // the sides of a triangle whose tip is at (0, -a)
	return v <= f.a/2 && float64(sqrt3*math.Abs(u)) <= v+f.a
}

// paint gives the pixels whose middles the figure covers its tone, in the first channel, and in the mask, if there is one, its class.
func (f *figure) paint(dst []float32, mask []int32, image, channels int, tone float32, class int32) {
	from := func(at float64) int { return max(0, int(math.Floor(at-f.radius))) }
	to := func(at float64) int { return min(image, int(math.Ceil(at+f.radius))) }
	for y := from(f.y); y < to(f.y); y++ {
		for x := from(f.x); x < to(f.x); x++ {
			if !f.covers(float64(x)+0.5, float64(y)+0.5) {
				continue
			}
			dst[(y*image+x)*channels] = tone
			if mask != nil {
				mask[y*image+x] = class
			}
		}
	}
}

// finish adds noise, whose bytes are worth so much each, to the first channel and repeats it over the others.
func finish(dst []float32, channels int, noise float32, r *rand.PCG) {
	var random uint64
	for i := range len(dst) / channels {
		if i&3 == 0 {
			random = r.Uint64()
		}
		pixel := dst[i*channels:][:channels]
		pixel[0] += float32(noise * float32(int(random&255)+int(random>>8&255)-255))
		random >>= 16
		for c := range pixel {
			pixel[c] = pixel[0]
		}
	}
}
