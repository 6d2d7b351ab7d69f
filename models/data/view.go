package data

import (
	"context"
	"fmt"
	"image"
	"io"
	"math/rand/v2"
	"slices"

	"golang.org/x/image/draw"
)

// view is the part of a picture that a sample shows, scaled to a square.
type view struct {
	window image.Rectangle
	mirror bool
}

// viewOf is the view of a sample: a random crop in training, mirrored half of the time, else the middle square.
func (o *Options) viewOf(bounds image.Rectangle, split Split, index int64) view {
	if split != Train || o.NoAugment {
		return view{window: centerCrop(bounds)}
	}
	var r rand.PCG
	stream(&r, o.Seed, split, index)
	mirror := below(&r, 2) == 1
	return view{randomCrop(&r, bounds), mirror}
}

// withPicture decodes a file for as long as use runs; its bytes are s.file. Errors: those of use, ErrUnreadable, ErrCorrupt, ErrTruncated,
// ErrTooLarge, with the path.
func withPicture(s *scratch, path string, use func(image.Image) error) (err error) {
	file, size, err := openFile(path, maxPictureBytes)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // of a file that was read
	var stated statement
	if err := reading(file, path, func(r io.Reader) error { stated, err = look(r); return err }); err != nil {
		return err
	}
	_ = decoding.Acquire(context.Background(), size+stated.bytes) // which waits, and never fails
	defer decoding.Release(size + stated.bytes)
	defer s.shrink(stated.bytes)
	s.file = slices.Grow(s.file[:0], int(size))[:size]
	if _, err := file.ReadAt(s.file, 0); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnreadable, path, err)
	}
	img, err := stated.picture(s.file)
	if err == nil {
		err = use(img)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// show paints what a view has of a picture, with a number of pixels a side.
func show[T Element](s *scratch, with *palette[T], img image.Image, v view, side int, dst []T) {
	s.scaled = fit(s.scaled, side, side)
	if ycc, ok := img.(*image.YCbCr); ok {
		s.native = rgb(s.native, ycc, v.window)
		img = s.native
	}
	draw.CatmullRom.Scale(s.scaled, s.scaled.Rect, img, v.window, draw.Src, nil)
	with.paint(dst, s.scaled, v.mirror)
}
