package data

import (
	"image"
)

// palette turns 8-bit pixels into normalized values, (v/255 - mean) / deviation, looked up, or leaves them as they are.
type palette[T Element] struct {
	channels int
	grey     bool
	color    [3][256]T // one for each of R, G, B; only the first when grey
}

// palettes are the palettes of a data set of pictures.
type palettes struct {
	values *palette[float32]
	raw    *palette[uint8]
}

// Palette implements Pictures.
func (p *palettes) Palette() []float32 {
	all := make([]float32, 0, 256*p.values.channels)
	for c := range p.values.channels {
		if p.values.grey {
			c = 0
		}
		all = append(all, p.values.color[c][:]...)
	}
	return all
}

// tones are the means and deviations of pixels from 0 to 1, for color and for luminance.
type tones struct {
	mean, deviation [3]float64
	greyMean        float64
	greyDeviation   float64
}

// newPalettes returns the palettes of colors for three channels, and of luminance, repeated, for any other number.
func newPalettes(t tones, channels int, grey bool) palettes {
	grey = grey || channels != 3
	p := palettes{&palette[float32]{channels: channels, grey: grey}, &palette[uint8]{channels: channels, grey: grey}}
	if grey {
		t.mean[0], t.deviation[0] = t.greyMean, t.greyDeviation
	}
	for c := range p.values.color {
		for v := range 256 {
			p.values.color[c][v] = float32((float64(v)/255 - t.mean[c]) / t.deviation[c])
			p.raw.color[c][v] = uint8(v)
		}
		if grey {
			break
		}
	}
	return p
}

// paint writes an image of the destination's size, mirrored from left to right if asked to. Images that are not opaque
// are already laid over black.
func (p *palette[T]) paint(dst []T, img *image.RGBA, mirror bool) {
	w := img.Rect.Dx()
	for y := range img.Rect.Dy() {
		row := img.Pix[y*img.Stride:][:4*w]
		line := dst[y*w*p.channels:][:w*p.channels]
		for x := range w {
			at := x
			if mirror {
				at = w - 1 - x
			}
			p.pixel(line[x*p.channels:][:p.channels], row[4*at:][:4])
		}
	}
}

func (p *palette[T]) pixel(dst []T, rgba []uint8) {
	if !p.grey {
		dst[0], dst[1], dst[2] = p.color[0][rgba[0]], p.color[1][rgba[1]], p.color[2][rgba[2]]
		return
	}
	v := p.color[0][luminance(rgba)]
	for c := range dst {
		dst[c] = v
	}
}

// luminance is the luminance of ITU-R BT.601, rounded.
func luminance(rgba []uint8) uint8 {
	return uint8((299*uint32(rgba[0]) + 587*uint32(rgba[1]) + 114*uint32(rgba[2]) + 500) / 1000)
}
