package data

import (
	"fmt"
	"path/filepath"
	"testing"
)

func BenchmarkFill(b *testing.B) {
	for _, name := range []string{"digits", "glyphs"} {
		for _, image := range []int{32, 224} {
			set, err := Open(name, Options{Seed: 1, Image: image})
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]float32, image*image*3)
			b.Run(name+"/"+map[int]string{32: "32", 224: "224"}[image], func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					fill(b, set, Train, int64(i), dst)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "images/s")
			})
		}
	}
}

func BenchmarkOpenGlyphs(b *testing.B) {
	for b.Loop() {
		if _, err := Open("glyphs", Options{Image: 224}); err != nil {
			b.Fatal(err)
		}
	}
}

// A photo of 500x375 pixels, ImageNet's usual size, read, decoded, cropped and scaled to 224x224; and the same in batches
// of 8, made by workers.
func BenchmarkFolder(b *testing.B) {
	root := b.TempDir()
	for i := range 8 {
		write(b, filepath.Join(root, "photo", fmt.Sprintf("%d.jpg", i)), jpegBytes(b, scene(uint64(i), 500, 375)))
	}
	set := open(b, "folder:"+root, Options{Seed: 1, Image: 224})
	dst := canvas(set)
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			fill(b, set, Train, int64(i), dst)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "images/s")
	})
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			l := loader(b, newBatcher(b, set, Train, 8, 1), 0, workers, 2)
			images, labels := make([]float32, 8*len(dst)), make([]int32, 8)
			for b.Loop() {
				if _, err := l.Next(images, labels); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(8*float64(b.N)/b.Elapsed().Seconds(), "images/s")
		})
	}
}

func BenchmarkStored(b *testing.B) {
	for name, sides := range map[string][]int{"cifar10:" + cifarFolder(b): {32, 64}, "idx:" + idxFolder(b, idxFiles()): {28, 32}} {
		for _, side := range sides {
			set := open(b, name, Options{Seed: 1, Image: side})
			dst := canvas(set)
			b.Run(fmt.Sprintf("%.3s/%d", name, side), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					fill(b, set, Train, int64(i), dst)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "images/s")
			})
		}
	}
}
