package data

import (
	"bytes"
	"errors"
	"image"
	"slices"
	"testing"
)

// explained says whether an error is one of those that a file can cause.
func explained(err error) bool {
	return slices.ContainsFunc(skippable, func(kind error) bool { return errors.Is(err, kind) })
}

// decode decodes a picture as a folder does.
func decode(file []byte) (image.Image, error) {
	stated, err := look(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return stated.picture(file)
}

// Any bytes are a picture within the limits, or an error that says what is wrong.
func FuzzPicture(f *testing.F) {
	p, j := pngBytes(f, scene(1, 9, 7)), jpegBytes(f, scene(2, 9, 7))
	for _, seed := range [][]byte{p, j, p[:40], j[:200], hugePNG(60000, 60000), hugeJPEG(j), []byte("GIF89a"), nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		size, _, err := image.DecodeConfig(bytes.NewReader(file))
		absurd := err == nil && (size.Width > maxPictureSide || size.Height > maxPictureSide || size.Width*size.Height > maxPicturePixels)
		if err == nil && !absurd && size.Width*size.Height > 1<<20 {
			t.Skip("large and allowed: slow to decode")
		}
		img, err := decode(file)
		switch {
		case err != nil && (img != nil || !explained(err)):
			t.Fatalf("%v", err)
		case absurd && !errors.Is(err, ErrTooLarge):
			t.Fatalf("%dx%d pixels: %v", size.Width, size.Height, err)
		case err == nil && (img.Bounds().Dx() != size.Width || img.Bounds().Dy() != size.Height || img.Bounds().Empty()):
			t.Fatalf("bounds %v of %dx%d", img.Bounds(), size.Width, size.Height)
		}
	})
}

// Records of any labels, cut anywhere, are images with labels in range, or an error; skipping, every record is kept or
// counted.
func FuzzCIFAR10(f *testing.F) {
	f.Add([]byte{0, 9, 3}, uint16(0))
	f.Add([]byte{1}, uint16(3000))
	f.Add([]byte{10, 255, 4}, uint16(1))
	f.Fuzz(func(t *testing.T, labels []byte, cut uint16) {
		labels = labels[:min(len(labels), 50)]
		records := make([]byte, len(labels)*cifarRecord)
		for i, label := range labels {
			records[i*cifarRecord] = label
		}
		records = records[:max(0, len(records)-int(cut))]
		whole := (len(records) + cifarRecord - 1) / cifarRecord
		for _, skip := range []bool{false, true} {
			s := &stored{options: Options{SkipBad: skip}}
			s.skips.options = &s.options
			err := s.addRecords(Train, "file", records)
			if err != nil && (skip || !explained(err)) {
				t.Fatalf("%v", err)
			}
			p := s.parts[Train]
			if len(p.pixels) != len(p.labels)*cifarPixels || len(p.labels) > 0 && slices.Max(p.labels) > 9 {
				t.Fatalf("%d bytes for %d labels", len(p.pixels), len(p.labels))
			}
			if err == nil && int64(whole) != int64(len(p.labels))+s.Skipped() {
				t.Fatalf("%d records: %d kept, %d skipped", whole, len(p.labels), s.Skipped())
			}
		}
	})
}

// Any bytes are a file with a payload no longer than its dimensions say, or an error.
func FuzzIDX(f *testing.F) {
	good := idxBytes(noise(1, 2*3*4), 2, 3, 4)
	for _, seed := range [][]byte{good, good[:20], good[:7], append(slices.Clone(good), 1), idxBytes(nil, 1<<31, 1<<31, 1<<31), zipped(f, good), zipped(f, good)[:30]} {
		f.Add(seed, uint8(3))
	}
	f.Add(idxBytes(running(5, 3), 5), uint8(1))
	f.Fuzz(func(t *testing.T, file []byte, dims uint8) {
		x, err := unpackIDX(bytes.NewReader(file), int64(len(file)), int(dims%4)+1)
		if err != nil {
			if x != nil || !explained(err) {
				t.Fatalf("%v", err)
			}
			return
		}
		size := int64(1)
		for _, d := range x.dims {
			size *= d
		}
		if len(x.dims) != int(dims%4)+1 || int64(len(x.payload)) > size || size > maxIDXBytes {
			t.Fatalf("%d bytes in dimensions %v", len(x.payload), x.dims)
		}
	})
}
