package data

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"slices"

	"plimsoll/internal/units"
)

// Limits of one picture. A file may state any size in a few bytes: what it states is checked before it is decoded.
const (
	maxPicturePixels = 1 << 26 // 67 million: 256 MiB while it is decoded
	maxPictureSide   = 1 << 16
	maxPictureBytes  = 1 << 28
)

// readFile reads a regular file of at most limit bytes into buf, grown as needed. Errors: ErrUnreadable, ErrTooLarge, ErrTruncated for an empty
// file.
func readFile(buf []byte, path string, limit int64) ([]byte, error) {
	// Opening a pipe would wait for a writer, so the look comes first.
	info, err := os.Stat(path)
	if err != nil {
		return buf, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	switch size := info.Size(); {
	case !info.Mode().IsRegular():
		return buf, fmt.Errorf("%w: %s is not a regular file", ErrUnreadable, path)
	case size > limit:
		return buf, fmt.Errorf("%s: %w: %s; at most %s are read", path, ErrTooLarge, units.Bytes(size), units.Bytes(limit))
	case size == 0:
		return buf, fmt.Errorf("%s: %w: it is empty", path, ErrTruncated)
	}
	f, err := os.Open(path)
	if err != nil {
		return buf, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	buf = slices.Grow(buf[:0], int(info.Size()))[:info.Size()]
	_, err = io.ReadFull(f, buf)
	if err = errors.Join(err, f.Close()); err != nil {
		return buf, fmt.Errorf("%w: %s: %w", ErrUnreadable, path, err)
	}
	return buf, nil
}

// codec decodes one format.
type codec struct {
	magic  string
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
}

var codecs = []codec{
	{"\xff\xd8", jpeg.DecodeConfig, jpeg.Decode},
	{"\x89PNG\r\n\x1a\n", png.DecodeConfig, png.Decode},
}

// decodePicture decodes a JPEG or PNG file; its first bytes say which it is, not its name. Errors: ErrCorrupt,
// ErrTruncated, ErrTooLarge.
func decodePicture(file []byte) (image.Image, error) {
	for _, c := range codecs {
		if bytes.HasPrefix(file, []byte(c.magic)) {
			return c.open(file)
		}
	}
	return nil, fmt.Errorf("%w: it is neither JPEG nor PNG", ErrCorrupt)
}

func (c codec) open(file []byte) (image.Image, error) {
	size, err := c.config(bytes.NewReader(file))
	if err != nil {
		return nil, decodeError(err)
	}
	w, h := int64(size.Width), int64(size.Height)
	switch {
	case w < 1 || h < 1:
		return nil, fmt.Errorf("%w: a picture of %dx%d pixels", ErrCorrupt, w, h)
	case w > maxPictureSide || h > maxPictureSide || w*h > maxPicturePixels:
		return nil, fmt.Errorf("%w: a picture of %dx%d pixels; at most %d pixels, %d a side", ErrTooLarge, w, h, maxPicturePixels, maxPictureSide)
	}
	img, err := c.decode(bytes.NewReader(file))
	if err != nil {
		return nil, decodeError(err)
	}
	return img, nil
}

// shortPNG is what package png says of a picture whose compressed pixels end early.
const shortPNG = png.FormatError("not enough pixel data")

func decodeError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, shortPNG) {
		return fmt.Errorf("%w: %w", ErrTruncated, err)
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}
