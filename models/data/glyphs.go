package data

import (
	"fmt"
	"math/rand/v2"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gobolditalic"
	"golang.org/x/image/font/gofont/goitalic"
	"golang.org/x/image/font/gofont/gomedium"
	"golang.org/x/image/font/gofont/gomediumitalic"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/gofont/gomonobolditalic"
	"golang.org/x/image/font/gofont/gomonoitalic"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// alphabet holds the classes of glyphs in label order.
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// glyphTest is the number of test samples, 32 of each class.
const glyphTest = 32 * int64(len(alphabet))

var glyphsInfo = Info{
	Name:     "glyphs",
	Summary:  "an endless stream of rendered characters 0-9 A-Z a-z, seeded; 62 classes",
	Source:   "rendered from the Go fonts by Bigelow & Holmes, BSD 3-clause",
	MinImage: 16,
	Open:     openGlyphs,
}

// faces are the Go fonts but for small caps, in which c and C would be one picture.
var faces = [][]byte{
	goregular.TTF, goitalic.TTF, gomedium.TTF, gomediumitalic.TTF, gobold.TTF, gobolditalic.TTF,
	gomono.TTF, gomonoitalic.TTF, gomonobold.TTF, gomonobolditalic.TTF,
}

// glyph is one character of one face, rendered once, and the position of the bordered picture that poses turn
// and scale about. That is the middle of the character across, and the middle of the writing line (from the foot
// of a p to the top of a d) down.
type glyph struct {
	mask
	cu, cv float64
}

// glyphs is the data set of that name.
//
// Ten pairs of letters (c C, o O, s S, ...) differ in little but their size, a ratio of about 0.73 in these
// fonts. Two choices keep every pair apart. The size changes by at most 8 % either way: the smallest C is still
// 1.16 times as high as the largest c. All characters of a size stand on one writing line that moves little, so
// that an o also sits lower than an O.
type glyphs struct {
	options Options
	zoom    float64 // mask pixels an image pixel
	faces   [][len(alphabet)]glyph
}

const (
	// glyphEm is the type size as a share of the image's side; with every distortion at its largest, a wide or
	// deep character still fits.
	glyphEm = 0.78
	// glyphEmMax bounds the type size in pixels at which masks are rendered; larger images stretch them.
	glyphEmMax = 160
)

var glyphJitter = jitter{grow: 0.08, turn: 0.14, slant: 0.18, shift: [2]float64{0.06, 0.04}}

// Pixel values before normalization are 0 (black) to 1 (white); glyphMean and glyphDeviation are those of the
// training samples.
const (
	glyphMean      = 0.26
	glyphDeviation = 0.205
)

func openGlyphs(_ string, o Options) (Dataset, error) {
	em := float64(glyphEm * float64(o.Image))
	size := min(em, glyphEmMax)
	s := &glyphs{options: o, zoom: size / em, faces: make([][len(alphabet)]glyph, len(faces))}
	for i, ttf := range faces {
		if err := renderFace(&s.faces[i], ttf, size); err != nil {
			return nil, fmt.Errorf("data set glyphs: face %d: %w", i, err)
		}
	}
	return s, nil
}

// renderFace renders the alphabet at a type size in pixels.
func renderFace(dst *[len(alphabet)]glyph, ttf []byte, size float64) error {
	f, err := opentype.Parse(ttf)
	if err != nil {
		return err
	}
	face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingNone})
	if err != nil {
		return err
	}
	top, _, _ := face.GlyphBounds('d')
	foot, _, _ := face.GlyphBounds('p')
	line := float64(top.Min.Y+foot.Max.Y) / 2 / 64 // relative to the baseline, down
	for i, c := range alphabet {
		dst[i] = renderGlyph(face, c, line)
	}
	return face.Close()
}

func renderGlyph(face font.Face, c rune, line float64) glyph {
	r, alpha, from, _, _ := face.Glyph(fixed.Point26_6{}, c)
	g := glyph{mask: newMask(r.Dx(), r.Dy())}
	for y := range r.Dy() {
		for x := range r.Dx() {
			_, _, _, a := alpha.At(from.X+x, from.Y+y).RGBA()
			g.set(x, y, uint8(a>>8))
		}
	}
	g.cu = float64(r.Dx()+1) / 2
	g.cv = line - float64(r.Min.Y) + 0.5
	return g
}

func (s *glyphs) Name() string    { return glyphsInfo.Name }
func (s *glyphs) Classes() int    { return len(alphabet) }
func (s *glyphs) Shape() [3]int   { return s.options.shape() }
func (s *glyphs) TrainLen() int64 { return 0 }
func (s *glyphs) TestLen() int64  { return glyphTest }

// Fill implements Dataset. Every run of 62 samples from a multiple of 62 on holds each class once.
func (s *glyphs) Fill(split Split, index int64, dst []float32) (int, error) {
	if split == Test {
		index %= glyphTest
	}
	o := &s.options
	n := uint64(len(alphabet))
	block, place0 := uint64(index)/n, uint64(index)%n
	class := newPermutation(n, hash(o.Seed, classKey, block<<1|uint64(split))).at(place0)

	var r rand.PCG
	stream(&r, o.Seed, split, index)
	g := &s.faces[r.Uint64()%uint64(len(s.faces))][class]
	p := glyphJitter.draw(&r)
	g.draw(dst, o.Image, o.Channels, place(o.Image, s.zoom, g.cu, g.cv, p), drawTone(&r), &r)
	return int(class), nil
}

// drawTone draws a light character on a dark ground, with noise.
func drawTone(r *rand.PCG) tone {
	ground := uniform(r, 0.05, 0.35)
	ink := uniform(r, 0.65, 1)
	noise := uniform(r, 0.02, 0.1)
	return tone{
		base:  float32((ground - glyphMean) / glyphDeviation),
		gain:  float32((ink - ground) / glyphDeviation),
		noise: float32(noise / glyphDeviation),
	}
}
