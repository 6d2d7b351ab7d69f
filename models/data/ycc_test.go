package data

import (
	"bytes"
	"image"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testdata/jpeg has pictures of all subsamplings and, as PNGs, the same pictures decoded by libjpeg-turbo 3.2 (jpeg.py). Our pictures
// differ from them by a unit here and there of the inverse transform, which becomes up to 3 when colors are formed. A window has the same
// bytes as that part of the whole picture.
func TestColorsAreThoseOfLibjpeg(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/jpeg/*.jpg")
	must(t, err)
	windows, sum, values := 0, 0, 0
	for _, path := range files {
		file, err := os.ReadFile(path)
		must(t, err)
		img, err := decode(file)
		must(t, err)
		want, whole := decoded(t, strings.TrimSuffix(path, "jpg")+"png"), rgb(nil, img.(*image.YCbCr), img.Bounds())
		for i, w := range want.Pix {
			d := max(int(whole.Pix[i])-int(w), int(w)-int(whole.Pix[i]))
			if sum, values = sum+d, values+1; d > 3 {
				t.Errorf("%s: byte %d is %d, want %d", path, i, whole.Pix[i], w)
				break
			}
		}
		var last *image.RGBA
		r := rand.New(rand.NewPCG(1, uint64(values)))
		for range 20 {
			b := img.Bounds()
			x, y := r.IntN(b.Dx()), r.IntN(b.Dy())
			window := image.Rect(x, y, x+1+r.IntN(b.Dx()-x), y+1+r.IntN(b.Dy()-y))
			last = rgb(last, img.(*image.YCbCr), window)
			for y := window.Min.Y; y < window.Max.Y; y++ {
				n := 4 * window.Dx()
				if got := last.Pix[last.PixOffset(window.Min.X, y):][:n]; !bytes.Equal(got, whole.Pix[whole.PixOffset(window.Min.X, y):][:n]) {
					t.Fatalf("%s: row %d of window %v differs", path, y, window)
				}
			}
			windows++
		}
	}
	if mean := float64(sum) / float64(values); mean > 0.05 || windows != 27*20 {
		t.Errorf("%d windows; the mean difference is %g", windows, mean)
	}
}

// decoded reads a PNG as 8-bit colors.
func decoded(t *testing.T, path string) *image.NRGBA {
	t.Helper()
	file, err := os.ReadFile(path)
	must(t, err)
	img, err := png.Decode(bytes.NewReader(file))
	must(t, err)
	out := image.NewNRGBA(img.Bounds())
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			out.Set(x, y, img.At(x, y))
		}
	}
	return out
}
