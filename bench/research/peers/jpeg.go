//go:build cgo

package main

import (
	"bufio"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"plimsoll/internal/stats"
	"plimsoll/models/data"
)

const (
	photos  = 8           // pictures that are read by turns
	looking = time.Second // for how long in each turn
)

// compareJPEG times a sample of a JPEG of ImageNet's usual size, read, decoded, cropped and scaled to 224x224, beside Pillow's, on one
// core. It also times the decoders alone; ours is the decoder of package image, without colors.
func compareJPEG(o options) error {
	folder, err := os.MkdirTemp("", "peers-jpeg-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	bytes, err := writePhotos(folder)
	if err != nil {
		return err
	}
	set, err := data.Open("folder:"+folder, data.Options{Seed: 1, Image: 224})
	if err != nil {
		return err
	}
	p, err := o.startPython(1, "pillow_jpeg.py", folder)
	if err != nil {
		return err
	}
	version, err := p.line()
	if err != nil {
		return err
	}
	ask := func(what string) stopwatch {
		return func() (float64, error) { return p.ask(fmt.Sprint(what, " ", looking.Seconds())) }
	}
	dst := make([]float32, 3*224*224)
	t, err := inTurns(o.rounds,
		func() (float64, error) {
			return mean(func(n int) error { _, err := set.Fill(data.Train, int64(n), dst); return err })
		}, ask("sample"),
		func() (float64, error) { return mean(func(n int) error { return decode(picture(folder, n%photos)) }) }, ask("decode"))
	if err != nil {
		return err
	}
	fmt.Printf("\n| JPEG of 500x375, %d KiB, one core | ours | %s | ratio |\n|---|---|---|---|\n", bytes>>10/photos, version)
	for i, what := range []string{"a sample of 224x224", "decoding alone"} {
		ours, theirs := t[2*i], t[2*i+1]
		fmt.Printf("| %s | %.2f ms | %.2f ms | %.2f |\n", what, 1e3*stats.Median(ours), 1e3*stats.Median(theirs), over(theirs, ours))
	}
	return p.close()
}

// writePhotos writes pictures into a folder of a class in another one, and returns their bytes.
func writePhotos(folder string) (bytes int64, err error) {
	if err := os.Mkdir(filepath.Dir(picture(folder, 0)), 0o755); err != nil {
		return 0, err
	}
	for i := range photos {
		path := picture(folder, i)
		f, err := os.Create(path)
		if err != nil {
			return 0, err
		}
		if err := errors.Join(jpeg.Encode(f, photo(uint64(i)), &jpeg.Options{Quality: 90}), f.Close()); err != nil {
			return 0, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		bytes += info.Size()
	}
	return bytes, nil
}

// photo is shades, edges and some noise.
func photo(seed uint64) image.Image {
	const w, h = 500, 375
	r := rand.New(rand.NewPCG(seed, 1))
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			edge := (x/37 + y/29) % 3 * 40
			img.SetNRGBA(x, y, color.NRGBA{uint8(x*120/w + edge), uint8(y*120/h + edge), uint8(80 + edge + r.IntN(12)), 255})
		}
	}
	return img
}

func picture(folder string, i int) string {
	return filepath.Join(folder, "photo", fmt.Sprintf("%d.jpg", i))
}

func decode(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = jpeg.Decode(bufio.NewReader(f))
	return errors.Join(err, f.Close())
}

// mean returns the seconds that work, which is told how often it has been done, takes in the mean.
func mean(work func(n int) error) (float64, error) {
	n, begin := 0, time.Now()
	for ; time.Since(begin) < looking; n++ {
		if err := work(n); err != nil {
			return 0, err
		}
	}
	return time.Since(begin).Seconds() / float64(n), nil
}
