package data

import (
	"image"
	"math"
	"math/rand/v2"
)

// Bounds of a random crop: its share of the area, and the logarithm of its aspect ratio, 3:4 to 4:3.
const (
	cropLeast  = 0.08
	cropAspect = 0.28768207245178085 // ln(4/3)
	cropTries  = 10
)

// randomCrop draws the part of a picture that a training sample shows. It has 8 to 100 % of the area, an aspect ratio
// between 3:4 and 4:3, and lies anywhere (Szegedy et al.: Going deeper with convolutions, 2015, section 6). A picture so
// long that ten draws do not fit is cropped in its middle.
func randomCrop(r *rand.PCG, b image.Rectangle) image.Rectangle {
	area := float64(b.Dx()) * float64(b.Dy())
	for range cropTries {
		share := float64(area * uniform(r, cropLeast, 1))
		aspect := math.Exp(uniform(r, -cropAspect, cropAspect))
		w, h := int(math.Round(math.Sqrt(share*aspect))), int(math.Round(math.Sqrt(share/aspect)))
		if w > 0 && h > 0 && w <= b.Dx() && h <= b.Dy() {
			x, y := b.Min.X+below(r, b.Dx()-w+1), b.Min.Y+below(r, b.Dy()-h+1)
			return image.Rect(x, y, x+w, y+h)
		}
	}
	w := min(b.Dx(), max(1, b.Dy()*4/3))
	h := min(b.Dy(), max(1, b.Dx()*4/3))
	return middle(b, w, h)
}

// centerCrop returns the visible part of a test sample: the middle square, 7/8 of the shorter side, as when a picture
// is scaled to 256 pixels and cropped to 224.
func centerCrop(b image.Rectangle) image.Rectangle {
	side := max(1, (min(b.Dx(), b.Dy())*7+4)/8)
	return middle(b, side, side)
}

func middle(b image.Rectangle, w, h int) image.Rectangle {
	x, y := b.Min.X+(b.Dx()-w)/2, b.Min.Y+(b.Dy()-h)/2
	return image.Rect(x, y, x+w, y+h)
}
