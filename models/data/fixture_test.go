package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path string, content []byte) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, content, 0o644))
	return path
}

// scene is a picture of random blobs, another one for each seed.
func scene(seed uint64, w, h int) *image.NRGBA {
	r := rand.New(rand.NewPCG(seed, 99))
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	a, b, c := r.IntN(200), r.IntN(200), r.IntN(200)
	for y := range h {
		for x := range w {
			img.SetNRGBA(x, y, color.NRGBA{uint8(a + x*55/w), uint8(b + y*55/h), uint8(c + r.IntN(55)), 255})
		}
	}
	return img
}

// coded is a picture whose red and green say where a pixel is.
func coded(w, h int) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetNRGBA(x, y, color.NRGBA{uint8(x), uint8(y), 128, 255})
		}
	}
	return img
}

func pngBytes(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, png.Encode(&b, img))
	return b.Bytes()
}

func jpegBytes(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, jpeg.Encode(&b, img, &jpeg.Options{Quality: 95}))
	return b.Bytes()
}

// album writes n pictures of each class, JPEG and PNG by turns, of many shapes, and returns the folder.
func album(t testing.TB, n int, classes ...string) string {
	t.Helper()
	root := t.TempDir()
	fillAlbum(t, root, n, classes...)
	return root
}

func fillAlbum(t testing.TB, root string, n int, classes ...string) {
	t.Helper()
	for c, class := range classes {
		for i := range n {
			img := scene(uint64(1000*c+i), 20+i*7%40, 20+i*11%30)
			if i%2 == 0 {
				write(t, filepath.Join(root, class, fmt.Sprintf("%03d.png", i)), pngBytes(t, img))
			} else {
				write(t, filepath.Join(root, class, fmt.Sprintf("%03d.JPG", i)), jpegBytes(t, img))
			}
		}
	}
}

// cifarBytes makes n records whose labels run through the classes.
func cifarBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	var all []byte
	for i := range n {
		all = append(all, uint8(i%10))
		for range cifarPixels {
			all = append(all, uint8(r.Uint32()))
		}
	}
	return all
}

// cifarFolder writes two training files of 20 records and a test file of 10.
func cifarFolder(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "data_batch_1.bin"), cifarBytes(1, 20))
	write(t, filepath.Join(root, "data_batch_2.bin"), cifarBytes(2, 20))
	write(t, filepath.Join(root, "test_batch.bin"), cifarBytes(3, 10))
	return root
}

// idxBytes makes a file of bytes with some dimensions.
func idxBytes(payload []byte, dims ...uint32) []byte {
	b := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, d)
	}
	return append(b, payload...)
}

func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 8))
	b := make([]byte, n)
	for i := range b {
		b[i] = uint8(r.Uint32())
	}
	return b
}

func running(n, classes int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = uint8(i % classes)
	}
	return b
}

func zipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(content)
	must(t, err)
	must(t, w.Close())
	return b.Bytes()
}

// idxFiles are 40 training and 20 test images of 28x28 pixels and 10 classes.
func idxFiles() map[string][]byte {
	return map[string][]byte{
		"train-images-idx3-ubyte": idxBytes(noise(1, 40*28*28), 40, 28, 28),
		"train-labels-idx1-ubyte": idxBytes(running(40, 10), 40),
		"t10k-images-idx3-ubyte":  idxBytes(noise(2, 20*28*28), 20, 28, 28),
		"t10k-labels-idx1-ubyte":  idxBytes(running(20, 10), 20),
	}
}

func idxFolder(t testing.TB, files map[string][]byte) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(root, name), content)
	}
	return root
}

// eachFiles runs a test on a data set of every reader.
func eachFiles(t *testing.T, test func(t *testing.T, name string)) {
	for _, name := range []string{
		"folder:" + album(t, 10, "ant", "bee", "cat"),
		"cifar10:" + cifarFolder(t),
		"idx:" + idxFolder(t, idxFiles()),
	} {
		reader, _, _ := strings.Cut(name, ":")
		t.Run(reader, func(t *testing.T) { test(t, name) })
	}
}
