package data

import (
	"image"
	"runtime"
)

// scratch is the memory that one sample needs while it is made.
type scratch struct {
	file   []byte      // the bytes of a picture
	native *image.RGBA // an image before it is scaled
	scaled *image.RGBA
}

// keptScratch is how many bytes of each kind wait for the next sample.
const keptScratch = 32 << 20

// shrink forgets what an unusually large picture took, decoded so many bytes.
func (s *scratch) shrink(decoded int64) {
	if decoded > 4*keptScratch {
		defer runtime.GC() // or the garbage of one picture would lie beside the next
	}
	if cap(s.file) > keptScratch {
		s.file = nil
	}
	if s.native != nil && cap(s.native.Pix) > keptScratch {
		s.native = nil
	}
}

// scratches keeps scratch memory for reuse: as much as was ever in use at one time, up to its capacity.
type scratches chan *scratch

func (s scratches) get() *scratch {
	select {
	case one := <-s:
		return one
	default:
		return &scratch{}
	}
}

func (s scratches) put(one *scratch) {
	select {
	case s <- one:
	default:
	}
}

// maxScratches is more than the workers that are of use.
const maxScratches = 256

func newScratches() scratches { return make(scratches, maxScratches) }

// fit returns an image of a size, the given one if it has that size.
func fit(img *image.RGBA, w, h int) *image.RGBA {
	if img != nil && img.Rect.Dx() == w && img.Rect.Dy() == h {
		return img
	}
	return image.NewRGBA(image.Rect(0, 0, w, h))
}
