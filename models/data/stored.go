package data

import (
	"fmt"
	"image"
	"math/rand/v2"

	"golang.org/x/image/draw"
)

// part is one split of a stored set: images of one size after another, each plane by plane, and their labels.
type part struct {
	pixels []byte
	labels []uint8
}

// stored is a data set of small images of one size, held in memory as the bytes of their files.
type stored struct {
	skips
	palettes
	name    string
	options Options
	classes int
	width   int // of the stored images
	height  int
	planes  int // 1 or 3
	parts   [2]part
	reach   int         // pixels that a training image moves at most, each way; what moves in is 0, black
	mirrors bool        // half of the training images are mirrored
	scale   draw.Scaler // nil when the images have the wanted size
	scratch scratches
}

// finish sets what follows from the options.
func (s *stored) finish(o Options, t tones) {
	s.palettes = newPalettes(t, o.Channels, s.planes == 1)
	s.scratch = newScratches()
	if s.width != o.Image || s.height != o.Image {
		s.scale = draw.CatmullRom.NewScaler(o.Image, o.Image, s.width, s.height)
	}
}

// populated returns an error when a split or a class of a split is empty.
func (s *stored) populated() error {
	for split, p := range s.parts {
		if len(p.labels) == 0 {
			return fmt.Errorf("%w: the %v split is empty", ErrNoImages, Split(split))
		}
		counts := make([]int, s.classes)
		for _, label := range p.labels {
			counts[label]++
		}
		for class, n := range counts {
			if n == 0 {
				return fmt.Errorf("%w: no %v image has label %d, of 0 to %d", ErrEmptyClass, Split(split), class, s.classes-1)
			}
		}
	}
	return nil
}

func (s *stored) Name() string    { return s.name }
func (s *stored) Classes() int    { return s.classes }
func (s *stored) Shape() [3]int   { return s.options.shape() }
func (s *stored) TrainLen() int64 { return int64(len(s.parts[Train].labels)) }
func (s *stored) TestLen() int64  { return int64(len(s.parts[Test].labels)) }

// Fill implements Dataset; it never fails.
func (s *stored) Fill(split Split, index int64, dst []float32) (int, error) {
	return fillStored(s, s.values, split, index, dst), nil
}

// FillBytes implements Pictures; it never fails.
func (s *stored) FillBytes(split Split, index int64, dst []uint8) (int, error) {
	return fillStored(s, s.raw, split, index, dst), nil
}

func fillStored[T Element](s *stored, with *palette[T], split Split, index int64, dst []T) (label int) {
	p := &s.parts[split]
	i := int(index % int64(len(p.labels)))
	dx, dy, mirror := 0, 0, false
	if split == Train && !s.options.NoAugment {
		var r rand.PCG
		stream(&r, s.options.Seed, split, index)
		dx, dy = below(&r, 2*s.reach+1)-s.reach, below(&r, 2*s.reach+1)-s.reach
		mirror = s.mirrors && below(&r, 2) == 1
	}
	memory := s.scratch.get()
	defer s.scratch.put(memory)
	memory.native = fit(memory.native, s.width, s.height)
	size := s.planes * s.width * s.height
	s.show(memory.native, p.pixels[i*size:][:size], dx, dy)
	with.paint(dst, s.resized(memory), mirror)
	return int(p.labels[i])
}

// show unpacks an image, moved by (dx, dy), as a crop at (-dx, -dy) from one with a black border shows it.
func (s *stored) show(img *image.RGBA, pixels []byte, dx, dy int) {
	clear(img.Pix)
	for alpha := 3; alpha < len(img.Pix); alpha += 4 {
		img.Pix[alpha] = 255
	}
	plane := s.width * s.height
	green, blue := plane, 2*plane
	if s.planes == 1 {
		green, blue = 0, 0
	}
	for y := max(0, dy); y < min(s.height, s.height+dy); y++ {
		for x := max(0, dx); x < min(s.width, s.width+dx); x++ {
			from := (y-dy)*s.width + x - dx
			to := img.Pix[y*img.Stride+4*x:][:3]
			to[0], to[1], to[2] = pixels[from], pixels[green+from], pixels[blue+from]
		}
	}
}

// resized returns the unpacked image at the wanted size.
func (s *stored) resized(memory *scratch) *image.RGBA {
	if s.scale == nil {
		return memory.native
	}
	memory.scaled = fit(memory.scaled, s.options.Image, s.options.Image)
	s.scale.Scale(memory.scaled, memory.scaled.Rect, memory.native, memory.native.Rect, draw.Src, nil)
	return memory.scaled
}
